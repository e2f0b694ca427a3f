//! Thread states: when each thread ran, could have run, and waited, as the kernel told it.

use std::collections::HashMap;

use everycall_format::sched::{SchedEvent, kind, state};
use everycall_reader::{Sched, SchedClock, SchedSource};

use crate::clock::Clock;
use crate::sampled_states::{self, Samples};

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadState {
    /// It ran on a CPU.
    Running,
    /// It could have run, and other threads did: it was preempted, or had been woken.
    Runnable,
    /// It waited.
    Blocked(Wait),
    /// The kernel's events of this time were lost, or contradict each other.
    Unknown,
}

/// In which way a thread waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The source can't tell.
    Any,
    /// A signal would have ended it.
    Interruptible,
    /// For a disk mostly; no signal would have ended it.
    Uninterruptible,
    /// A signal or a debugger had stopped the thread.
    Stopped,
}

/// A time in which a thread's state didn't change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpan {
    /// When it began, in the unit of the trace's times.
    pub start: u64,
    /// When it ended, in the same unit; [`u64::MAX`] if it lasted until the end of the recording.
    pub end: u64,
    /// The state.
    pub state: ThreadState,
    /// The CPU on which it ran, or from which it was taken; `None` if that isn't known.
    pub cpu: Option<u16>,
    /// The thread that woke it at [`StateSpan::start`]; `None` if the source can't tell, or none did.
    pub woken_by: Option<u32>,
}

/// How long a thread was in each state, in the unit of the trace's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// It ran.
    pub running: u64,
    /// It could have run, and others did.
    pub runnable: u64,
    /// It waited.
    pub blocked: u64,
    /// Nothing is known.
    pub unknown: u64,
    /// At most so much of the unknown time, it was off the CPU.
    pub perhaps_off: u64,
    /// How often it left its CPU because it waited.
    pub voluntary: u64,
    /// How often it left its CPU and could have run on.
    pub involuntary: u64,
}

impl StateTimes {
    /// How many fields there are.
    pub const FIELDS: usize = 7;

    /// All of them, in the order of the fields.
    #[must_use]
    pub fn all(&self) -> [u64; StateTimes::FIELDS] {
        let StateTimes { running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary } = *self;
        [running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary]
    }

    /// The same, to be changed.
    pub fn all_mut(&mut self) -> [&mut u64; StateTimes::FIELDS] {
        let StateTimes { running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary } = self;
        [running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary]
    }

    /// How often it left its CPU, because it waited and although it could have run on; `None` if no
    /// switch was told and some time is unknown.
    #[must_use]
    pub fn switches(&self) -> Option<[u64; 2]> {
        let switches = [self.voluntary, self.involuntary];
        (self.unknown == 0 || switches != [0; 2]).then_some(switches)
    }

    /// The longest time that it may have been off the CPU.
    #[must_use]
    pub fn off_at_most(&self) -> u64 {
        self.runnable.saturating_add(self.blocked).saturating_add(self.perhaps_off)
    }

    /// Adds other times.
    pub fn add_all(&mut self, other: &StateTimes) {
        self.all_mut().into_iter().zip(other.all()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// These times without those of a part of them.
    #[must_use]
    pub fn without(mut self, other: &StateTimes) -> StateTimes {
        // Each is a bound of its own.
        let perhaps_off = self.perhaps_off;
        self.all_mut()
            .into_iter()
            .zip(other.all())
            .for_each(|(rest, less)| *rest = rest.saturating_sub(less));
        self.perhaps_off = perhaps_off.min(self.unknown);
        self
    }

    /// Adds `time` to that of `state`.
    pub fn add(&mut self, state: ThreadState, time: u64) {
        let sum = match state {
            ThreadState::Running => &mut self.running,
            ThreadState::Runnable => &mut self.runnable,
            ThreadState::Blocked(_) => &mut self.blocked,
            ThreadState::Unknown => &mut self.unknown,
        };
        *sum = sum.saturating_add(time);
    }
}

/// The states of a thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadStates {
    spans: Vec<StateSpan>,
    /// By span: the times before it.
    before: Vec<StateTimes>,
    /// What the kernel counted, if that is all that is known.
    samples: Samples,
}

impl ThreadStates {
    /// Of spans that are in order and apart.
    #[must_use]
    pub fn new(spans: Vec<StateSpan>) -> ThreadStates {
        let mut sums = StateTimes::default();
        let mut ran = None;
        let before = spans.iter().map(|span| {
            // Only what ran leaves a CPU.
            if ran == Some(span.start) {
                match span.state {
                    ThreadState::Blocked(_) => sums.voluntary += 1,
                    ThreadState::Runnable => sums.involuntary += 1,
                    _ => {}
                }
            }
            ran = (span.state == ThreadState::Running).then_some(span.end);
            let before = sums;
            sums.add(span.state, span.end - span.start);
            before
        });
        ThreadStates { before: before.collect(), spans, samples: Samples::default() }
    }

    /// Of what the kernel counted.
    pub(crate) fn sampled(spans: Vec<StateSpan>, samples: Samples) -> ThreadStates {
        ThreadStates { samples, ..ThreadStates::new(spans) }
    }

    /// Its spans, in order and apart; where there is none, nothing is known.
    #[must_use]
    pub fn spans(&self) -> &[StateSpan] {
        &self.spans
    }

    /// Whether what the kernel counted is all that is known.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        !self.samples.is_empty()
    }

    /// When what filled this time began at the earliest, and ended at the latest, if the time is a
    /// span and the states [are sampled](ThreadStates::is_sampled).
    #[must_use]
    pub fn around(&self, from: u64, to: u64) -> (u64, u64) {
        self.samples.around(from, to)
    }

    /// The times of its states from `from` until `to`.
    #[must_use]
    pub fn times(&self, from: u64, to: u64) -> StateTimes {
        let (first, last) = (self.until(from), self.until(to));
        let mut times = StateTimes {
            running: last.running.saturating_sub(first.running),
            runnable: last.runnable.saturating_sub(first.runnable),
            blocked: last.blocked.saturating_sub(first.blocked),
            voluntary: last.voluntary.saturating_sub(first.voluntary),
            involuntary: last.involuntary.saturating_sub(first.involuntary),
            ..StateTimes::default()
        };
        let known = times.running.saturating_add(times.runnable).saturating_add(times.blocked);
        times.unknown = to.saturating_sub(from).saturating_sub(known);
        times.perhaps_off = times.unknown;
        if times.unknown > 0
            && let Some(off) = self.samples.off_at_most(from, to)
        {
            let known_off = times.runnable.saturating_add(times.blocked);
            times.perhaps_off = times.unknown.min(off.saturating_sub(known_off));
        }
        times
    }

    /// The times from the beginning until `at`.
    fn until(&self, at: u64) -> StateTimes {
        let behind = self.spans.partition_point(|span| span.start < at);
        let Some(index) = behind.checked_sub(1) else { return StateTimes::default() };
        let (Some(span), Some(before)) = (self.spans.get(index), self.before.get(index)) else {
            return StateTimes::default();
        };
        let mut times = *before;
        times.add(span.state, span.end.min(at) - span.start);
        times
    }
}

/// The states of all threads.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// By process id and thread id.
    threads: HashMap<(u32, u32), ThreadStates>,
    switches: u64,
    lost: u64,
    missing: u64,
    wake_ups_lost: u64,
}

impl States {
    /// The states that these events tell.
    #[must_use]
    pub fn new(sched: &Sched, clock: &Clock) -> States {
        let at = |time: u64| match sched.clock {
            SchedClock::Ticks => clock.ns(time),
            SchedClock::MonotonicRaw => clock.at_monotonic_raw(time),
        };
        let mut events = sched.events.clone();
        events.sort_by_key(|event| event.time);
        if sched.source == SchedSource::Schedstat {
            return States { threads: sampled_states::threads(&events, at), ..States::default() };
        }
        let mut open: HashMap<(u32, u32), StateSpan> = HashMap::new();
        let mut states = States::default();
        let mut threads: HashMap<(u32, u32), Vec<StateSpan>> = HashMap::new();
        let mut gaps = Vec::new();
        let mut newest = HashMap::new();
        let begin = events.first().map_or(0, |event| event.time);
        for event in &events {
            let before = newest.insert(event.cpu, event.time).unwrap_or(begin);
            let now = at(event.time);
            let key = (event.pid, event.tid);
            if event.kind == kind::LOST {
                states.lost = states.lost.saturating_add(event.other.into());
                gaps.push((event.cpu, at(before), now));
                continue;
            }
            if event.kind == kind::WAKEUPS_LOST {
                states.wake_ups_lost = states.wake_ups_lost.saturating_add(event.other.into());
                continue;
            }
            states.switches += u64::from(event.kind == kind::ON);
            let current = open.get(&key).map(|span| span.state);
            if event.kind == kind::WOKEN && !matches!(current, Some(ThreadState::Blocked(_))) {
                continue;
            }
            if let Some(mut span) = open.remove(&key)
                && span.start < now
            {
                // Kernels don't tell every switch: one before this event is missing.
                let ran = span.state == ThreadState::Running;
                if (event.kind == kind::ON && ran) || (event.kind == kind::OFF && !ran) {
                    states.missing += 1;
                    (span.state, span.woken_by) = (ThreadState::Unknown, None);
                }
                threads.entry(key).or_default().push(StateSpan { end: now, ..span });
            }
            if let Some(span) = begun(event, now) {
                open.insert(key, span);
            }
        }
        for (key, span) in open {
            threads.entry(key).or_default().push(span);
        }
        for spans in threads.values_mut() {
            gaps.iter().for_each(|gap| punch(spans, *gap));
        }
        states.threads = threads.into_iter().map(|(key, spans)| (key, ThreadStates::new(spans))).collect();
        states
    }

    /// The states of a thread; `None` if nothing is known. Threads that had the same id one after the
    /// other share them.
    #[must_use]
    pub fn thread(&self, pid: u32, tid: u32) -> Option<&ThreadStates> {
        self.threads.get(&(pid, tid))
    }

    /// How often a thread was put on a CPU.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Switches that the kernel didn't tell, by what it told next.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Wake-ups that the kernel had no room for.
    #[must_use]
    pub fn wake_ups_lost(&self) -> u64 {
        self.wake_ups_lost
    }

    /// Events that the kernel had no room for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The span that begins with `event`, if one does.
fn begun(event: &SchedEvent, now: u64) -> Option<StateSpan> {
    let state = match (event.kind, event.state) {
        (kind::ON, _) => ThreadState::Running,
        (kind::WOKEN, _) | (kind::OFF, state::RUNNABLE) => ThreadState::Runnable,
        (kind::OFF, state::BLOCKED) => ThreadState::Blocked(Wait::Any),
        (kind::OFF, state::SLEEPING) => ThreadState::Blocked(Wait::Interruptible),
        (kind::OFF, state::UNINTERRUPTIBLE) => ThreadState::Blocked(Wait::Uninterruptible),
        (kind::OFF, state::STOPPED) => ThreadState::Blocked(Wait::Stopped),
        _ => return None,
    };
    let woken_by = (event.kind == kind::WOKEN && event.other != 0).then_some(event.other);
    Some(StateSpan { start: now, end: u64::MAX, state, cpu: Some(event.cpu), woken_by })
}

/// Makes unknown what may have changed while events of a CPU were lost, until the next event that is
/// there: a thread that ran on another CPU meanwhile went on doing so.
fn punch(spans: &mut Vec<StateSpan>, (cpu, from, to): (u16, u64, u64)) {
    let first = spans.partition_point(|span| span.end <= from);
    let mut at = first;
    while let Some(span) = spans.get_mut(at).filter(|span| span.start < to) {
        let runs_elsewhere = span.state == ThreadState::Running && span.cpu != Some(cpu);
        if !runs_elsewhere && span.state != ThreadState::Unknown {
            let unknown = StateSpan {
                start: span.start.max(from),
                state: ThreadState::Unknown,
                cpu: None,
                woken_by: None,
                ..*span
            };
            span.end = unknown.start;
            if span.start == span.end {
                *span = unknown;
            } else {
                at += 1;
                spans.insert(at, unknown);
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use everycall_format::arena::ClockReading;
    use everycall_reader::SchedSource;

    use super::*;

    fn event(time: u64, tid: u32, cpu: u16, kind: u8, other: u32) -> SchedEvent {
        let state = if kind == kind::OFF { other as u8 } else { 0 };
        SchedEvent { time, pid: 1, tid, other, cpu, kind, state }
    }

    /// Spans as start, end, first letter of the state, of thread 1 of process 1.
    fn told(events: &[SchedEvent]) -> Vec<(u64, u64, char)> {
        let sched = Sched {
            source: SchedSource::Perf,
            clock: SchedClock::MonotonicRaw,
            text: Vec::new(),
            overwritten: 0,
            events: events.to_vec(),
        };
        let reading = |ticks| ClockReading { ticks, monotonic_raw_ns: ticks, ..ClockReading::default() };
        let clock = Clock::new(&[reading(0), reading(1_000_000_000)], None);
        let states = States::new(&sched, &clock);
        let letter = |state| format!("{state:?}").chars().next().unwrap();
        let thread = states.thread(1, 1).unwrap();
        thread.spans().iter().map(|span| (span.start, span.end, letter(span.state))).collect()
    }

    const BLOCKED: u32 = state::BLOCKED as u32;
    const RUNNABLE: u32 = state::RUNNABLE as u32;

    #[test]
    fn each_state_lasts_until_the_next() {
        let events = [
            event(90, 1, 0, kind::ON, 0),
            event(10, 1, 0, kind::ON, 0),
            event(30, 1, 0, kind::OFF, BLOCKED),
            event(50, 1, 1, kind::WOKEN, 77),
            event(55, 1, 1, kind::WOKEN, 78),
            event(60, 1, 1, kind::ON, 0),
            event(70, 1, 1, kind::OFF, RUNNABLE),
            event(40, 2, 0, kind::ON, 0),
            event(99, 1, 1, kind::ENDED, 0),
        ];
        assert_eq!(
            told(&events),
            [(10, 30, 'R'), (30, 50, 'B'), (50, 60, 'R'), (60, 70, 'R'), (70, 90, 'R'), (90, 99, 'R')]
        );
        assert_eq!(told(&events[..3]), [(10, 30, 'R'), (30, 90, 'B'), (90, u64::MAX, 'R')]);
    }

    #[test]
    fn what_contradicts_itself_is_unknown() {
        let events = [
            event(10, 1, 0, kind::ON, 0),
            event(20, 1, 0, kind::OFF, BLOCKED),
            event(30, 1, 0, kind::WOKEN, 2),
            event(40, 1, 0, kind::OFF, RUNNABLE),
            event(50, 1, 0, kind::ON, 0),
            event(60, 1, 1, kind::ON, 0),
        ];
        let expected =
            [(10, 20, 'R'), (20, 30, 'B'), (30, 40, 'U'), (40, 50, 'R'), (50, 60, 'U'), (60, u64::MAX, 'R')];
        assert_eq!(told(&events), expected);
    }

    #[test]
    fn times_of_a_call() {
        let span = |start, end, state| StateSpan { start, end, state, cpu: None, woken_by: None };
        let states = ThreadStates::new(vec![
            span(10, 30, ThreadState::Running),
            span(30, 50, ThreadState::Blocked(Wait::Any)),
            span(60, 70, ThreadState::Runnable),
            span(70, u64::MAX, ThreadState::Running),
        ]);
        let times = |from, to| {
            let StateTimes { running, runnable, blocked, unknown, .. } = states.times(from, to);
            (running, runnable, blocked, unknown)
        };
        assert_eq!(times(0, 5), (0, 0, 0, 5));
        assert_eq!(times(0, 100), (50, 10, 20, 20));
        assert_eq!(times(35, 40), (0, 0, 5, 0));
        assert_eq!(times(45, 75), (5, 10, 5, 10));
        assert_eq!(times(80, 90), (10, 0, 0, 0));
        assert_eq!(times(90, 80), (0, 0, 0, 0));
    }

    #[test]
    fn lost_events_leave_unknown_what_may_have_changed() {
        // Runs on CPU 0; events of CPU 1 are lost.
        let lost = |time, cpu| event(time, 9, cpu, kind::LOST, 5);
        let other = event(20, 9, 1, kind::ON, 0);
        let runs = [event(10, 1, 0, kind::ON, 0), other, lost(60, 1), event(80, 1, 0, kind::OFF, BLOCKED)];
        assert_eq!(told(&runs), [(10, 80, 'R'), (80, u64::MAX, 'B')]);
        // Waits meanwhile: it may have run on CPU 1.
        let waits = [event(10, 1, 0, kind::OFF, BLOCKED), other, lost(60, 1), event(80, 1, 0, kind::ON, 0)];
        assert_eq!(told(&waits), [(10, 20, 'B'), (20, 80, 'U'), (80, u64::MAX, 'R')]);
        // Runs on the CPU itself.
        let on = [event(10, 1, 1, kind::ON, 0), lost(60, 1), event(80, 1, 1, kind::OFF, BLOCKED)];
        assert_eq!(told(&on), [(10, 80, 'U'), (80, u64::MAX, 'B')]);
    }
}
