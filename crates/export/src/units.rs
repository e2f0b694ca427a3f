//! Times and counts, as people write and read them.

use std::fmt;

use everycall_format::time::{self, TimeError, UNITS_ALLOWED};

/// A text that should have been a time, a thread number or a pattern, and wasn't.
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

/// Reads a time such as `1.5ms`, `200us`, `2s` or `0`, exactly. The result is in nanoseconds.
///
/// # Errors
///
/// Not a number with a unit, finer than a nanosecond, or beyond 584 years.
pub fn parse_time(text: &str) -> Result<u64, ParseError> {
    time::parse_time(text.as_bytes()).map_err(|error| {
        let reason = match error {
            TimeError::NoNumber => {
                "is not a time; write a number and a unit, such as 1.5ms, 200us or 2s".to_owned()
            }
            TimeError::NoUnit => format!("has no unit that is known here; use {UNITS_ALLOWED}, as in 1.5ms"),
            TimeError::TooFine => "is finer than a nanosecond".to_owned(),
            TimeError::TooLong => "is too long a time".to_owned(),
        };
        ParseError { text: text.to_owned(), reason }
    })
}

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

/// A duration of `ns` nanoseconds with three digits and a unit chosen for its size: `870 ns`, `12.3 us`,
/// `2.50 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    /// Nanoseconds.
    pub ns: u64,
}

impl fmt::Display for Duration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.ns;
        if ns < 1_000 {
            return write!(out, "{ns} ns");
        }
        let (unit, unit_ns) = match ns {
            0..999_500 => ("us", 1_000),
            999_500..999_500_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        // Rounded before it is compared, so that 999.96 us becomes 1.00 ms and not 1000 us.
        let rounded = |places: u64| ns / places + u64::from(ns % places >= places / 2);
        let hundredths = rounded(unit_ns / 100);
        if hundredths < 1_000 {
            return write!(out, "{}.{:02} {unit}", hundredths / 100, hundredths % 100);
        }
        let tenths = rounded(unit_ns / 10);
        if tenths < 1_000 {
            return write!(out, "{}.{} {unit}", tenths / 10, tenths % 10);
        }
        write!(out, "{} {unit}", rounded(unit_ns))
    }
}

/// No program does anything so often: a larger count was written over, or the file is damaged.
pub const COUNT_MAX: u64 = 1_000_000_000_000_000;

/// A number with commas between its thousands: `1,234,567`; `damaged` where it can't be right, above [`COUNT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(
    /// The number.
    pub u64,
);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > COUNT_MAX {
            return out.pad("damaged");
        }
        let digits = self.0.to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                out.write_str(",")?;
            }
            write!(out, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        for (text, ns) in [
            ("0", 0),
            ("1ns", 1),
            ("200us", 200_000),
            ("200µs", 200_000),
            ("1.5ms", 1_500_000),
            ("1.500000ms", 1_500_000),
            ("2s", 2_000_000_000),
            (".5 s", 500_000_000),
            ("0.000000001s", 1),
            ("1.0ns", 1),
            ("0.05min", 3_000_000_000),
            ("5m", 300_000_000_000),
            ("2 sec", 2_000_000_000),
            ("18446744073.709551615s", u64::MAX),
        ] {
            assert_eq!(parse_time(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_why() {
        for (text, reason) in [
            ("", "not a time"),
            ("ms", "not a time"),
            (".", "not a time"),
            ("1.2.3ms", "not a time"),
            ("-1ms", "not a time"),
            ("5", "no unit"),
            ("5 parsecs", "no unit"),
            ("1e3ms", "no unit"),
            ("0.1ns", "finer"),
            ("1.0000001us", "finer"),
            ("0.00000000000000000000000001s", "finer"),
            ("18446744073.709551616s", "too long"),
            ("99999999999999999999999999999999h", "too long"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn thread_numbers_are_lists() {
        assert_eq!(parse_ids("1, 22").unwrap(), [1, 22]);
        assert!(parse_ids("1,,2").is_err() && parse_ids("").is_err() && parse_ids("-1").is_err());
    }

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (12_345, "12.3 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_500_000_000, "1.50 s"),
            (123_456_000_000_000, "123456 s"),
            (u64::MAX, "18446744074 s"),
        ] {
            assert_eq!(Duration { ns }.to_string(), text);
        }
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(123).to_string(), "123");
        assert_eq!(Count(1_234_567).to_string(), "1,234,567");
    }
}
