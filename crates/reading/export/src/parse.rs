//! Parses options of filters.

use std::fmt;

use everycall_timeline::{FIBERS_FROM, TASKS_FROM};

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

/// Parses the threads, fibers and tasks of `--tid`: numbers as [`parse_ids`] does, and `fiber 3` or
/// `task 4` as titles have it.
///
/// # Errors
///
/// One of them is neither.
pub fn parse_threads(text: &str) -> Result<Vec<u32>, ParseError> {
    let parse = |part: &str| {
        let number = |word: &str, from: u32| {
            let number = part.strip_prefix(word)?.trim_start_matches([' ', ':', '=']);
            from.checked_add(number.parse().ok()?)
        };
        let named = number("task", FIBERS_FROM.saturating_add(TASKS_FROM));
        named.or_else(|| number("fiber", FIBERS_FROM)).or_else(|| part.parse().ok())
    };
    let threads = text.split(',').map(|part| parse(part.trim())).collect::<Option<Vec<_>>>();
    threads.ok_or_else(|| ParseError {
        text: text.to_owned(),
        reason: "is not a thread; write its number, or a task or fiber as the titles of `everycall replay` name it, \
                 or several with commas between, such as 1234,'task 4'"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_fibers_have_their_titles() {
        let all = parse_threads("task 4, fiber 3,fiber:3,task4,17,1000000003").unwrap();
        assert_eq!(all, [1_500_000_004, 1_000_000_003, 1_000_000_003, 1_500_000_004, 17, 1_000_000_003]);
        for wrong in ["task", "task x", "fibre 3", "", "1,,2", "task 4000000000"] {
            let sentence = parse_threads(wrong).unwrap_err().to_string();
            assert!(sentence.contains("'task 4'"), "{sentence}");
        }
    }

    #[test]
    fn thread_numbers_are_lists() {
        assert_eq!(parse_ids("1, 22").unwrap(), [1, 22]);
        assert!(parse_ids("1,,2").is_err() && parse_ids("").is_err() && parse_ids("-1").is_err());
    }
}
