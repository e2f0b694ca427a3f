//! Calendar time: displaying and parsing it.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use jiff::civil;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use crate::parse::ParseError;

const SECOND: u64 = 1_000_000_000;
/// Time zones change their offset at whole quarters of an hour.
const QUARTER: u64 = 900 * SECOND;
const DAY: u64 = 86_400 * SECOND;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    zone: TimeZone,
}

/// A requested calendar time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WallTime {
    /// Nanoseconds since 1970.
    At(u64),
    /// A time of day: on the day on which the trace begins, or on the first later day on which the
    /// trace contains it.
    OfDay(civil::Time, Calendar),
}

impl Calendar {
    /// The time zone of this machine, or that in the variable `TZ`.
    #[must_use]
    pub fn local() -> Calendar {
        Calendar { zone: TimeZone::system() }
    }

    /// UTC.
    #[must_use]
    pub fn utc() -> Calendar {
        Calendar { zone: TimeZone::UTC }
    }

    /// Parses `2026-11-23T10:00:00.123456Z`, `2026-11-23T11:00:00+01:00`, or in this zone
    /// `2026-11-23 11:00` and `11:00:00.5`.
    ///
    /// # Errors
    ///
    /// It is none of these, or before 1970.
    pub fn parse(&self, text: &str) -> Result<WallTime, ParseError> {
        let failed = |reason: &str| ParseError { text: text.to_owned(), reason: reason.to_owned() };
        let at = |time: Timestamp| {
            u64::try_from(time.as_nanosecond())
                .map(WallTime::At)
                .map_err(|_| failed("is before 1970, or after 2554"))
        };
        if let Ok(time) = text.parse::<Timestamp>() {
            return at(time);
        }
        // A text with a date can also be parsed as a time of day.
        let has_date = text.parse::<civil::DateTime>();
        if let (Err(_), Ok(time)) = (&has_date, text.parse::<civil::Time>()) {
            return Ok(WallTime::OfDay(time, self.clone()));
        }
        match has_date {
            Ok(time) => match self.zone.to_zoned(time) {
                Ok(zoned) => at(zoned.timestamp()),
                Err(_) => Err(failed("is not a time in this time zone")),
            },
            Err(_) => Err(failed(
                "is not a time; write a time since the beginning of the trace, such as 1.5ms, or a calendar time, such as \
                 2026-11-23T10:00:00.5Z or 10:00:00.5",
            )),
        }
    }

    fn zoned(&self, realtime_ns: u64) -> Option<Zoned> {
        let time = Timestamp::from_nanosecond(realtime_ns.into()).ok()?;
        Some(time.to_zoned(self.zone.clone()))
    }

    /// Date, time and offset: `2026-11-23T11:00:00.123456789+01:00`; with `Z` in UTC.
    #[must_use]
    pub fn stamp(&self, realtime_ns: u64) -> String {
        let Some(time) = self.zoned(realtime_ns) else { return "an unknown time".to_owned() };
        let mut text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        // Writing to a string doesn't fail.
        let _ = write!(text, ".{:09}", realtime_ns % SECOND);
        text.push_str(&offset(time.offset()));
        text
    }

    /// Date and time for names of files: `20261123-110000`.
    #[must_use]
    pub fn file_name(&self, time: std::time::SystemTime) -> String {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let zoned = self.zoned(u64::try_from(since.as_nanos()).unwrap_or(0));
        zoned.map_or_else(|| "0".to_owned(), |time| time.strftime("%Y%m%d-%H%M%S").to_string())
    }

    /// Time of day to the microsecond: `11:00:00.123456`.
    #[must_use]
    pub fn time_of_day(&self, realtime_ns: u64) -> String {
        let Some(time) = self.zoned(realtime_ns) else { return "an unknown time".to_owned() };
        format!("{}.{:06}", time.strftime("%H:%M:%S"), realtime_ns % SECOND / 1000)
    }

    /// Date and time to the second, and the zone: `2026-11-23 11:00:00 CET (+01:00)`.
    #[must_use]
    pub fn date(&self, realtime_ns: u64) -> String {
        let Some(time) = self.zoned(realtime_ns) else { return "an unknown time".to_owned() };
        let (name, offset) = (time.strftime("%Z").to_string(), offset(time.offset()));
        let zone = match (offset.as_str(), name.as_str()) {
            ("Z", _) => "UTC".to_owned(),
            (offset, name) if name.starts_with(['+', '-']) => offset.to_owned(),
            (offset, name) => format!("{name} ({offset})"),
        };
        format!("{} {zone}", time.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

/// `+01:00`, or `Z`.
fn offset(offset: Offset) -> String {
    let seconds = offset.seconds();
    if seconds == 0 {
        return "Z".to_owned();
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

impl WallTime {
    /// Nanoseconds since 1970: a time of day's first moment within `range`, or on its first day;
    /// `None` if the calendar has no such moment.
    #[must_use]
    pub fn realtime_ns(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let (time, calendar) = match self {
            WallTime::At(realtime_ns) => return Some(*realtime_ns),
            WallTime::OfDay(time, calendar) => (time, calendar),
        };
        let (begin, end) = (*range.start(), *range.end());
        let first = calendar.zoned(begin)?.date();
        let on = |date: civil::Date| {
            let zoned = calendar.zone.to_zoned(date.to_datetime(*time)).ok()?;
            u64::try_from(zoned.timestamp().as_nanosecond()).ok()
        };
        let mut dates = std::iter::successors(Some(first), |date| date.tomorrow().ok());
        let days = usize::try_from((end.saturating_sub(begin)) / DAY).unwrap_or(0).saturating_add(2);
        dates.by_ref().take(days).filter_map(on).find(|at| range.contains(at)).or_else(|| on(first))
    }
}

/// Displays times of one trace in a column, with as little of the date as necessary.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    calendar: Calendar,
    has_date: bool,
    has_offset: bool,
    /// As one word for programs, instead of columns.
    is_one_word: bool,
    /// Begin of the quarter of an hour that was shown last, in nanoseconds since 1970; its date and offset.
    quarter: u64,
    date: String,
    offset: String,
    offset_ns: i64,
}

impl Column {
    /// A column for times between two times.
    pub(crate) fn new(calendar: &Calendar, begin: u64, end: u64) -> Column {
        let (first, last) = (calendar.zoned(begin), calendar.zoned(end));
        let differ = |a: Option<civil::Date>, b: Option<civil::Date>| a != b;
        let date = |time: &Option<Zoned>| time.as_ref().map(Zoned::date);
        let shift = |time: &Option<Zoned>| time.as_ref().map(Zoned::offset);
        Column {
            calendar: calendar.clone(),
            has_date: differ(date(&first), date(&last)),
            has_offset: shift(&first) != shift(&last),
            is_one_word: false,
            quarter: u64::MAX,
            date: String::new(),
            offset: String::new(),
            offset_ns: 0,
        }
    }

    /// Date, time and offset of each time, as [`Calendar::stamp`].
    pub(crate) fn stamps(calendar: &Calendar) -> Column {
        Column { has_date: true, has_offset: true, is_one_word: true, ..Column::new(calendar, 0, 0) }
    }

    /// Width of a time in characters.
    pub(crate) fn width(&self) -> usize {
        18 + if self.has_date { 11 } else { 0 } + if self.has_offset { 6 } else { 0 }
    }

    /// Appends a time, given in nanoseconds since 1970.
    pub(crate) fn put(&mut self, bytes: &mut Vec<u8>, realtime_ns: u64) {
        let quarter = realtime_ns - realtime_ns % QUARTER;
        if quarter != self.quarter {
            self.quarter = quarter;
            let zoned = self.calendar.zoned(quarter);
            let shift = zoned.as_ref().map_or(Offset::UTC, Zoned::offset);
            self.offset_ns = i64::from(shift.seconds()) * SECOND.cast_signed();
            let format = if self.is_one_word { "%Y-%m-%dT" } else { "%Y-%m-%d " };
            self.date = zoned.map(|time| time.strftime(format).to_string()).unwrap_or_default();
            self.offset = offset(shift);
            if !self.is_one_word {
                self.offset = format!("{:<6}", self.offset);
            }
        }
        if self.has_date {
            bytes.extend_from_slice(self.date.as_bytes());
        }
        let of_day = realtime_ns.saturating_add_signed(self.offset_ns) % DAY;
        let (seconds, places) = (of_day / SECOND, of_day % SECOND);
        for (number, separator) in [(seconds / 3600, b':'), (seconds / 60 % 60, b':'), (seconds % 60, b'.')] {
            bytes.extend_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8, separator]);
        }
        // A leading one keeps the zeros of the decimals.
        bytes.extend_from_slice(&itoa::Buffer::new().format(SECOND + places).as_bytes()[1..]);
        if self.has_offset {
            bytes.extend_from_slice(self.offset.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Calendar {
        // In the syntax of TZ, which works without a time zone database.
        Calendar { zone: TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap() }
    }

    fn shown(column: &mut Column, realtime_ns: u64) -> String {
        let mut bytes = Vec::new();
        column.put(&mut bytes, realtime_ns);
        assert_eq!(bytes.len(), column.width());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn moments_are_shown_and_read_again() {
        let at = 1_795_428_000_123_456_789;
        for (calendar, stamp, date) in [
            (Calendar::utc(), "2026-11-23T10:00:00.123456789Z", "2026-11-23 10:00:00 UTC"),
            (berlin(), "2026-11-23T11:00:00.123456789+01:00", "2026-11-23 11:00:00 CET (+01:00)"),
        ] {
            assert_eq!(calendar.stamp(at), stamp);
            assert_eq!(calendar.date(at), date);
            assert_eq!(calendar.parse(stamp).unwrap(), WallTime::At(at));
        }
        let local = |text: &str| berlin().parse(text).unwrap();
        assert_eq!(local("2026-11-23 11:00:00.123456789"), WallTime::At(at));
        assert!(
            matches!(local("11:00:00.5"), WallTime::OfDay(..))
                && matches!(local("11:00"), WallTime::OfDay(..))
        );
        for wrong in ["yesterday", "25:00:00", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "10:00:00x"] {
            assert!(berlin().parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_tell_moments_apart() {
        let at = 1_795_428_000_123_456_789;
        let mut day = Column::new(&berlin(), at, at + SECOND);
        assert_eq!(shown(&mut day, at), "11:00:00.123456789");
        let mut stamp = Vec::new();
        Column::stamps(&berlin()).put(&mut stamp, at);
        assert_eq!(String::from_utf8(stamp).unwrap(), berlin().stamp(at));
        assert_eq!(shown(&mut day, at + 59 * 60 * SECOND), "11:59:00.123456789");
        let mut days = Column::new(&berlin(), at, at + DAY);
        assert_eq!(shown(&mut days, at + 13 * 3600 * SECOND), "2026-11-24 00:00:00.123456789");
        // On 2026-10-25, 03:00 becomes 02:00 again.
        let change = 1_792_890_000 * SECOND;
        let mut night = Column::new(&berlin(), change - 1, change + 1);
        assert_eq!(shown(&mut night, change - 1), "02:59:59.999999999+02:00");
        assert_eq!(shown(&mut night, change), "02:00:00.000000000+01:00");
    }
}
