//! The states of one thread, and sums of them.

use std::collections::BTreeMap;

use crate::samples::Samples;

/// The state of a thread.
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
    /// The source doesn't say.
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
    /// The thread that woke it at [`StateSpan::start`]; `None` if the source doesn't say, or none
    /// did.
    pub woken_by: Option<u32>,
    /// The number of the system call in which it waited; `None` if that isn't known.
    pub blocked_in: Option<u32>,
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

    /// All of them, in the order of the fields, to be changed.
    pub fn all_mut(&mut self) -> [&mut u64; StateTimes::FIELDS] {
        let StateTimes { running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary } = self;
        [running, runnable, blocked, unknown, perhaps_off, voluntary, involuntary]
    }

    /// How often it left its CPU, because it waited and although it could have run on; `None` if no
    /// switch was recorded and some time is unknown.
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
    /// The kernel's counts, if nothing else is known.
    samples: Samples,
}

impl ThreadStates {
    /// Of spans that are in order and apart.
    #[must_use]
    pub fn new(spans: Vec<StateSpan>) -> ThreadStates {
        let mut sums = StateTimes::default();
        let mut ran = None;
        let before = spans.iter().map(|span| {
            // Only a running thread leaves a CPU.
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

    /// The states with samples of the kernel's counts.
    #[must_use]
    pub fn sampled(spans: Vec<StateSpan>, samples: Samples) -> ThreadStates {
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

    /// The numbers of the system calls in which it waited from `from` until `to`, as far as they
    /// are known, and how long in each: the longest first.
    #[must_use]
    pub fn blocked_in(&self, from: u64, to: u64) -> Vec<(u32, u64)> {
        let first = self.spans.partition_point(|span| span.end <= from);
        let mut times: BTreeMap<u32, u64> = BTreeMap::new();
        let within = self.spans.iter().skip(first).take_while(|span| span.start < to);
        for (span, call) in within.filter_map(|span| Some((span, span.blocked_in?))) {
            let time = times.entry(call).or_default();
            *time = time.saturating_add(span.end.min(to) - span.start.max(from));
        }
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
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
