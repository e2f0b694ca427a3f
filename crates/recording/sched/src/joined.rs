//! Events of `perf_event_open` and of tracefs in one: switches from the first, wake-ups from the
//! second. Both have the same clock.
//!
//! Some kernels' tracefs lacks switches, and perf has no wake-ups. tracefs isn't asked for
//! switches, which would say how each thread waits: events that both have cost twice.

use std::os::fd::BorrowedFd;

use everycall_format::sched::{SchedEvent, kind, state};
use rustc_hash::FxHashMap;

use crate::perf::Perf;
use crate::tracefs::Tracefs;

/// Both of them.
#[derive(Debug)]
pub struct Joined {
    perf: Perf,
    tracefs: Tracefs,
    threads: Threads,
    /// Memory for what is read at a time.
    read: Vec<(SchedEvent, Of)>,
}

/// The source of an event. At a switch, the kernel notifies tracefs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Tracefs,
    Perf,
}

impl Joined {
    /// Of two that have begun.
    pub fn new(perf: Perf, tracefs: Tracefs) -> Joined {
        Joined { perf, tracefs, threads: Threads::default(), read: Vec::new() }
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.perf.descriptors().chain(self.tracefs.descriptors())
    }

    /// Gives what was recorded to `take`.
    pub fn drain(&mut self, take: impl FnMut(SchedEvent)) {
        let read = &mut self.read;
        // Of each switch that is here, tracefs has the wake-up before it.
        self.perf.drain(|event| read.push((event, Of::Perf)));
        self.tracefs.drain(|event| read.push((event, Of::Tracefs)));
        self.threads.join(read, take);
        read.clear();
    }
}

/// The state of each thread, by its id.
#[derive(Debug, Default)]
struct Threads {
    /// From their first switch to their end.
    of: FxHashMap<u32, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    /// When it began to wait, if it isn't known to have been woken since.
    waits_since: Option<u64>,
    /// The last time that it was woken without waiting: it was about to, and may do so for perf.
    woken_early: Option<SchedEvent>,
}

impl Threads {
    fn join(&mut self, read: &mut [(SchedEvent, Of)], mut take: impl FnMut(SchedEvent)) {
        read.sort_by_key(|(event, of)| (event.time, *of));
        for (event, of) in read {
            match of {
                Of::Perf => self.switched(*event).into_iter().flatten().for_each(&mut take),
                Of::Tracefs => self.told_beside(*event).into_iter().for_each(&mut take),
            }
        }
    }

    /// An event of tracefs, as far as it says more than those of perf.
    fn told_beside(&mut self, event: SchedEvent) -> Option<SchedEvent> {
        match event.kind {
            kind::WOKEN => {
                let thread = self.of.get_mut(&event.tid)?;
                if thread.waits_since.take().is_some() {
                    return Some(event);
                }
                thread.woken_early = Some(event);
                None
            }
            kind::LOST => {
                // The wake-up that came next may be among them.
                self.of.values_mut().for_each(|thread| thread.woken_early = None);
                Some(SchedEvent { kind: kind::WAKEUPS_LOST, ..event })
            }
            _ => None,
        }
    }

    /// An event of perf, and before it a wake-up that it is proof of.
    fn switched(&mut self, event: SchedEvent) -> [Option<SchedEvent>; 2] {
        match event.kind {
            kind::OFF => {
                let thread = self.of.entry(event.tid).or_default();
                thread.waits_since = (event.state != state::RUNNABLE).then_some(event.time);
                [None, Some(event)]
            }
            kind::ON => {
                let thread = self.of.entry(event.tid).or_default();
                // Whoever waits is woken before it runs.
                let woken = thread.woken_early.take().zip(thread.waits_since.take());
                let woken = woken.map(|(woken, since)| SchedEvent { time: woken.time.max(since), ..woken });
                [woken, Some(event)]
            }
            kind::ENDED => {
                self.of.remove(&event.tid);
                [None, Some(event)]
            }
            _ => [None, Some(event)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64, kind: u8, state: u8, other: u32) -> SchedEvent {
        SchedEvent { time, pid: 7, tid: 8, kind, state, other, ..SchedEvent::default() }
    }

    fn joined(threads: &mut Threads, switches: &[SchedEvent], others: &[SchedEvent]) -> Vec<SchedEvent> {
        let mut read: Vec<_> = switches.iter().map(|event| (*event, Of::Perf)).collect();
        read.extend(others.iter().map(|event| (*event, Of::Tracefs)));
        let mut all = Vec::new();
        threads.join(&mut read, |event| all.push(event));
        all
    }

    #[test]
    fn switches_of_one_and_wake_ups_of_the_other() {
        let mut threads = Threads::default();
        let mut all = Vec::new();
        let mut join = |switches: &[SchedEvent], others: &[SchedEvent]| {
            all.extend(joined(&mut threads, switches, others));
        };
        join(
            &[event(11, kind::OFF, state::BLOCKED, 0), event(31, kind::ON, 0, 0)],
            &[event(20, kind::WOKEN, 0, 5)],
        );
        join(
            &[event(42, kind::OFF, state::BLOCKED, 0), event(50, kind::ON, 0, 0)],
            &[event(41, kind::WOKEN, 0, 6), event(45, kind::LOST, 0, 9)],
        );
        // tracefs has events of its end before and behind that of perf.
        join(
            &[event(60, kind::OFF, state::BLOCKED, 0), event(70, kind::ENDED, 0, 0)],
            &[event(69, kind::ENDED, 0, 0), event(71, kind::WOKEN, 0, 6)],
        );
        let expected = [
            event(11, kind::OFF, state::BLOCKED, 0),
            event(20, kind::WOKEN, 0, 5),
            event(31, kind::ON, 0, 0),
            event(42, kind::OFF, state::BLOCKED, 0),
            // Among these may be the one that the wake-up before the switch was for.
            event(45, kind::WAKEUPS_LOST, 0, 9),
            event(50, kind::ON, 0, 0),
            event(60, kind::OFF, state::BLOCKED, 0),
            event(70, kind::ENDED, 0, 0),
        ];
        assert_eq!(all, expected);
        assert!(threads.of.is_empty());
    }

    /// perf reports a switch some 100 ns after it was decided. A wake-up in between ends that wait;
    /// one of a thread that keeps running doesn't matter.
    #[test]
    fn a_wake_up_before_the_switch_ends_the_wait() {
        let mut threads = Threads::default();
        let off = |time| event(time, kind::OFF, state::BLOCKED, 0);
        let (woken, on) = (|time, by| event(time, kind::WOKEN, 0, by), |time| event(time, kind::ON, 0, 0));
        let told = joined(&mut threads, &[on(5), off(10), on(20)], &[woken(9, 5)]);
        assert_eq!(told, [on(5), off(10), woken(10, 5), on(20)]);
        let told = joined(&mut threads, &[off(40), on(60)], &[woken(25, 5), woken(50, 6)]);
        assert_eq!(told, [off(40), woken(50, 6), on(60)], "the first didn't matter");
        // It was preempted.
        let off = event(70, kind::OFF, state::RUNNABLE, 0);
        assert_eq!(joined(&mut threads, &[off, on(80)], &[woken(65, 5)]), [off, on(80)]);
    }
}
