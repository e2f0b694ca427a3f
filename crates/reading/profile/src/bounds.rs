//! Lower and upper bounds of calls' times, where events may have no times of their own.
//!
//! Events without a time lie between two moments, a *stretch*. In a stretch, a call that begins,
//! ends or calls another one has taken anything from nothing to all of it. So has a group of calls,
//! however many there were: a stretch counts once.

use everycall_calls::{Bars, GapKind, Interval, TimelineEvent, Unstamped};

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
    #[must_use]
    pub fn is_none(&self) -> bool {
        (self.total, self.own) == (Bars::default(), Bars::default())
    }

    /// All numbers, for files.
    #[must_use]
    pub fn numbers(&self) -> [u64; 6] {
        let SumBounds { total, own, .. } = self;
        [total.low, total.value, total.high, own.low, own.value, own.high]
    }

    /// The bounds with these [`SumBounds::numbers`].
    #[must_use]
    pub fn of_numbers(numbers: [u64; 6]) -> SumBounds {
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

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_calls::{Begin, End, EndKind, Location};

    /// A random number below `end`.
    fn below(state: &mut u64, end: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) % end
    }

    fn location(function: u64) -> Location {
        Location { module: 0, image_address: function }
    }

    /// Bounds of a function's sums, computed event by event.
    fn sums(events: &[TimelineEvent], function: u64) -> SumBounds {
        let (mut bounding, mut open, mut sums) = (Bounding::new(0), 0, SumBounds::default());
        let mut inner = vec![0];
        for event in events {
            let bounds = bounding.event(event);
            match event {
                TimelineEvent::Begin(begin) => {
                    inner.push(0);
                    open += u64::from(begin.location == location(function));
                }
                TimelineEvent::End(end) => {
                    let mut bounds = bounds.unwrap();
                    let took = end.end_ns - end.start_ns;
                    bounds.own.value = took - inner.pop().unwrap();
                    *inner.last_mut().unwrap() += took;
                    if end.location == location(function) {
                        open -= 1;
                        sums.add_call(&bounds, open == 0);
                    }
                }
                _ => {}
            }
        }
        sums
    }

    /// Calls by chance: as they were, and with times left out of them.
    fn calls(seed: u64) -> [Vec<TimelineEvent>; 2] {
        let mut state = seed;
        let (mut now, mut open) = (0, Vec::new());
        // When, which function, and whether it is an entry.
        let mut all = Vec::new();
        for _ in 0..400 {
            now += 1 + below(&mut state, 100);
            if open.is_empty() || open.len() < 8 && below(&mut state, 2) == 0 {
                let function = below(&mut state, 4);
                open.push(function);
                all.push((now, function, true));
            } else if let Some(function) = open.pop() {
                all.push((now, function, false));
            }
        }
        while let Some(function) = open.pop() {
            now += 1;
            all.push((now, function, false));
        }
        let exact: Vec<u64> = all.iter().map(|(at, ..)| *at).collect();
        let is_stamped: Vec<bool> = (0..all.len())
            .map(|event| event == 0 || event + 1 == all.len() || below(&mut state, 6) == 0)
            .collect();
        let made = |left_out: bool| {
            let (mut events, mut stack, mut stamp, mut placed) = (Vec::new(), Vec::new(), 0, 0);
            for (number, (at, function, is_entry)) in all.iter().enumerate() {
                let mut at_ns = *at;
                if left_out && !is_stamped[number] {
                    let until_ns = exact[(number..).find(|event| is_stamped[*event]).unwrap()];
                    at_ns = (placed + 1).min(until_ns);
                    events.push(TimelineEvent::Unstamped(Unstamped { at_ns, from_ns: stamp, until_ns }));
                } else {
                    stamp = at_ns;
                }
                placed = at_ns;
                let location = location(*function);
                if *is_entry {
                    let depth = stack.len() as u32;
                    stack.push(at_ns);
                    let begin = Begin { depth, location, start_ns: at_ns, ..Begin::default() };
                    events.push(TimelineEvent::Begin(begin));
                } else {
                    let start_ns = stack.pop().unwrap();
                    let (depth, how) = (stack.len() as u32, EndKind::Returned);
                    let end = End { depth, location, start_ns, end_ns: at_ns, how, start_cut: false };
                    events.push(TimelineEvent::End(end));
                }
            }
            events
        };
        [made(false), made(true)]
    }

    #[test]
    fn sums_are_within_their_bounds() {
        for seed in 1..200 {
            let [exact, left_out] = calls(seed);
            for function in 0..4 {
                let (was, found) = (sums(&exact, function), sums(&left_out, function));
                assert!(was.total.is_exact() && was.own.is_exact());
                for (was, found) in [(was.total, found.total), (was.own, found.own)] {
                    assert!(found.low <= was.value && was.value <= found.high, "{seed}: {was:?} {found:?}");
                    assert!(found.low <= found.value && found.value <= found.high, "{seed}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn many_calls_in_a_stretch_take_no_longer_than_it() {
        let mut events = Vec::new();
        let call = |start_ns: u64, depth: u32| Begin {
            depth,
            location: location(u64::from(depth)),
            start_ns,
            ..Begin::default()
        };
        let end = |start_ns, end_ns: u64, depth: u32| call(start_ns, depth).ended(end_ns, EndKind::Returned);
        events.push(TimelineEvent::Begin(call(0, 0)));
        for at_ns in 1..=500 {
            events.push(TimelineEvent::Unstamped(Unstamped { at_ns: 2 * at_ns, from_ns: 0, until_ns: 5000 }));
            events.push(TimelineEvent::Begin(call(2 * at_ns, 1)));
            let end_ns = 2 * at_ns + 1;
            events.push(TimelineEvent::Unstamped(Unstamped { at_ns: end_ns, from_ns: 0, until_ns: 5000 }));
            events.push(TimelineEvent::End(end(2 * at_ns, end_ns, 1)));
        }
        events.push(TimelineEvent::End(end(0, 5000, 0)));
        let (inner, outer) = (sums(&events, 1), sums(&events, 0));
        assert_eq!(inner.total, Bars { low: 0, value: 500, high: 5000 });
        assert_eq!(outer.total, Bars::exact(5000));
        assert_eq!(outer.own, Bars { low: 0, value: 4500, high: 5000 });
    }
}
