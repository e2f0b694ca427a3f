//! Parses options of filters.

use std::fmt;

/// A text that isn't a valid format, thread number or pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The given text.
    pub text: String,
    /// The fault, and the right form.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` {}", self.text, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Parses numbers of threads or processes such as `1234` or `1234,1240`.
///
/// # Errors
///
/// They aren't numbers separated by commas.
pub fn parse_ids(text: &str) -> Result<Vec<u32>, ParseError> {
    let parse = |part: &str| {
        part.trim().parse().map_err(|_| ParseError {
            text: text.to_owned(),
            reason: "is not a thread or process number; write one, or several with commas between, such as 1234,1240"
                .to_owned(),
        })
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_numbers_are_lists() {
        assert_eq!(parse_ids("1, 22").unwrap(), [1, 22]);
        assert!(parse_ids("1,,2").is_err() && parse_ids("").is_err() && parse_ids("-1").is_err());
    }
}
