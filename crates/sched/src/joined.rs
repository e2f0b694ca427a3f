//! Events of `perf_event_open` and of tracefs in one: switches from the first, wake-ups and ways of
//! waiting from the second. Both have the same clock.
//!
//! Some kernels' tracefs doesn't have all switches, and perf has no wake-ups. Of switches, tracefs
//! is asked only for those whose way of waiting isn't the usual one: what both have costs twice.

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

/// Where an event is from. At a switch, the kernel tells tracefs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Tracefs,
    Perf,
}

impl Joined {
    /// Of two that have begun.
    pub fn new(perf: Perf, tracefs: Tracefs) -> Joined {
        let threads = Threads { are_usual_left_out: tracefs.is_filtered, of: FxHashMap::default() };
        Joined { perf, tracefs, threads, read: Vec::new() }
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.perf.descriptors().chain(self.tracefs.descriptors())
    }

    /// Gives what was recorded to `take`.
    pub fn drain(&mut self, take: impl FnMut(SchedEvent)) {
        let read = &mut self.read;
        // Of each switch that is here, tracefs has the way of waiting.
        self.perf.drain(|event| read.push((event, Of::Perf)));
        self.tracefs.drain(|event| read.push((event, Of::Tracefs)));
        self.threads.join(read, take);
        read.clear();
    }
}

/// What is known of each thread, by its id.
#[derive(Debug, Default)]
struct Threads {
    /// Whether tracefs leaves out the switches of threads that were preempted or wait for what a
    /// signal would end, too.
    are_usual_left_out: bool,
    of: FxHashMap<u32, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    /// When tracefs said last that it left its CPU, and how it waits.
    way: Option<(u64, u8)>,
    /// When it began to wait, if nobody is known to have woken it since.
    waits_since: Option<u64>,
    /// The last time that it was woken without waiting: it was about to, and may do so for perf.
    woken_early: Option<SchedEvent>,
}

impl Threads {
    fn join(&mut self, read: &mut [(SchedEvent, Of)], mut take: impl FnMut(SchedEvent)) {
        // What is lost is older than all that tracefs says now.
        let is_whole = !read.iter().any(|(event, of)| *of == Of::Tracefs && event.kind == kind::LOST);
        let usual = if self.are_usual_left_out && is_whole { state::SLEEPING } else { state::BLOCKED };
        read.sort_by_key(|(event, of)| (event.time, *of));
        for (event, of) in read {
            match of {
                Of::Perf => self.switched(*event, usual).into_iter().flatten().for_each(&mut take),
                Of::Tracefs => self.told_beside(*event).into_iter().for_each(&mut take),
            }
        }
    }

    /// An event of tracefs, as far as it says more than those of perf.
    fn told_beside(&mut self, event: SchedEvent) -> Option<SchedEvent> {
        match event.kind {
            kind::WOKEN => {
                let thread = self.of.entry(event.tid).or_default();
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
            // Behind its end, for perf.
            kind::OFF if event.state == state::DEAD => {
                self.of.remove(&event.tid);
                None
            }
            kind::OFF => {
                self.of.entry(event.tid).or_default().way = Some((event.time, event.state));
                None
            }
            _ => None,
        }
    }

    /// An event of perf with what tracefs said of it, and before it a wake-up that it is proof of.
    fn switched(&mut self, event: SchedEvent, usual: u8) -> [Option<SchedEvent>; 2] {
        match event.kind {
            kind::OFF => {
                let thread = self.of.entry(event.tid).or_default();
                let event = match thread.way.take() {
                    // A wake-up may come between the two.
                    Some((time, state)) => SchedEvent { time, state, ..event },
                    None if event.state == state::BLOCKED => SchedEvent { state: usual, ..event },
                    None => event,
                };
                thread.waits_since = (event.state != state::RUNNABLE).then_some(event.time);
                [None, Some(event)]
            }
            kind::ON => {
                let Some(thread) = self.of.get_mut(&event.tid) else { return [None, Some(event)] };
                // It belongs to a switch that perf doesn't have.
                thread.way = thread.way.filter(|(time, _)| *time >= event.time);
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
        // The second time that it leaves its CPU is in the kernel's memory of tracefs already.
        join(
            &[event(11, kind::OFF, state::BLOCKED, 0), event(31, kind::ON, 0, 0)],
            &[
                event(10, kind::OFF, state::UNINTERRUPTIBLE, 0),
                event(20, kind::WOKEN, 0, 5),
                event(40, kind::OFF, state::SLEEPING, 0),
            ],
        );
        join(
            &[event(42, kind::OFF, state::BLOCKED, 0), event(50, kind::ON, 0, 0)],
            &[event(41, kind::WOKEN, 0, 6), event(45, kind::LOST, 0, 9)],
        );
        // tracefs lost what it said of this one.
        join(
            &[event(60, kind::OFF, state::BLOCKED, 0), event(70, kind::ENDED, 0, 0)],
            &[event(71, kind::OFF, state::DEAD, 0)],
        );
        let expected = [
            event(10, kind::OFF, state::UNINTERRUPTIBLE, 0),
            event(20, kind::WOKEN, 0, 5),
            event(31, kind::ON, 0, 0),
            event(40, kind::OFF, state::SLEEPING, 0),
            // Among these may be the one that the wake-up before the switch was for.
            event(45, kind::WAKEUPS_LOST, 0, 9),
            event(50, kind::ON, 0, 0),
            event(60, kind::OFF, state::BLOCKED, 0),
            event(70, kind::ENDED, 0, 0),
        ];
        assert_eq!(all, expected);
        assert!(threads.of.is_empty());
    }

    /// Where tracefs leaves out usual switches, a wait that it doesn't know is a usual one, unless
    /// it may have been lost.
    #[test]
    fn a_wait_that_is_left_out_is_a_usual_one() {
        let mut threads = Threads { are_usual_left_out: true, ..Threads::default() };
        let off = |time, state| event(time, kind::OFF, state, 0);
        let switches = [off(10, state::BLOCKED), off(20, state::RUNNABLE), off(30, state::BLOCKED)];
        let expected = [off(10, state::SLEEPING), off(20, state::RUNNABLE), off(29, state::UNINTERRUPTIBLE)];
        assert_eq!(joined(&mut threads, &switches, &[off(29, state::UNINTERRUPTIBLE)]), expected);
        let lost = event(15, kind::LOST, 0, 3);
        let expected = [off(10, state::BLOCKED), event(15, kind::WAKEUPS_LOST, 0, 3)];
        assert_eq!(joined(&mut threads, &switches[..1], &[lost]), expected);
    }

    /// perf tells a switch some 100 ns later than it was decided. Who wakes the thread in between
    /// ends that wait; who wakes one that goes on running doesn't.
    #[test]
    fn a_wake_up_before_the_switch_ends_the_wait() {
        let mut threads = Threads { are_usual_left_out: true, ..Threads::default() };
        let off = |time| event(time, kind::OFF, state::BLOCKED, 0);
        let slept = |time| event(time, kind::OFF, state::SLEEPING, 0);
        let (woken, on) = (|time, by| event(time, kind::WOKEN, 0, by), |time| event(time, kind::ON, 0, 0));
        assert_eq!(
            joined(&mut threads, &[off(10), on(20)], &[woken(9, 5)]),
            [slept(10), woken(10, 5), on(20)]
        );
        let told = joined(&mut threads, &[off(40), on(60)], &[woken(25, 5), woken(50, 6)]);
        assert_eq!(told, [slept(40), woken(50, 6), on(60)], "the first didn't matter");
        // It was preempted.
        let off = event(70, kind::OFF, state::RUNNABLE, 0);
        assert_eq!(joined(&mut threads, &[off, on(80)], &[woken(65, 5)]), [off, on(80)]);
    }
}
