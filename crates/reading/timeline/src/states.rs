//! Thread states: when each thread ran, could have run, and waited, as the kernel recorded it.

use std::collections::HashMap;

use everycall_format::sched::{SchedEvent, kind, state};
use everycall_reader::{Sched, SchedClock, SchedSource};

use crate::clock::{Clock, ClockQuality};
use crate::renames::Renames;
use crate::sampled_states;
use everycall_calls::{StateSpan, ThreadState, ThreadStates, Wait};

/// The states of all threads.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// By process id and thread id.
    threads: HashMap<(u32, u32), ThreadStates>,
    switches: u64,
    lost: u64,
    missing: u64,
    wake_ups_lost: u64,
    until: Option<u64>,
}

impl States {
    /// The states that follow from these events.
    #[must_use]
    pub fn new(sched: &Sched, clock: &Clock) -> States {
        let at = |time| at(sched, clock, time);
        if !has_place(sched, clock) {
            return States::default();
        }
        let mut events = sched.events.clone();
        events.sort_by_key(|event| event.time);
        if sched.source == SchedSource::Schedstat {
            let threads = sampled_states::threads(&events, at);
            return States { threads, until: sched.until.map(at), ..States::default() };
        }
        let mut open: HashMap<(u32, u32), StateSpan> = HashMap::new();
        events.retain(|event| event.kind != kind::RENAMED);
        let mut states = States { until: sched.until.map(at), ..States::default() };
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
                // Kernels don't report every switch: one before this event is missing.
                let ran = span.state == ThreadState::Running;
                if (event.kind == kind::ON && ran) || (event.kind == kind::OFF && !ran) {
                    states.missing += 1;
                    (span.state, span.woken_by, span.blocked_in) = (ThreadState::Unknown, None, None);
                }
                threads.entry(key).or_default().push(StateSpan { end: now, ..span });
            }
            if let Some(span) = begun(event, now) {
                open.insert(key, span);
            }
        }
        // Where the events end early, the end of the last states isn't known.
        let until = states.until.unwrap_or(u64::MAX);
        for (key, span) in open {
            let end = until.max(span.start);
            threads.entry(key).or_default().push(StateSpan { end, ..span });
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

    /// The states of a stack that threads of process `pid` run in steps: thread id, begin and end
    /// of each, in their order. Between them it has none. `None` if nothing is known.
    pub(crate) fn of_steps(&self, pid: u32, steps: &[(u32, u64, u64)]) -> Option<ThreadStates> {
        let mut spans = Vec::new();
        for (tid, from, to) in steps {
            let Some(thread) = self.thread(pid, *tid) else { continue };
            let first = thread.spans().partition_point(|span| span.end <= *from);
            let within = thread.spans().iter().skip(first).take_while(|span| span.start < *to);
            spans.extend(within.map(|span| {
                let is_begun = span.start >= *from;
                StateSpan {
                    start: span.start.max(*from),
                    end: span.end.min(*to),
                    // It was woken before the step.
                    woken_by: span.woken_by.filter(|_| is_begun),
                    ..*span
                }
            }));
        }
        (!spans.is_empty()).then(|| ThreadStates::new(spans))
    }

    /// Nothing is known of the time behind this moment, if the events end early.
    #[must_use]
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// How often a thread was put on a CPU.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Switches that the kernel didn't report, inferred from its next event.
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

/// When threads were renamed, which doesn't take the states of all.
pub(crate) fn renames(sched: &Sched, clock: &Clock) -> Renames {
    let are_told = sched.source != SchedSource::Schedstat && has_place(sched, clock);
    let is_one = |event: &&SchedEvent| are_told && matches!(event.kind, kind::RENAMED | kind::ENDED);
    let mut events: Vec<SchedEvent> = sched.events.iter().filter(is_one).copied().collect();
    events.sort_by_key(|event| event.time);
    Renames::new(&events, |time| at(sched, clock, time))
}

/// Whether the events have a place among calls: those are shown in ticks if the clock has no rate.
fn has_place(sched: &Sched, clock: &Clock) -> bool {
    let has_no_rate = matches!(clock.quality(), ClockQuality::AssumedRate { .. });
    !(has_no_rate && sched.clock == SchedClock::MonotonicRaw)
}

fn at(sched: &Sched, clock: &Clock, time: u64) -> u64 {
    match sched.clock {
        SchedClock::Ticks => clock.ns(time),
        SchedClock::MonotonicRaw => clock.at_monotonic_raw(time),
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
    let is_blocked = matches!(state, ThreadState::Blocked(_));
    let blocked_in = event.other.checked_sub(1).filter(|_| is_blocked);
    Some(StateSpan { start: now, end: u64::MAX, state, cpu: Some(event.cpu), woken_by, blocked_in })
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
                blocked_in: None,
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
    use everycall_calls::StateTimes;

    fn event(time: u64, tid: u32, cpu: u16, kind: u8, other: u32) -> SchedEvent {
        let (state, other) = if kind == kind::OFF { (other as u8, 0) } else { (0, other) };
        SchedEvent { time, pid: 1, tid, other, cpu, kind, state }
    }

    /// Spans as start, end, first letter of the state, of thread 1 of process 1.
    fn told(events: &[SchedEvent]) -> Vec<(u64, u64, char)> {
        told_until(None, events)
    }

    fn told_until(until: Option<u64>, events: &[SchedEvent]) -> Vec<(u64, u64, char)> {
        let states = states(until, events);
        let letter = |state| format!("{state:?}").chars().next().unwrap();
        let thread = states.thread(1, 1).unwrap();
        thread.spans().iter().map(|span| (span.start, span.end, letter(span.state))).collect()
    }

    fn states(until: Option<u64>, events: &[SchedEvent]) -> States {
        let sched = Sched {
            source: SchedSource::Perf,
            clock: SchedClock::MonotonicRaw,
            text: Vec::new(),
            overwritten: 0,
            until,
            events: events.to_vec(),
        };
        let reading = |ticks| ClockReading { ticks, monotonic_raw_ns: ticks, ..ClockReading::default() };
        let clock = Clock::new(&[reading(0), reading(1_000_000_000)], None);
        States::new(&sched, &clock)
    }

    #[test]
    fn among_ticks_there_are_no_states_of_another_clock() {
        let reading = ClockReading { ticks: 1, monotonic_raw_ns: 1, ..ClockReading::default() };
        let clock = Clock::new(&[reading], None);
        let of = |clock_of| {
            let events = vec![event(10, 1, 0, kind::ON, 0), event(20, 1, 0, kind::OFF, BLOCKED)];
            let sched = Sched {
                source: SchedSource::Perf,
                clock: clock_of,
                text: Vec::new(),
                overwritten: 0,
                until: None,
                events,
            };
            States::new(&sched, &clock).thread(1, 1).is_some()
        };
        assert!(of(SchedClock::Ticks) && !of(SchedClock::MonotonicRaw));
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
        assert_eq!(told_until(Some(95), &events[..3]), [(10, 30, 'R'), (30, 90, 'B'), (90, 95, 'R')]);
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
    fn the_call_that_waits_is_told_later() {
        let off = event(30, 1, 0, kind::OFF, BLOCKED);
        let events = [
            event(10, 1, 0, kind::ON, 0),
            off,
            SchedEvent { other: 203, ..off },
            event(50, 1, 1, kind::WOKEN, 77),
            event(60, 1, 0, kind::ON, 0),
            SchedEvent { other: 9, ..event(70, 1, 0, kind::OFF, RUNNABLE) },
        ];
        let states = states(None, &events);
        let thread = states.thread(1, 1).unwrap();
        let told: Vec<_> =
            thread.spans().iter().map(|span| (span.start, span.end, span.blocked_in)).collect();
        let end = u64::MAX;
        assert_eq!(
            told,
            [(10, 30, None), (30, 50, Some(202)), (50, 60, None), (60, 70, None), (70, end, None)]
        );
        let times = thread.times(10, 70);
        assert_eq!((times.voluntary, times.blocked, states.missing()), (1, 20, 0));
        let waited = [(0, 30), (10, 35), (49, 90), (50, 60)].map(|(from, to)| thread.blocked_in(from, to));
        assert_eq!(waited, [vec![], vec![(202, 5)], vec![(202, 1)], vec![]]);
    }

    #[test]
    fn steps_have_the_states_of_the_threads_that_run_them() {
        let events = [
            event(10, 1, 0, kind::ON, 0),
            event(30, 1, 0, kind::OFF, BLOCKED),
            event(50, 1, 0, kind::WOKEN, 2),
            event(60, 1, 0, kind::ON, 0),
            event(0, 2, 1, kind::ON, 0),
            event(75, 2, 1, kind::OFF, BLOCKED),
        ];
        let states = states(None, &events);
        let told = |steps: &[(u32, u64, u64)]| {
            let found = states.of_steps(1, steps)?;
            let spans = found.spans().iter();
            Some(spans.map(|span| (span.start, span.end, format!("{:?}", span.state))).collect::<Vec<_>>())
        };
        let running = |from, to| (from, to, "Running".to_owned());
        assert_eq!(told(&[(3, 0, 100)]), None);
        assert_eq!(
            told(&[(1, 20, 40), (2, 45, 70), (1, 90, 95)]).unwrap(),
            [running(20, 30), (30, 40, "Blocked(Any)".to_owned()), running(45, 70), running(90, 95)]
        );
    }

    #[test]
    fn times_of_a_call() {
        let span =
            |start, end, state| StateSpan { start, end, state, cpu: None, woken_by: None, blocked_in: None };
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
