//! Lengths of time: `1.5ms`, `200us`, `2s`, `5m`. Options, triggers and variables are all read by
//! this code.

use core::fmt;

/// Why a text is not a time. `Display` says what to write instead, without repeating the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// It doesn't begin with a number.
    NoNumber,
    /// The number isn't followed by a unit.
    NoUnit,
    /// It has a fraction of a nanosecond.
    TooFine,
    /// It is longer than 584 years.
    TooLong,
}

impl fmt::Display for TimeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeError::NoNumber => {
                out.write_str("not a time; write a number and a unit, such as 1.5ms, 200us or 2s")
            }
            TimeError::NoUnit => write!(out, "no known unit; use {UNITS_ALLOWED}, as in 1.5ms"),
            TimeError::TooFine => out.write_str("finer than a nanosecond"),
            TimeError::TooLong => out.write_str("longer than 584 years"),
        }
    }
}

impl core::error::Error for TimeError {}

/// Units with their nanoseconds. The first spelling of each is the one that is printed.
const UNITS: [(&[&str], u64); 7] = [
    (&["ns", "nsec", "nsecs", "nanosecond", "nanoseconds"], 1),
    // The micro sign, and the Greek letter.
    (&["us", "\u{b5}s", "\u{3bc}s", "usec", "usecs", "microsecond", "microseconds"], 1_000),
    (&["ms", "msec", "msecs", "millisecond", "milliseconds"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    (&["d", "day", "days"], 86_400_000_000_000),
];

/// The units, for messages.
pub const UNITS_ALLOWED: &str = "ns, us, ms, s, m, h or d";

/// Nanoseconds of a time such as `1.5ms`, `200us`, `2s`, `5 min` or `0`, exactly.
///
/// # Errors
///
/// Not a number with a unit, finer than a nanosecond, or beyond 584 years.
pub fn parse_time(text: &str) -> Result<u64, TimeError> {
    parse_time_bytes(text.as_bytes())
}

/// [`parse_time`] of a text that need not be UTF-8, such as a variable's.
///
/// # Errors
///
/// As for [`parse_time`].
pub fn parse_time_bytes(text: &[u8]) -> Result<u64, TimeError> {
    let text = text.trim_ascii();
    if text == b"0" {
        return Ok(0);
    }
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or(TimeError::NoNumber)?;
    let mut parts = number.split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    if whole.is_empty() && fraction.is_empty() || parts.next().is_some() {
        return Err(TimeError::NoNumber);
    }
    let unit = unit.trim_ascii();
    let is_unit = |names: &[&str]| names.iter().any(|name| name.as_bytes() == unit);
    let unit_ns = UNITS.iter().find(|(names, _)| is_unit(names)).map(|(_, ns)| *ns);
    let mut place_ns = unit_ns.ok_or(TimeError::NoUnit)?;
    let mut time_ns = whole.iter().try_fold(0_u64, |ns, digit| {
        ns.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')).checked_mul(place_ns)?)
    });
    let used = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last.saturating_add(1));
    for digit in fraction.iter().take(used) {
        // At most 9 days: far below the largest number.
        let ns = u64::from(digit.wrapping_sub(b'0')).saturating_mul(place_ns);
        if place_ns == 0 || ns % 10 != 0 {
            return Err(TimeError::TooFine);
        }
        time_ns = time_ns.and_then(|time| time.checked_add(ns / 10));
        place_ns = if place_ns % 10 == 0 { place_ns / 10 } else { 0 };
    }
    time_ns.ok_or(TimeError::TooLong)
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
        // Rounds before comparing, so that 999.96 us becomes 1.00 ms and not 1000 us.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_its_length() {
        for (names, ns) in UNITS {
            for name in names {
                for text in [format!("3{name}"), format!(" 3 {name} "), format!("3.0{name}")] {
                    assert_eq!(parse_time(&text), Ok(3 * ns), "{text}");
                }
            }
        }
        assert_eq!(parse_time("1.5m"), Ok(90_000_000_000));
        assert_eq!(parse_time("2.5\u{b5}s"), Ok(2500));
        // A capital letter may mean another unit: `M` is a size.
        for text in ["1M", "1MS", "1 parsec", "1mm", "1e3ms", "5"] {
            assert_eq!(parse_time(text), Err(TimeError::NoUnit), "{text}");
        }
    }

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
    fn invalid_times_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "not a time"),
            ("ms", "not a time"),
            (".", "not a time"),
            ("1.2.3ms", "not a time"),
            ("-1ms", "not a time"),
            ("5", "no known unit"),
            ("5 parsecs", "no known unit"),
            ("1e3ms", "no known unit"),
            ("0.1ns", "finer"),
            ("1.0000001us", "finer"),
            ("0.00000000000000000000000001s", "finer"),
            ("18446744073.709551616s", "longer"),
            ("99999999999999999999999999999999h", "longer"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
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
    }
}
