//! What calls' times are at least and at most, where events may have no times of their own.
//!
//! Events without a time lie between two moments, a *stretch*. In a stretch, a call that begins,
//! ends or calls another one has taken anything from nothing to all of it. So has a group of calls,
//! however many there were: a stretch counts once.

use everycall_timeline::{Bars, GapKind, Interval, TimelineEvent, Unstamped};

/// The time between two moments that are known, of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    thread: usize,
    interval: Interval,
}

impl Stretch {
    fn length(self) -> u64 {
        self.interval.until_ns.saturating_sub(self.interval.from_ns)
    }
}

/// Bounds of a call that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallBounds {
    pub(crate) total: Bars,
    /// Without callees.
    pub(crate) own: Bars,
    /// The stretches in which it began and ended, where the moment isn't known.
    ends: [Option<Stretch>; 2],
}

/// Times of several calls, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumBounds {
    pub(crate) total: Bars,
    pub(crate) own: Bars,
    /// The stretches that the last call has added to the largest times.
    last_total: [Option<Stretch>; 2],
    last_own: [Option<Stretch>; 2],
}

impl SumBounds {
    /// Adds a call. `has_total`: its whole time counts as well.
    pub(crate) fn add_call(&mut self, call: &CallBounds, has_total: bool) {
        add(&mut self.own, &mut self.last_own, call.own, call.ends);
        if has_total {
            add(&mut self.total, &mut self.last_total, call.total, call.ends);
        }
    }

    /// Adds the sums of other threads or runs.
    pub(crate) fn add(&mut self, other: &SumBounds) {
        add(&mut self.own, &mut self.last_own, other.own, [None; 2]);
        add(&mut self.total, &mut self.last_total, other.total, [None; 2]);
    }

    /// Whether it has any calls.
    pub(crate) fn is_none(&self) -> bool {
        (self.total, self.own) == (Bars::default(), Bars::default())
    }

    pub(crate) fn numbers(&self) -> [u64; 6] {
        let SumBounds { total, own, .. } = self;
        [total.low, total.value, total.high, own.low, own.value, own.high]
    }

    pub(crate) fn of_numbers(numbers: [u64; 6]) -> SumBounds {
        let [low, value, high, own_low, own_value, own_high] = numbers;
        let own = Bars { low: own_low, value: own_value, high: own_high };
        SumBounds { total: Bars { low, value, high }, own, ..SumBounds::default() }
    }
}

fn add(sum: &mut Bars, last: &mut [Option<Stretch>; 2], bars: Bars, ends: [Option<Stretch>; 2]) {
    let [began, ended] = ends;
    let counted = [began, ended.filter(|_| ended != began)].into_iter().flatten();
    let counted = counted.filter(|stretch| last.contains(&Some(*stretch))).map(Stretch::length);
    sum.low = sum.low.saturating_add(bars.low);
    sum.value = sum.value.saturating_add(bars.value);
    sum.high = sum.high.saturating_add(bars.high.saturating_sub(counted.sum()));
    *last = ends;
}

/// `all`, of which `part` has bounds.
pub(crate) fn with_bounds(all: u64, part: Bars) -> Bars {
    let exact = all.saturating_sub(part.value);
    let (low, high) = (exact.saturating_add(part.low), exact.saturating_add(part.high));
    Bars { low: low.min(all), value: all, high: high.max(all) }
}

/// Goes along with the events of a thread.
#[derive(Debug)]
pub(crate) struct Bounding {
    thread: usize,
    now: Option<Unstamped>,
    /// When the last event happened.
    last: Interval,
    open: Vec<Open>,
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Open {
    began: Interval,
    /// Without callees, so far.
    own_low: u64,
    own_high: u64,
    /// The last stretch in `own_high`.
    last: Option<Interval>,
}

impl Open {
    /// It was the innermost call from one moment to another.
    fn was_innermost(&mut self, from: Interval, to: Interval) {
        let known = to.from_ns.saturating_sub(from.until_ns);
        self.own_low += known;
        self.own_high += known;
        for stretch in [from, to].into_iter().filter(|moment| !moment.is_exact()) {
            if self.last.replace(stretch) != Some(stretch) {
                self.own_high += stretch.until_ns - stretch.from_ns;
            }
        }
    }
}

impl Bounding {
    pub(crate) fn new(thread: usize) -> Bounding {
        Bounding { thread, now: None, last: Interval::default(), open: Vec::new() }
    }

    /// A call was open before the first event, and began then.
    pub(crate) fn enter(&mut self, start_ns: u64) {
        self.begin(Interval::at(start_ns));
    }

    /// Takes the next event; returns the bounds of the call that it ends. Those of the time without
    /// callees have no value yet.
    pub(crate) fn event(&mut self, event: &TimelineEvent) -> Option<CallBounds> {
        match event {
            TimelineEvent::Unstamped(unstamped) => self.now = Some(*unstamped),
            TimelineEvent::Begin(begin) if begin.cut => self.begin(Interval::at(begin.start_ns)),
            TimelineEvent::Begin(begin) => self.begin(self.at(begin.start_ns)),
            TimelineEvent::End(end) => {
                let ended = self.at(end.end_ns);
                self.reach(ended);
                let open = self.open.pop()?;
                let total = open.began.to(ended, end.end_ns.saturating_sub(end.start_ns));
                let own = Bars { low: open.own_low, value: 0, high: open.own_high };
                let stretch = |moment: Interval| {
                    (!moment.is_exact()).then_some(Stretch { thread: self.thread, interval: moment })
                };
                return Some(CallBounds { total, own, ends: [open.began, ended].map(stretch) });
            }
            // The thread ran another stack meanwhile.
            TimelineEvent::Gap(gap) if gap.why == GapKind::Suspended => {
                self.reach(Interval::at(gap.at_ns));
                self.last = Interval::at(gap.until_ns);
            }
            _ => {}
        }
        None
    }

    fn begin(&mut self, began: Interval) {
        self.reach(began);
        self.open.push(Open { began, own_low: 0, own_high: 0, last: None });
    }

    fn reach(&mut self, moment: Interval) {
        let last = std::mem::replace(&mut self.last, moment);
        if let Some(open) = self.open.last_mut() {
            open.was_innermost(last, moment);
        }
    }

    fn at(&self, at_ns: u64) -> Interval {
        match self.now {
            Some(Unstamped { at_ns: at, from_ns, until_ns }) if at == at_ns => Interval { from_ns, until_ns },
            _ => Interval::at(at_ns),
        }
    }
}
