//! Events of `perf_event_open` and of tracefs in one: switches from the first, wake-ups and ways of
//! waiting from the second. Both have the same clock.
//!
//! Some kernels' tracefs doesn't have all switches, and perf has no wake-ups.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use everycall_format::sched::{SchedEvent, kind, state};

use crate::perf::Perf;
use crate::tracefs::Tracefs;

/// Both of them.
#[derive(Debug)]
pub struct Joined {
    perf: Perf,
    tracefs: Tracefs,
    ways: Ways,
}

impl Joined {
    /// Of two that have begun.
    pub fn new(perf: Perf, tracefs: Tracefs) -> Joined {
        Joined { perf, tracefs, ways: Ways::default() }
    }

    /// Readable when half a buffer waits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.perf.descriptors().chain(self.tracefs.descriptors())
    }

    /// Gives what was recorded to `take`.
    pub fn drain(&mut self, take: impl FnMut(SchedEvent)) {
        let mut switches = Vec::new();
        let mut others = Vec::new();
        // At a switch, tracefs is told first: of each switch that is here, it has the way of
        // waiting.
        self.perf.drain(|event| switches.push(event));
        self.tracefs.drain(|event| others.push(event));
        self.ways.join(switches, others, take);
    }
}

/// By thread: when tracefs said last that it left its CPU, and how it waits.
#[derive(Debug, Default)]
struct Ways {
    last: HashMap<u32, (u64, u8)>,
}

impl Ways {
    fn join(&mut self, switches: Vec<SchedEvent>, others: Vec<SchedEvent>, take: impl FnMut(SchedEvent)) {
        let mut all: Vec<(bool, SchedEvent)> = others.into_iter().map(|event| (false, event)).collect();
        all.extend(switches.into_iter().map(|event| (true, event)));
        all.sort_by_key(|(is_of_perf, event)| (event.time, *is_of_perf));
        all.into_iter().filter_map(|(is_of_perf, event)| self.told(is_of_perf, event)).for_each(take);
    }

    /// What an event says beside those of the other source.
    fn told(&mut self, is_of_perf: bool, event: SchedEvent) -> Option<SchedEvent> {
        match (is_of_perf, event.kind) {
            (false, kind::WOKEN) => Some(event),
            (false, kind::LOST) => Some(SchedEvent { kind: kind::WAKEUPS_LOST, ..event }),
            (false, kind::OFF) => {
                self.last.insert(event.tid, (event.time, event.state));
                None
            }
            (false, _) => None,
            (true, kind::OFF) => match self.last.remove(&event.tid) {
                // A wake-up may come between the two.
                Some((time, state)) => Some(SchedEvent { time, state, ..event }),
                None => Some(event),
            },
            (true, kind::ON) => {
                // It belongs to a switch that perf doesn't have.
                if self.last.get(&event.tid).is_some_and(|(time, _)| *time < event.time) {
                    self.last.remove(&event.tid);
                }
                Some(event)
            }
            (true, kind::ENDED) => {
                if self.last.get(&event.tid).is_some_and(|(_, state)| *state == state::DEAD) {
                    self.last.remove(&event.tid);
                }
                Some(event)
            }
            (true, _) => Some(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64, kind: u8, state: u8, other: u32) -> SchedEvent {
        SchedEvent { time, pid: 7, tid: 8, kind, state, other, ..SchedEvent::default() }
    }

    #[test]
    fn switches_of_one_and_wake_ups_of_the_other() {
        let mut ways = Ways::default();
        let mut all = Vec::new();
        let mut join = |switches: &[SchedEvent], others: &[SchedEvent]| {
            ways.join(switches.to_vec(), others.to_vec(), |event| all.push(event));
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
        join(&[event(60, kind::OFF, state::BLOCKED, 0), event(70, kind::ENDED, 0, 0)], &[]);
        let expected = [
            event(10, kind::OFF, state::UNINTERRUPTIBLE, 0),
            event(20, kind::WOKEN, 0, 5),
            event(31, kind::ON, 0, 0),
            event(41, kind::WOKEN, 0, 6),
            event(40, kind::OFF, state::SLEEPING, 0),
            event(45, kind::WAKEUPS_LOST, 0, 9),
            event(50, kind::ON, 0, 0),
            event(60, kind::OFF, state::BLOCKED, 0),
            event(70, kind::ENDED, 0, 0),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_way_of_an_earlier_switch_is_not_taken() {
        let mut ways = Ways::default();
        let mut all = Vec::new();
        let others = [event(10, kind::OFF, state::STOPPED, 0)];
        let switches = [event(20, kind::ON, 0, 0), event(30, kind::OFF, state::BLOCKED, 0)];
        ways.join(switches.to_vec(), others.to_vec(), |event| all.push(event));
        assert_eq!(all, switches);
        assert!(ways.last.is_empty());
    }
}
