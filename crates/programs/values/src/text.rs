//! From values to text and JSON.

use std::fmt::Write as _;

use crate::decode::Value;
use crate::layout::Missing;

/// `a=1, b="text"`: the values of a call, as they stand between its parentheses.
#[must_use]
pub fn arguments(values: &[(String, Value)]) -> String {
    let mut text = String::new();
    members(&mut text, values);
    text
}

/// One value as text.
#[must_use]
pub fn text(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

/// One value as JSON.
#[must_use]
pub fn json_of(value: &Value) -> String {
    let mut text = String::new();
    json_value(&mut text, value);
    text
}

/// An object with the values by their names, as JSON.
#[must_use]
pub fn json(values: &[(String, Value)]) -> String {
    let mut text = String::new();
    object(&mut text, values);
    text
}

fn members(out: &mut String, values: &[(String, Value)]) {
    for (index, (name, value)) in values.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        if !name.is_empty() {
            out.push_str(name);
            out.push('=');
        }
        write(out, value);
    }
}

/// Names of a tuple's fields, which aren't shown: `__0`, `__1`.
fn is_tuple(values: &[(String, Value)]) -> bool {
    values.iter().enumerate().all(|(index, (name, _))| *name == format!("__{index}"))
}

fn unnamed(values: &[(String, Value)]) -> Vec<(String, Value)> {
    values.iter().map(|(_, value)| (String::new(), value.clone())).collect()
}

fn missing(missing: Missing) -> &'static str {
    match missing {
        Missing::OptimisedOut => "<optimised out>",
        Missing::Incomplete => "<incomplete type>",
        Missing::Hidden => "<hidden>",
        Missing::NoSpace => "<no space>",
    }
}

fn write(out: &mut String, value: &Value) {
    // Writing to a string doesn't fail.
    let _ = match value {
        Value::Integer(number) => write!(out, "{number}"),
        Value::Large(number) => write!(out, "{number}"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Char(code) => match char::from_u32(*code) {
            Some(letter) => write!(out, "{letter:?}"),
            None => write!(out, "{code:#x}"),
        },
        Value::Float(number) => write!(out, "{number:?}"),
        Value::Float32(number) => write!(out, "{number:?}"),
        Value::Text { bytes, is_cut, is_unreadable, .. } => {
            quoted(out, bytes);
            if *is_unreadable {
                out.push_str("<unreadable>");
            } else if *is_cut {
                out.push_str("...");
            }
            Ok(())
        }
        Value::Null => write!(out, "null"),
        Value::Pointer(address) | Value::Function(address) | Value::CallSite(address) => {
            write!(out, "{address:#x}")
        }
        Value::Named(_, name) => write!(out, "{name}"),
        Value::Enum(_, Some(name)) => write!(out, "{name}"),
        Value::Enum(number, None) => write!(out, "{number}"),
        Value::Struct(values) if !values.is_empty() && is_tuple(values) => {
            out.push('(');
            members(out, &unnamed(values));
            out.push(')');
            Ok(())
        }
        Value::Struct(values) => {
            out.push('{');
            members(out, values);
            out.push('}');
            Ok(())
        }
        Value::Array(values, count) => {
            out.push('[');
            members(out, &values.iter().map(|value| (String::new(), value.clone())).collect::<Vec<_>>());
            if *count > values.len() as u64 {
                out.push_str(if values.is_empty() { "..." } else { ", ..." });
            }
            out.push(']');
            Ok(())
        }
        Value::Case(name, values) => {
            out.push_str(name);
            if values.is_empty() {
                return;
            }
            let is_tuple = is_tuple(values);
            out.push_str(if is_tuple { "(" } else { " {" });
            members(out, &if is_tuple { unnamed(values) } else { values.clone() });
            out.push(if is_tuple { ')' } else { '}' });
            Ok(())
        }
        Value::None => write!(out, "none"),
        Value::Duration(seconds, nanoseconds) => {
            write!(
                out,
                "{:?}",
                std::time::Duration::from_secs(*seconds)
                    .saturating_add(std::time::Duration::from_nanos(u64::from(*nanoseconds)))
            )
        }
        Value::Hex(bytes) => {
            out.push_str("0x");
            bytes.iter().rev().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        Value::Opaque => write!(out, "{{...}}"),
        Value::Unreadable => write!(out, "<unreadable>"),
        Value::Missing(reason) => write!(out, "{}", missing(*reason)),
        Value::Damaged => write!(out, "<damaged>"),
    };
}

/// A text in quotes, as texts among values are shown.
#[must_use]
pub fn quoted_text(bytes: &[u8]) -> String {
    let mut out = String::new();
    quoted(&mut out, bytes);
    out
}

/// A text in quotes: what isn't a character is written by its number.
fn quoted(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\'' => out.push('\''),
                letter => out.extend(letter.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
}

/// A JSON string that is also safe in a script in HTML: `</`, `<!` and line separators are escaped.
fn json_text(out: &mut String, text: &str) {
    out.push('"');
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '<' if matches!(letters.peek(), Some('/' | '!')) => out.push_str("\\u003c"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            letter if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

fn object(out: &mut String, values: &[(String, Value)]) {
    out.push('{');
    for (index, (name, value)) in values.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        json_text(out, name);
        out.push(':');
        json_value(out, value);
    }
    out.push('}');
}

fn json_value(out: &mut String, value: &Value) {
    let _ = match value {
        Value::Integer(number) => write!(out, "{number}"),
        Value::Large(number) => write!(out, "{number}"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Float(number) if number.is_finite() => write!(out, "{number:?}"),
        Value::Float32(number) if number.is_finite() => write!(out, "{number:?}"),
        Value::Null | Value::None => write!(out, "null"),
        Value::Char(code) if char::from_u32(*code).is_some() => {
            json_text(out, &char::from_u32(*code).map(String::from).unwrap_or_default());
            Ok(())
        }
        Value::Text { bytes, is_cut, is_unreadable, .. } => {
            let mut text = String::from_utf8_lossy(bytes).into_owned();
            if *is_cut || *is_unreadable {
                text.push_str("...");
            }
            json_text(out, &text);
            Ok(())
        }
        Value::Struct(values) => {
            object(out, values);
            Ok(())
        }
        Value::Array(values, count) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                json_value(out, value);
            }
            if *count > values.len() as u64 {
                out.push_str(if values.is_empty() { "\"...\"" } else { ",\"...\"" });
            }
            out.push(']');
            Ok(())
        }
        Value::Case(name, values) if values.is_empty() => {
            json_text(out, name);
            Ok(())
        }
        Value::Case(name, values) => {
            out.push('{');
            json_text(out, name);
            out.push(':');
            object(out, values);
            out.push('}');
            Ok(())
        }
        other => {
            json_text(out, &text(other));
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8], is_cut: bool) -> Value {
        Value::Text { bytes: bytes.to_vec(), length: 99, is_cut, is_unreadable: false }
    }

    #[test]
    fn values_are_written_for_people_and_for_programs() {
        let values = vec![
            ("path".to_owned(), cut(b"/in\"dex\n\xff", true)),
            ("len".to_owned(), Value::Integer(42)),
            ("key".to_owned(), Value::Missing(Missing::Hidden)),
            ("it".to_owned(), Value::Case("Some".to_owned(), vec![("__0".to_owned(), Value::Float(0.1))])),
            ("all".to_owned(), Value::Array(vec![Value::Bool(true)], 9)),
            ("at".to_owned(), Value::Duration(1, 500_000_000)),
            ("c".to_owned(), Value::Char(0x27)),
            ("raw".to_owned(), Value::Hex(vec![1, 2])),
            ("p".to_owned(), Value::Struct(vec![("x".to_owned(), Value::Unreadable)])),
        ];
        assert_eq!(
            arguments(&values),
            r#"path="/in\"dex\n\xff"..., len=42, key=<hidden>, it=Some(0.1), all=[true, ...], at=1.5s, c='\'', raw=0x0201, p={x=<unreadable>}"#
        );
        assert_eq!(
            json(&values),
            "{\"path\":\"/in\\\"dex\\n\u{fffd}...\",\"len\":42,\"key\":\"<hidden>\",\"it\":{\"Some\":{\"__0\":0.1}},\"all\":[true,\"...\"],\"at\":\"1.5s\",\"c\":\"'\",\"raw\":\"0x0201\",\"p\":{\"x\":\"<unreadable>\"}}"
        );
    }
}
