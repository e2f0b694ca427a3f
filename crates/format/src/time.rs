//! Times as people write them: `1.5ms`, `200us`, `2s`, `5m`. Options of the command, triggers and variables all take what is read here.

/// Why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// It doesn't begin with a number.
    NoNumber,
    /// What follows the number is no unit.
    NoUnit,
    /// It has a fraction of a nanosecond.
    TooFine,
    /// It is longer than 584 years.
    TooLong,
}

/// Units with their nanoseconds. The first of each length is how we write it.
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
/// It is none.
pub fn parse_time(text: &[u8]) -> Result<u64, TimeError> {
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
        // At most 9 days: far from the highest number.
        let ns = u64::from(digit.wrapping_sub(b'0')).saturating_mul(place_ns);
        if place_ns == 0 || ns % 10 != 0 {
            return Err(TimeError::TooFine);
        }
        time_ns = time_ns.and_then(|time| time.checked_add(ns / 10));
        place_ns = if place_ns % 10 == 0 { place_ns / 10 } else { 0 };
    }
    time_ns.ok_or(TimeError::TooLong)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    #[test]
    fn every_spelling_is_its_length() {
        for (names, ns) in UNITS {
            for name in names {
                for text in [format!("3{name}"), format!(" 3 {name} "), format!("3.0{name}")] {
                    assert_eq!(parse_time(text.as_bytes()), Ok(3 * ns), "{text}");
                }
            }
        }
        assert_eq!(parse_time(b"1.5m"), Ok(90_000_000_000));
        assert_eq!(parse_time("2.5\u{b5}s".as_bytes()), Ok(2500));
        // A capital letter may mean another unit: `M` is a size.
        for text in ["1M", "1MS", "1 parsec", "1mm", "1e3ms", "5"] {
            assert_eq!(parse_time(text.as_bytes()), Err(TimeError::NoUnit), "{text}");
        }
    }
}
