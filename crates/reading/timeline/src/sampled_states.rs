//! Thread states where the kernel's counts are all that is known: samples of how long a thread has
//! run, and how often it was put on a CPU.

use std::collections::HashMap;

use everycall_format::sched::{SchedEvent, kind, sample};

use everycall_calls::{Sample, Samples};
use everycall_calls::{StateSpan, ThreadState, ThreadStates, Wait};

/// The states that follow from samples, by process id and thread id. `events` are by time; `at`
/// converts times.
pub(crate) fn threads(events: &[SchedEvent], at: impl Fn(u64) -> u64) -> HashMap<(u32, u32), ThreadStates> {
    let mut by_thread: HashMap<(u32, u32), Vec<&SchedEvent>> = HashMap::new();
    for event in events.iter().filter(|event| matches!(event.kind, kind::SAMPLE | kind::OFF)) {
        by_thread.entry((event.pid, event.tid)).or_default().push(event);
    }
    by_thread.into_iter().map(|(key, events)| (key, of_thread(&events, &at))).collect()
}

fn of_thread(events: &[&SchedEvent], at: impl Fn(u64) -> u64) -> ThreadStates {
    let mut spans = Spans::default();
    let mut all: Vec<Sample> = Vec::with_capacity(events.len());
    // Since when it wasn't put on a CPU again.
    let mut put_on = None;
    // Since when it has waited.
    let mut waits = None;
    for event in events.iter().filter(|event| event.kind == kind::SAMPLE) {
        let before = at(event.time.saturating_sub(u64::from(event.cpu) * 1000));
        let mut sample = Sample { before, after: at(event.time), ran: 0, ran_next: 0 };
        let Some(last) = all.last().copied() else {
            put_on = Some(sample.after);
            all.push(sample);
            continue;
        };
        sample.ran = last.ran.saturating_add(event.other.into());
        let is_same = event.state & sample::NOT_PUT_ON != 0;
        if !is_same {
            put_on = None;
        }
        if event.state & sample::WAITS != 0 {
            let since = *waits.get_or_insert(last.after);
            spans.add(since, sample.before, ThreadState::Blocked(Wait::Any));
            put_on = None;
        } else if let Some(since) = put_on.filter(|_| event.other > 0) {
            // It was on the CPU at the last sample, as it has run since and wasn't put on one.
            spans.add(since, last.before, ThreadState::Running);
        }
        if event.state & sample::WAITS == 0 {
            waits = None;
        }
        if put_on.is_none() {
            put_on = Some(sample.after);
        }
        all.push(sample);
    }
    for event in events.iter().filter(|event| event.kind == kind::OFF) {
        spans.waited_in(event.other.checked_sub(1), at(event.time));
    }
    let mut next = all.last().map_or(0, |sample| sample.ran);
    let mut ran = next;
    for sample in all.iter_mut().rev() {
        if sample.ran != ran {
            next = std::mem::replace(&mut ran, sample.ran);
        }
        sample.ran_next = next;
    }
    let edges = all.first().zip(all.last()).map(|(first, last)| (first.after, last.before));
    ThreadStates::sampled(spans.with_gaps(edges), Samples { all })
}

/// Spans in order.
#[derive(Default)]
struct Spans {
    all: Vec<StateSpan>,
}

impl Spans {
    fn add(&mut self, start: u64, end: u64, state: ThreadState) {
        match self.all.last_mut() {
            // It goes on, or was known up to there.
            Some(last) if last.state == state && start <= last.end => last.end = last.end.max(end),
            last => {
                let start = last.map_or(start, |last| start.max(last.end));
                if start < end {
                    self.all.push(StateSpan {
                        start,
                        end,
                        state,
                        cpu: None,
                        woken_by: None,
                        blocked_in: None,
                    });
                }
            }
        }
    }

    /// Says in which call the thread waited at a moment.
    fn waited_in(&mut self, call: Option<u32>, at: u64) {
        let behind = self.all.partition_point(|span| span.start <= at);
        let span = behind.checked_sub(1).and_then(|index| self.all.get_mut(index));
        if let Some(span) = span.filter(|span| at < span.end && matches!(span.state, ThreadState::Blocked(_)))
        {
            span.blocked_in = call;
        }
    }

    /// With unknown spans between them, and up to both edges.
    fn with_gaps(self, edges: Option<(u64, u64)>) -> Vec<StateSpan> {
        let Some((begin, end)) = edges else { return self.all };
        let mut all = Vec::with_capacity(self.all.len() * 2 + 1);
        let mut until = begin;
        let unknown = |start, end| StateSpan {
            start,
            end,
            state: ThreadState::Unknown,
            cpu: None,
            woken_by: None,
            blocked_in: None,
        };
        for span in self.all {
            if until < span.start {
                all.push(unknown(until, span.start));
            }
            until = span.end;
            all.push(span);
        }
        if until < end {
            all.push(unknown(until, end));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: u8 = sample::NOT_PUT_ON;
    const WAITS: u8 = sample::NOT_PUT_ON | sample::WAITS;

    /// Samples as microseconds, CPU time since the last one, and state; each takes a microsecond.
    fn states(samples: &[(u64, u32, u8)]) -> ThreadStates {
        let event = |(time, ran, state): &(u64, u32, u8)| SchedEvent {
            time: time * 1000,
            pid: 1,
            tid: 1,
            other: ran * 1000,
            cpu: 1,
            kind: kind::SAMPLE,
            state: *state,
        };
        let events: Vec<SchedEvent> = samples.iter().map(event).collect();
        threads(&events, |time| time / 1000).remove(&(1, 1)).unwrap()
    }

    fn told(states: &ThreadStates) -> Vec<(u64, u64, char)> {
        let letter = |state| format!("{state:?}").chars().next().unwrap();
        states.spans().iter().map(|span| (span.start, span.end, letter(span.state))).collect()
    }

    #[test]
    fn what_is_certain_of_a_thread() {
        let states = states(&[
            (1000, 0, 0),
            // Runs, and isn't put on a CPU again: it ran up to the last sample but one.
            (2000, 900, SAME),
            (3000, 1000, SAME),
            (4000, 500, SAME),
            // Waits since the one before.
            (5000, 0, WAITS),
            (25_000, 0, WAITS),
            // Was put on a CPU.
            (26_000, 300, 0),
            (27_000, 1000, SAME),
            (28_000, 900, SAME),
        ]);
        let expected = [
            (1000, 2999, 'R'),
            (2999, 4000, 'U'),
            (4000, 24_999, 'B'),
            (24_999, 26_000, 'U'),
            (26_000, 26_999, 'R'),
            (26_999, 27_999, 'U'),
        ];
        assert_eq!(told(&states), expected);
    }

    #[test]
    fn the_call_of_a_wait() {
        let sample = |time, other, state| SchedEvent {
            time,
            pid: 1,
            tid: 1,
            other,
            cpu: 0,
            kind: kind::SAMPLE,
            state,
        };
        let events = [
            sample(1000, 0, 0),
            sample(2000, 0, WAITS),
            SchedEvent { kind: kind::OFF, other: 203, ..sample(2000, 0, 0) },
            sample(9000, 0, WAITS),
            // Nothing is known of that time.
            SchedEvent { kind: kind::OFF, other: 8, ..sample(9500, 0, 0) },
            sample(10_000, 500, 0),
        ];
        let states = threads(&events, |time| time).remove(&(1, 1)).unwrap();
        let told: Vec<_> =
            states.spans().iter().map(|span| (span.start, span.end, span.blocked_in)).collect();
        assert_eq!(told, [(1000, 9000, Some(202)), (9000, 10_000, None)]);
    }

    #[test]
    fn time_off_the_cpu_has_a_bound() {
        // It runs 300 of each 1000, and is switched all the time; times are in microseconds here,
        // and CPU times in nanoseconds.
        let event =
            |time: u64| SchedEvent { time, pid: 1, tid: 1, other: 300, cpu: 0, kind: kind::SAMPLE, state: 0 };
        let events: Vec<SchedEvent> = (1..=100).map(|count| event(count * 1000)).collect();
        let states = threads(&events, |time| time).remove(&(1, 1)).unwrap();
        let times = states.times(10_000, 50_000);
        assert_eq!((times.running, times.blocked, times.unknown), (0, 0, 40_000));
        // 28,000 are right; its count may lag behind at the first sample.
        assert_eq!(times.perhaps_off, 28_300);
        assert_eq!(states.times(10_000, 10_100).perhaps_off, 100, "no more than the time itself");
        assert_eq!(states.times(100, 50_000).perhaps_off, 49_900, "no sample before it");
        let inner = states.times(10_000, 20_000);
        let own = times.without(&inner);
        assert_eq!((own.unknown, own.perhaps_off), (30_000, 28_300));
    }
}
