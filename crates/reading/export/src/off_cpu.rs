//! Times when a thread was off the CPU, in order among its events.

use std::borrow::Cow;

use everycall_timeline::{StateSpan, StateTimes, ThreadState, ThreadStates, system_call_name};

/// A time when a thread was off the CPU, or when nothing is known of it because the kernel's events
/// were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpu {
    pub(crate) at_ns: u64,
    pub(crate) until_ns: u64,
    /// How long it was blocked and runnable, one after the other.
    pub(crate) times: StateTimes,
    /// How long it was off the CPU at most, with what is unknown around that time; `None` if it is
    /// known.
    pub(crate) at_most_ns: Option<u64>,
    /// The thread that woke it last.
    pub(crate) woken_by: Option<u32>,
    /// The system call in which it was blocked.
    pub(crate) blocked_in: Option<&'static str>,
}

impl OffCpu {
    /// The states that it was in, with their times.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let StateTimes { blocked, runnable, unknown, .. } = self.times;
        let parts = [("blocked", blocked), ("runnable", runnable), ("unknown", unknown)];
        parts.into_iter().filter(|(_, time)| *time > 0)
    }

    /// The states that it was in, in words, with the system call that it waited in, and their
    /// times.
    pub(crate) fn parts_in_words(&self) -> impl Iterator<Item = (Cow<'static, str>, u64)> + use<> {
        let call = self.blocked_in;
        self.parts().map(move |(state, time)| match call {
            Some(call) if state == "blocked" => (Cow::Owned(format!("{state} in {call}")), time),
            _ => (Cow::Borrowed(state), time),
        })
    }
}

/// Walks through the states of a thread as its events come.
pub(crate) struct Walk<'s> {
    states: Option<&'s ThreadStates>,
    /// The span before those.
    before: Option<&'s StateSpan>,
    spans: std::slice::Iter<'s, StateSpan>,
    /// The next one.
    next: Option<OffCpu>,
    /// The end of the trace: a thread may be off the CPU beyond it.
    end: u64,
}

impl<'s> Walk<'s> {
    /// From `since` on, in a trace that ends at `end`.
    pub(crate) fn new(states: Option<&'s ThreadStates>, since: u64, end: u64) -> Walk<'s> {
        let spans = states.map_or(&[][..], ThreadStates::spans);
        let first = spans.partition_point(|span| span.start < since);
        let before = first.checked_sub(1).and_then(|before| spans.get(before));
        let spans = spans.get(first..).unwrap_or_default().iter();
        let mut walk = Walk { states, before, spans, next: None, end };
        walk.next = walk.joined();
        walk
    }

    /// Whether there is none any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The next time off the CPU that began before `at`.
    #[inline]
    pub(crate) fn before(&mut self, at: u64) -> Option<OffCpu> {
        let next = self.next.filter(|next| next.at_ns < at)?;
        self.next = self.joined();
        Some(next)
    }

    fn joined(&mut self) -> Option<OffCpu> {
        match self.states {
            Some(states) if states.is_sampled() => self.sampled(states),
            _ => self.told(),
        }
    }

    /// The next span in which samples show that the thread waited, or an unknown one, apart from
    /// the times in which such a span began and ended.
    fn sampled(&mut self, states: &ThreadStates) -> Option<OffCpu> {
        let waited = |span: Option<&StateSpan>| {
            let span = span.filter(|span| matches!(span.state, ThreadState::Blocked(_)))?;
            Some(states.around(span.start, span.end))
        };
        loop {
            let span = self.spans.next()?;
            let (before, next) = (self.before.replace(span), self.spans.as_slice().first());
            let (mut at_ns, mut until_ns) = (span.start, span.end);
            let (from, to) = match span.state {
                ThreadState::Running | ThreadState::Runnable => continue,
                ThreadState::Blocked(_) => states.around(span.start, span.end),
                ThreadState::Unknown => {
                    at_ns = waited(before).map_or(at_ns, |(_, to)| to.max(at_ns));
                    until_ns = waited(next).map_or(until_ns, |(from, _)| from.min(until_ns));
                    (at_ns, until_ns)
                }
            };
            until_ns = until_ns.min(self.end);
            if at_ns < until_ns {
                let mut times = StateTimes::default();
                times.add(span.state, until_ns - at_ns);
                let blocked_in = span.blocked_in.and_then(system_call_name);
                let at_most_ns = Some(states.times(from, to.min(self.end)).off_at_most());
                return Some(OffCpu { at_ns, until_ns, times, at_most_ns, woken_by: None, blocked_in });
            }
        }
    }

    /// Spans that follow each other without running in between are one.
    fn told(&mut self) -> Option<OffCpu> {
        let first = self.spans.find(|span| span.state != ThreadState::Running)?;
        let within = |span: &StateSpan| span.end.min(self.end).saturating_sub(span.start);
        let (mut until_ns, mut woken_by, mut blocked_in) = (first.end, first.woken_by, first.blocked_in);
        let mut times = StateTimes::default();
        times.add(first.state, within(first));
        while let Some(span) = self.spans.as_slice().first()
            && span.start == until_ns
            && span.state != ThreadState::Running
        {
            times.add(span.state, within(span));
            until_ns = span.end;
            woken_by = span.woken_by.or(woken_by);
            blocked_in = blocked_in.or(span.blocked_in);
            self.spans.next();
        }
        let until_ns = until_ns.min(self.end).max(first.start);
        let blocked_in = blocked_in.and_then(system_call_name);
        Some(OffCpu { at_ns: first.start, until_ns, times, at_most_ns: None, woken_by, blocked_in })
    }
}

#[cfg(test)]
mod tests {
    use everycall_timeline::Wait;

    use super::*;

    #[test]
    fn what_follows_without_running_is_one() {
        let span = |start, end, state, woken_by| StateSpan {
            start,
            end,
            state,
            cpu: Some(0),
            woken_by,
            blocked_in: (start == 20).then_some(202),
        };
        let blocked = ThreadState::Blocked(Wait::Any);
        let states = ThreadStates::new(vec![
            span(10, 20, ThreadState::Running, None),
            span(20, 50, blocked, None),
            span(50, 55, ThreadState::Runnable, Some(7)),
            span(55, 60, ThreadState::Running, None),
            span(60, 70, ThreadState::Unknown, None),
            span(75, u64::MAX, blocked, None),
        ]);
        let mut walk = Walk::new(Some(&states), 0, 100);
        assert_eq!(walk.before(20), None);
        let times = StateTimes { blocked: 30, runnable: 5, ..StateTimes::default() };
        assert_eq!(
            walk.before(21),
            Some(OffCpu {
                at_ns: 20,
                until_ns: 55,
                times,
                at_most_ns: None,
                woken_by: Some(7),
                blocked_in: Some("futex")
            })
        );
        let all = std::iter::from_fn(|| walk.before(u64::MAX)).map(|off| (off.at_ns, off.until_ns));
        assert_eq!(all.collect::<Vec<_>>(), [(60, 70), (75, 100)]);
        assert_eq!(
            Walk::new(Some(&states), 61, 70).before(u64::MAX).map(|off| (off.at_ns, off.until_ns)),
            Some((75, 75))
        );
        assert_eq!(Walk::new(None, 0, 100).before(u64::MAX), None);
    }

    /// Samples of a thread that runs, waits, and is switched, as a recording has them.
    #[test]
    fn what_samples_tell_has_bounds() {
        use everycall_timeline::Trace;
        let bytes =
            everycall_synth::File::of_scheduled(&everycall_synth::basic(), 4, &everycall_synth::samples());
        let file = everycall_reader::TraceFile::open(&bytes[..]).unwrap();
        let trace = Trace::open(file).unwrap();
        let states = trace.states().unwrap();
        let all = |tid| {
            let mut walk = Walk::new(states.thread(100, tid), 0, 100_000);
            let all = std::iter::from_fn(|| walk.before(u64::MAX));
            all.map(|off| (off.at_ns, off.until_ns, off.times.blocked, off.at_most_ns)).collect::<Vec<_>>()
        };
        // Waits from the first sample to the third, and is on a CPU again by the fourth.
        assert_eq!(all(100), [(1_000, 7_000, 6_000, Some(11_000))]);
        // Ran up to the second sample; then there are 8,000 ns, of which it may have run 1,000.
        assert_eq!(all(101), [(4_000, 12_000, 0, Some(8_000))]);
    }
}
