//! What options of filters take, read from text.

use std::fmt;

/// A text that should have been a format, a thread number or a pattern, and wasn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What was given.
    pub text: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` {}", self.text, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// Reads numbers of threads or processes such as `1234` or `1234,1240`.
///
/// # Errors
///
/// Not numbers separated by commas.
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
