//! Lower and upper bounds for events without a timestamp.

use crate::event::{Begin, End, TimelineEvent, Unstamped};

/// A time with its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bars {
    /// At least, in nanoseconds.
    pub low: u64,
    /// The shown value, in nanoseconds.
    pub value: u64,
    /// At most, in nanoseconds.
    pub high: u64,
}

impl Bars {
    /// A time that is known.
    #[must_use]
    pub fn exact(value: u64) -> Bars {
        Bars { low: value, value, high: value }
    }

    /// Whether it is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// How far it may be from what is shown.
    #[must_use]
    pub fn error(&self) -> u64 {
        self.value.saturating_sub(self.low).max(self.high.saturating_sub(self.value))
    }
}

/// When something happened at the earliest and at the latest, in nanoseconds since the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// At the earliest.
    pub from_ns: u64,
    /// At the latest.
    pub until_ns: u64,
}

impl Interval {
    /// Exactly then.
    #[must_use]
    pub fn at(at_ns: u64) -> Interval {
        Interval { from_ns: at_ns, until_ns: at_ns }
    }

    /// Whether the moment is known.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.from_ns == self.until_ns
    }

    /// How long it took from here to a later moment, which is shown as `value` nanoseconds.
    #[must_use]
    pub fn to(&self, end: Interval, value: u64) -> Bars {
        let low = end.from_ns.saturating_sub(self.until_ns).min(value);
        Bars { low, value, high: end.until_ns.saturating_sub(self.from_ns).max(value) }
    }
}

/// Follows a thread's timeline, and bounds the durations of calls whose begin or end isn't known
/// exactly. The events must not be filtered.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    /// Bounds of the events at the current time.
    now: Option<Unstamped>,
    /// The open calls whose begin isn't known exactly, outermost first: their depth, and when.
    begun: Vec<(u32, Interval)>,
}

impl Intervals {
    /// Whether nothing but exact times came so far, or is open.
    #[must_use]
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.now.is_none() && self.begun.is_empty()
    }

    /// Takes the next event. Of a call that ends, and whose duration isn't known exactly, returns
    /// that.
    #[inline]
    pub fn event(&mut self, event: &TimelineEvent) -> Option<Bars> {
        if self.is_exact() && !matches!(event, TimelineEvent::Unstamped(_)) {
            return None;
        }
        self.bounded(event)
    }

    #[inline(never)]
    fn bounded(&mut self, event: &TimelineEvent) -> Option<Bars> {
        match event {
            TimelineEvent::Unstamped(unstamped) => self.now = Some(*unstamped),
            TimelineEvent::Begin(Begin { depth, start_ns, cut: false, .. }) => {
                let began = self.at(*start_ns);
                if !began.is_exact() {
                    self.begun.push((*depth, began));
                }
            }
            TimelineEvent::End(End { depth, start_ns, end_ns, .. }) => {
                let ended = self.at(*end_ns);
                let began = self.begun.pop_if(|(of, _)| of == depth);
                let began = began.map_or(Interval::at(*start_ns), |(_, began)| began);
                let bars = began.to(ended, end_ns.saturating_sub(*start_ns));
                return Some(bars).filter(|bars| !bars.is_exact());
            }
            _ => {}
        }
        None
    }

    /// When an event happened that is placed at `at_ns`, after it or what precedes it was taken.
    #[must_use]
    pub fn at(&self, at_ns: u64) -> Interval {
        match self.now {
            Some(Unstamped { from_ns, until_ns, at_ns: at }) if at == at_ns => Interval { from_ns, until_ns },
            _ => Interval::at(at_ns),
        }
    }
}
