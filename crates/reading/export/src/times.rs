//! Times as outputs show them.

use std::fmt;

use everycall_timeline::WallClock;
use everycall_units::{Count, Duration};

use crate::calendar::{Calendar, Column};
use crate::json::put_number;
use crate::source::{Source, Times};

/// The accuracy of calendar times, as `exact to 83 ns`.
#[must_use]
pub fn wall_accuracy(wall: &WallClock) -> String {
    let mut text = format!("exact to {}", Duration { ns: wall.error_ns() });
    if wall.drift_ns() > wall.error_ns() {
        text += &format!(
            " where the clock was read, which drifted by {} in between",
            Duration { ns: wall.drift_ns() }
        );
    }
    if wall.set_by_ns() > 0 {
        text += &format!("; the clock was set by {} meanwhile", Duration { ns: wall.set_by_ns() });
    }
    text
}

/// Times in the left column of a page.
pub(crate) struct Moments<'a> {
    form: Form,
    width: usize,
    realtime_ns: &'a dyn Fn(u64) -> u64,
}

enum Form {
    Milliseconds,
    Wall(Column),
    Ticks,
}

impl<'a> Moments<'a> {
    /// For times of `source`, which `realtime_ns` converts.
    pub(crate) fn new(source: &impl Source, realtime_ns: &'a dyn Fn(u64) -> u64) -> Moments<'a> {
        let end = source.end_ns();
        let (form, width) = match source.times() {
            Times::Trace => (Form::Milliseconds, (end / 1_000_000).to_string().len() + 10),
            Times::Raw(_) => (Form::Ticks, end.to_string().len()),
            Times::Wall(calendar) => {
                let column = Column::new(calendar, realtime_ns(0), realtime_ns(end));
                let width = column.width();
                (Form::Wall(column), width)
            }
        };
        Moments { form, width, realtime_ns }
    }

    /// Width of the column in characters.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Appends a time.
    pub(crate) fn put(&mut self, bytes: &mut Vec<u8>, at: u64) {
        match &mut self.form {
            Form::Milliseconds => {
                put_milliseconds(bytes, at, self.width - 3);
                bytes.extend_from_slice(b" ms");
            }
            Form::Wall(column) => column.put(bytes, (self.realtime_ns)(at)),
            Form::Ticks => {
                let mut number = itoa::Buffer::new();
                let number = number.format(at);
                bytes.resize(bytes.len() + self.width.saturating_sub(number.len()), b' ');
                bytes.extend_from_slice(number.as_bytes());
            }
        }
    }

    /// How durations are shown.
    pub(crate) fn length(&self, length: u64) -> Length {
        match self.form {
            Form::Ticks => Length::Ticks(length),
            _ => Length::Time(length),
        }
    }
}

/// A duration.
#[derive(Clone, Copy)]
pub(crate) enum Length {
    Time(u64),
    Ticks(u64),
}

impl fmt::Display for Length {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Length::Time(ns) => Duration { ns }.fmt(out),
            Length::Ticks(ticks) => write!(out, "{} ticks", Count(ticks)),
        }
    }
}

/// Appends nanoseconds as milliseconds with six decimals, right-aligned in at least `width`
/// columns.
fn put_milliseconds(bytes: &mut Vec<u8>, ns: u64, width: usize) {
    // A leading one keeps the zeros of the decimals.
    let (mut whole, mut places) = (itoa::Buffer::new(), itoa::Buffer::new());
    let whole = whole.format(ns / 1_000_000);
    bytes.resize(bytes.len() + width.saturating_sub(whole.len() + 7), b' ');
    bytes.extend_from_slice(whole.as_bytes());
    bytes.push(b'.');
    bytes.extend_from_slice(&places.format(1_000_000 + ns % 1_000_000).as_bytes()[1..]);
}

/// Times as members of JSON objects.
#[derive(Default)]
pub(crate) struct JsonMoments {
    stamps: Option<Column>,
}

impl JsonMoments {
    /// Members for an event with a duration: `start_ns` and `dur_ns`, and those that `--clock`
    /// adds.
    #[inline]
    pub(crate) fn put_call(&mut self, bytes: &mut Vec<u8>, source: &impl Source, start: u64, end: u64) {
        let (start_ns, length_ns) = match source.times() {
            Times::Raw(clock) => (clock.ns(start), clock.ns(end).saturating_sub(clock.ns(start))),
            _ => (start, end.saturating_sub(start)),
        };
        bytes.extend_from_slice(b",\"start_ns\":");
        put_number(bytes, start_ns);
        bytes.extend_from_slice(b",\"dur_ns\":");
        put_number(bytes, length_ns);
        match source.times() {
            Times::Trace => {}
            Times::Wall(calendar) => self.put_wall(bytes, source, calendar, "start", start),
            Times::Raw(_) => {
                bytes.extend_from_slice(b",\"start_ticks\":");
                put_number(bytes, start);
                bytes.extend_from_slice(b",\"dur_ticks\":");
                put_number(bytes, end.saturating_sub(start));
            }
        }
    }

    /// Members for one time: `at_ns`, and those that `--clock` adds.
    pub(crate) fn put_at(&mut self, bytes: &mut Vec<u8>, source: &impl Source, at: u64) {
        bytes.extend_from_slice(b",\"at_ns\":");
        match source.times() {
            Times::Trace => put_number(bytes, at),
            Times::Wall(calendar) => {
                put_number(bytes, at);
                self.put_wall(bytes, source, calendar, "at", at);
            }
            Times::Raw(clock) => {
                put_number(bytes, clock.ns(at));
                bytes.extend_from_slice(b",\"at_ticks\":");
                put_number(bytes, at);
            }
        }
    }

    /// Nanoseconds between two times.
    pub(crate) fn length_ns(source: &impl Source, from: u64, to: u64) -> u64 {
        match source.times() {
            Times::Raw(clock) => clock.ns(to).saturating_sub(clock.ns(from)),
            _ => to.saturating_sub(from),
        }
    }

    fn put_wall(
        &mut self,
        bytes: &mut Vec<u8>,
        source: &impl Source,
        calendar: &Calendar,
        what: &str,
        at: u64,
    ) {
        let Some(realtime_ns) = source.realtime_ns(at) else { return };
        for part in [",\"", what, "_realtime_ns\":"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        put_number(bytes, realtime_ns);
        for part in [",\"", what, "_time\":\""] {
            bytes.extend_from_slice(part.as_bytes());
        }
        self.stamps.get_or_insert_with(|| Column::stamps(calendar)).put(bytes, realtime_ns);
        bytes.push(b'"');
    }
}
