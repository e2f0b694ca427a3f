//! Arguments and results of calls as text.

use everycall_timeline::ValuesNumber;
use everycall_values::{CALL_SITE, ERROR, Value, text};

use crate::source::Source;
use crate::thrown::THREW;
use everycall_calls::CallValues;

/// Names and texts of a call's values, for outputs that show them in a list.
#[must_use]
pub fn shown_values(source: &impl Source, number: ValuesNumber) -> Vec<(String, String)> {
    source.values(number).into_iter().map(|(name, value)| (name, text::text(&value))).collect()
}

/// Arguments as they stand between parentheses.
#[must_use]
pub fn arguments_text(source: &impl Source, number: ValuesNumber) -> String {
    text::arguments(&apart(source.values(number)).0)
}

/// Arguments as they stand between parentheses, if there are any, and from where the call was made.
pub(crate) fn arguments_and_site(
    source: &impl Source,
    number: ValuesNumber,
) -> (Option<String>, Option<String>) {
    let (arguments, site) = apart(source.values(number));
    let has_only_site = site.is_some() && arguments.is_empty();
    ((!has_only_site).then(|| text::arguments(&arguments)), site)
}

/// Arguments, and the text of where the call was made.
#[must_use]
pub fn apart(mut values: Vec<(String, Value)>) -> (Vec<(String, Value)>, Option<String>) {
    let is_site = |value: &Value| matches!(value, Value::CallSite(_) | Value::Named(..));
    match values.pop() {
        Some((name, site)) if name == CALL_SITE && is_site(&site) => (values, Some(text::text(&site))),
        last => {
            values.extend(last);
            (values, None)
        }
    }
}

/// Whether a value with this name is known at a call's end.
#[must_use]
pub fn is_of_end(name: &str) -> bool {
    matches!(name, "returned" | ERROR | THREW)
}

/// A result as it stands behind a call: `= 0`, `= -1 ENOENT`, or what the call threw:
/// `threw std::out_of_range: "no such key"`.
#[must_use]
pub fn result_text(source: &impl Source, number: ValuesNumber) -> String {
    text_of_result(&source.values(number))
}

/// As [`result_text`], of the values themselves.
#[must_use]
pub fn text_of_result(values: &[(String, Value)]) -> String {
    match values {
        [(name, Value::Text { bytes, .. }), text @ ..] if name == THREW => {
            let text = text.iter().map(|(_, value)| format!(": {}", text::text(value)));
            format!("threw {}{}", String::from_utf8_lossy(bytes), text.collect::<String>())
        }
        [(_, value)] => format!("= {}", text::text(value)),
        [(_, value), (name, error)] if name == ERROR && is_failure(value) => {
            format!("= {} {}", text::text(value), text::text(error))
        }
        values => format!("= ({})", text::arguments(values)),
    }
}

/// Whether a result is one by which functions of the C library say that they have failed.
fn is_failure(value: &Value) -> bool {
    matches!(value, Value::Integer(-1) | Value::Null | Value::Pointer(u64::MAX))
}

/// Arguments as a JSON object.
#[must_use]
pub fn arguments_json(source: &impl Source, number: ValuesNumber) -> String {
    text::json(&source.values(number))
}

/// A result as JSON.
#[must_use]
pub fn result_json(source: &impl Source, number: ValuesNumber) -> String {
    text::json_of(&result_value(source, number))
}

/// A result as one value: with a name if there are several, or if the call threw.
pub(crate) fn result_value(source: &impl Source, number: ValuesNumber) -> Value {
    let mut values = source.values(number);
    match &mut values[..] {
        [(name, value)] if name != THREW => std::mem::replace(value, Value::None),
        _ => Value::Struct(values),
    }
}

/// The arguments and the result of a call as JSON, each if it was recorded.
pub(crate) fn json(source: &impl Source, values: CallValues) -> (Option<String>, Option<String>) {
    (
        values.arguments.map(|number| arguments_json(source, number)),
        values.result.map(|number| result_json(source, number)),
    )
}

/// A function's name without the types of its parameters, in whose place its arguments are shown.
#[must_use]
pub fn without_parameters(name: &str) -> &str {
    let end = name.trim_end_matches(" const").trim_end_matches(['&', ' ']);
    if !end.ends_with(')') {
        return name;
    }
    let mut depth = 0_usize;
    for (at, letter) in end.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            // `(anonymous namespace)` and `operator()` are names.
            let before = end[..at].trim_end();
            let is_name = before.is_empty() || before.ends_with("::") || before.ends_with("operator");
            return if is_name { name } else { before };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_give_way_to_arguments() {
        for (name, expected) in [
            ("handle", "handle"),
            ("parse(std::string const&)", "parse"),
            ("A::get(int (*)(char)) const", "A::get"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("A::operator()(int)", "A::operator()"),
            ("A::operator()", "A::operator()"),
            ("a::(anonymous namespace)", "a::(anonymous namespace)"),
            ("<A as B>::f", "<A as B>::f"),
            ("f)", "f)"),
            ("(", "("),
        ] {
            assert_eq!(without_parameters(name), expected, "{name}");
        }
    }
}
