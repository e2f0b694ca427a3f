//! A trigger, as people write it.

use std::fmt;
use std::str::FromStr;

use everycall_export::parse_time;

use crate::pattern::Pattern;

/// When calls of a function are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// They take longer than so many nanoseconds.
    Longer(u64),
}

/// A trigger: which functions, and when.
#[derive(Clone, Debug)]
pub struct Trigger {
    text: String,
    /// Which functions.
    pub pattern: Pattern,
    /// When.
    pub condition: Condition,
}

/// A text that should have been a trigger, and wasn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.text, self.reason)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a trigger looks like, for messages.
const EXAMPLE: &str = "write a function and a time, as in 'handle_request > 20ms'";

impl FromStr for Trigger {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Trigger, ParseError> {
        let error = |reason: String| ParseError { text: text.to_owned(), reason };
        // From behind: `operator>` is a function's name, too.
        let (pattern, limit) = text.rsplit_once('>').ok_or_else(|| {
            let what = if text.contains('<') {
                "asks for fast calls, and only slow ones are kept"
            } else {
                "has no condition"
            };
            error(format!("{what}; {EXAMPLE}"))
        })?;
        let (pattern, limit) = (pattern.trim(), limit.trim());
        if pattern.is_empty() {
            return Err(error(format!("names no function; {EXAMPLE}")));
        }
        if let Some(rest) = limit.strip_prefix('=') {
            return Err(error(format!("has `>=`; write `{pattern} > {}`", rest.trim())));
        }
        let ns = parse_time(limit).map_err(|_| {
            let found = if limit.is_empty() { "nothing".to_owned() } else { format!("`{limit}`") };
            error(format!("has {found} for a time; {EXAMPLE}, with ns, us, ms, s or min"))
        })?;
        if ns == 0 {
            return Err(error("would keep every call; write a time above 0".to_owned()));
        }
        let pattern =
            Pattern::new(pattern).map_err(|reason| error(format!("has a bad pattern: {reason}")))?;
        Ok(Trigger { text: text.to_owned(), pattern, condition: Condition::Longer(ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read() {
        let read = |text: &str| {
            text.parse::<Trigger>().map(|trigger| (trigger.pattern.to_string(), trigger.condition))
        };
        assert_eq!(
            read("handle_request > 20ms").unwrap(),
            ("handle_request".into(), Condition::Longer(20_000_000))
        );
        assert_eq!(read("a::b*>1.5us").unwrap(), ("a::b*".into(), Condition::Longer(1500)));
        assert_eq!(read("operator> > 2s").unwrap(), ("operator>".into(), Condition::Longer(2_000_000_000)));
    }

    #[test]
    fn what_makes_no_sense_says_what_would() {
        for (text, hint) in [
            ("handle_request", "has no condition"),
            ("f < 3ms", "asks for fast calls"),
            ("> 3ms", "names no function"),
            ("f > ", "has nothing for a time"),
            ("f > 3", "has `3` for a time"),
            ("f > fast", "has `fast` for a time"),
            ("f > -3ms", "has `-3ms` for a time"),
            ("f >= 3ms", "write `f > 3ms`"),
            ("f > 0ms", "would keep every call"),
            ("f > 1000000000h", "for a time"),
        ] {
            let error = text.parse::<Trigger>().unwrap_err().to_string();
            assert!(error.contains(hint) && error.contains(text), "{error}");
        }
    }
}
