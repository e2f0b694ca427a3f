//! Exceptions that left calls, as values.

use everycall_format::label::{CUT_TEXT, TEXT};
use everycall_values::Value;

/// The name of the value that says which exception has left a call, in the place of a result.
pub(crate) const THREW: &str = "threw";

/// The type of a thrown exception, and its text, if that was recorded, and whether the text goes on.
/// `mangled`: its name as the C++ ABI writes it, with the text. `None` if there is no name.
pub(crate) fn parts(mangled: &str) -> Option<(String, Option<(&str, bool)>)> {
    let of_type =
        |mangled: &str| everycall_demangle::demangle_type(mangled).unwrap_or_else(|| mangled.to_owned());
    Some(match mangled.split_once([char::from(TEXT), char::from(CUT_TEXT)]) {
        None if mangled.is_empty() => return None,
        None => (of_type(mangled), None),
        Some((mangled_type, text)) => {
            let is_cut = mangled.as_bytes().get(mangled_type.len()) == Some(&CUT_TEXT);
            (of_type(mangled_type), Some((text, is_cut)))
        }
    })
}

/// The values of a call that an exception with this name has left.
pub(crate) fn values(name: &[u8]) -> Vec<(String, Value)> {
    let name = String::from_utf8_lossy(name);
    let Some((of_type, text)) = parts(&name) else { return Vec::new() };
    let value = |text: &str, is_cut| Value::Text {
        bytes: text.as_bytes().to_vec(),
        length: text.len() as u32,
        is_cut,
        is_unreadable: false,
    };
    let mut values = vec![(THREW.to_owned(), value(&of_type, false))];
    values.extend(text.map(|(text, is_cut)| ("text".to_owned(), value(text, is_cut))));
    values
}
