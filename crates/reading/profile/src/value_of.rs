//! Recorded values of calls: as groups, and as texts.

use everycall_calls::CallValues;

use crate::functions::{FunctionNumber, Functions};

/// A function and one of its recorded values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueOf {
    /// The function's name without parameters; `*` stands for any text.
    pub function: String,
    /// The value's name, as it was recorded; `returned` for the result.
    pub value: String,
}

impl ValueOf {
    /// Reads `FUNCTION(VALUE)`; `None` if it isn't that.
    #[must_use]
    pub fn parse(text: &str) -> Option<ValueOf> {
        let (function, value) = text.strip_suffix(')')?.split_once('(')?;
        let (function, value) = (function.trim(), value.trim());
        let is_one = !function.is_empty() && !value.is_empty();
        is_one.then(|| ValueOf { function: function.to_owned(), value: value.to_owned() })
    }
}

/// Finds the values by which calls are grouped.
pub trait ValueGroups {
    /// Whether calls of this function are grouped.
    fn is_meant(&mut self, function: FunctionNumber, functions: &Functions) -> bool;

    /// The value of a call with these values; `None` if it has none.
    fn of(&mut self, values: CallValues) -> Option<&str>;
}

/// Arguments or a result, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueText {
    /// `path="/index", len=42`
    pub text: String,
    /// JSON.
    pub json: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_with_one_value() {
        let of = |function: &str, value: &str| ValueOf { function: function.into(), value: value.into() };
        assert_eq!(ValueOf::parse("handle(path)"), Some(of("handle", "path")));
        assert_eq!(ValueOf::parse("a::b* ( req->len )"), Some(of("a::b*", "req->len")));
        for text in ["handle", "handle()", "(path)", "handle(path", "path)"] {
            assert_eq!(ValueOf::parse(text), None, "{text}");
        }
    }
}
