//! Times that lines of logs begin with, by the format that the user names.

use jiff::fmt::strtime::{self, BrokenDownTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};

/// Reads times of lines.
pub struct Reader<'f> {
    pub format: &'f str,
    /// The day and the zone of times without.
    pub begun: &'f Zoned,
}

impl Reader<'_> {
    /// When a line was written, by its own time; `last` is the time of a line before it.
    pub fn time(&self, line: &[u8], last: Option<i128>) -> Option<i128> {
        // The time may stand behind something else that every line begins with, such as a bracket:
        // that belongs into the format.
        let (mut time, _) = BrokenDownTime::parse_prefix(self.format, line).ok()?;
        if let Ok(at) = time.to_timestamp() {
            return Some(at.as_nanosecond());
        }
        let of_day = time.to_time().ok()?;
        let has_day = time.month().is_some() && time.day().is_some();
        if has_day && time.year().is_none() {
            time.set_year(Some(self.begun.year())).ok()?;
        }
        let zone = time.offset().map_or_else(|| self.begun.time_zone().clone(), TimeZone::fixed);
        let day = if has_day { time.to_date().ok()? } else { self.begun.date() };
        let at = day.to_datetime(of_day).to_zoned(zone).ok()?;
        let mut ns = at.timestamp().as_nanosecond();
        // Behind midnight, if it would be long before the line before it.
        const DAY: i128 = 86_400 * 1_000_000_000;
        let before = last.unwrap_or_else(|| self.begun.timestamp().as_nanosecond());
        while !has_day && ns + DAY / 2 < before {
            ns += DAY;
        }
        Some(ns)
    }
}

/// Checks that a format can be read and has a time of day.
///
/// # Errors
/// Why it can't.
pub fn check_format(format: &str) -> Result<(), String> {
    const EXAMPLE: &str = "write one as for strftime, such as '%Y-%m-%d %H:%M:%S%.f' or '[%H:%M:%S'";
    let now = Zoned::now();
    // Not the time of day of now: at 9:05:00, neither the seconds nor the half of the day would be
    // missed.
    let moment = now.with().hour(21).minute(58).second(57).build().unwrap_or(now);
    let shown = strtime::format(format, &moment).map_err(|error| format!("{error}; {EXAMPLE}"))?;
    let reader = Reader { format, begun: &moment };
    let read = reader.time(shown.as_bytes(), None).ok_or(format!("it has no time of day; {EXAMPLE}"))?;
    let apart = SignedDuration::from_nanos_i128(read - moment.timestamp().as_nanosecond());
    // Formats with minutes only are of no use, and neither is a clock of twelve hours without am
    // and pm.
    if apart.abs() > SignedDuration::from_secs(1) {
        return Err(format!("it doesn't give the time to the second; {EXAMPLE}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_a_time_to_the_second() {
        for format in [
            "%Y-%m-%d %H:%M:%S%.f",
            "%H:%M:%S",
            "[%d/%b/%Y:%H:%M:%S %z]",
            "%b %d %H:%M:%S",
            "%FT%T%.fZ",
            "%s",
        ] {
            assert_eq!(check_format(format), Ok(()), "{format}");
        }
        for format in ["", "%", "%Q%Q%!", "time", "%Y-%m-%d", "%H:%M", "%j"] {
            assert!(check_format(format).is_err(), "{format}");
        }
    }

    #[test]
    fn times_are_those_that_lines_begin_with() {
        let begun: Zoned = "2026-11-23T23:59:58[UTC]".parse().unwrap();
        let at = |time: &str| time.parse::<Zoned>().unwrap().timestamp().as_nanosecond();
        let read =
            |format: &str, line: &str, last| Reader { format, begun: &begun }.time(line.as_bytes(), last);
        assert_eq!(read("%H:%M:%S%.f", "23:59:58.25 x", None), Some(at("2026-11-23T23:59:58.25[UTC]")));
        let last = read("%H:%M:%S", "23:59:59", None);
        assert_eq!(read("%H:%M:%S", "00:00:01 after midnight", last), Some(at("2026-11-24T00:00:01[UTC]")));
        assert_eq!(read("%b %d %T", "Nov 24 00:00:02 host", None), Some(at("2026-11-24T00:00:02[UTC]")));
        assert_eq!(
            read("[%FT%T%:z]", "[2026-11-24T01:00:02+01:00] x", None),
            Some(at("2026-11-24T00:00:02[UTC]"))
        );
        for line in ["", "no time", "99:99:99", "\u{1b}[31m23:59:59", "23:59"] {
            assert_eq!(read("%H:%M:%S", line, None), None, "{line:?}");
        }
        assert_eq!(read("%H:%M:%S", "\u{fffd}", None), None);
        assert_eq!(Reader { format: "%H:%M:%S", begun: &begun }.time(b"\xff\xfe", None), None);
    }
}
