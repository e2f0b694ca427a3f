//! Copies scheduling events into the arenas of their processes, so that they are there without this
//! recorder: in a core, and after its own end.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everycall_format::arena::ClockReading;
use everycall_format::sched::{KEPT_EVENTS, SchedEvent, kind};
use everycall_sched::Sched;

use crate::memory::kept_states::KeptStates;
use crate::sys::lock::lock;
use crate::tree::process_tree::ProcessTree;

/// Events that are looked through for a new process's.
const LOOK_BACK: u64 = 2 * KEPT_EVENTS as u64;
/// Time between two calls.
const PAUSE: Duration = Duration::from_millis(20);
/// Each call writes into the memory of each process: with more of them, calls come less often.
const PROCESSES: usize = 64;

/// The arenas of the processes that run.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// By member number, with the process's id.
    processes: HashMap<u32, (u32, KeptStates)>,
    /// How many events were copied or left out.
    seen: u64,
}

impl Sharing {
    /// How long to wait for the next call: thread states in a core are about so old.
    pub fn pause(&self) -> Duration {
        PAUSE * (1 + (self.processes.len() / PROCESSES) as u32)
    }

    /// Copies the events since the last call, which are all until `reading`.
    pub fn pass(&mut self, sched: &Sched, tree: &Mutex<ProcessTree>, reading: ClockReading) {
        let Some((header, text)) = sched.kept_header() else { return };
        let running: Vec<_> = lock(tree)
            .of_program()
            .map(|member| (member.number, member.pid, Arc::clone(&member.arena)))
            .collect();
        let numbers: HashSet<u32> = running.iter().map(|(number, ..)| *number).collect();
        self.processes.retain(|number, _| numbers.contains(number));
        let fresh = Fresh::of(sched.since(self.seen));
        self.seen = sched.count();
        // One without memory begins anew.
        self.processes.retain(|_, (pid, kept)| kept.add(&fresh.of_process(*pid), reading).is_ok());
        let mut recent = None;
        for (number, pid, arena) in running {
            if let Some(mut kept) = Some(arena)
                .filter(|_| !self.processes.contains_key(&number))
                .and_then(|arena| KeptStates::begin(arena, header, text))
            {
                let recent =
                    recent.get_or_insert_with(|| Fresh::of(sched.since(self.seen.saturating_sub(LOOK_BACK))));
                if kept.add(&recent.of_process(pid), reading).is_ok() {
                    self.processes.insert(number, (pid, kept));
                }
            }
        }
    }
}

/// Events by process id; those of no process are every process's.
#[derive(Default)]
struct Fresh {
    places: HashMap<u32, usize>,
    lists: Vec<Vec<SchedEvent>>,
}

/// The id of no process.
const NOBODY: u32 = 0;

impl Fresh {
    fn of<'e>(events: impl Iterator<Item = &'e SchedEvent>) -> Fresh {
        let mut all = Fresh::default();
        // Mostly, the next one is of the same process.
        let mut last = None;
        for event in events {
            // A CPU's lost events may have been those of any process.
            let is_lost = matches!(event.kind, kind::LOST | kind::WAKEUPS_LOST);
            let pid = if is_lost { NOBODY } else { event.pid };
            let place = match last {
                Some((same, place)) if same == pid => place,
                _ => *all.places.entry(pid).or_insert(all.lists.len()),
            };
            last = Some((pid, place));
            if place == all.lists.len() {
                all.lists.push(Vec::new());
            }
            if let Some(list) = all.lists.get_mut(place) {
                list.push(*event);
            }
        }
        all
    }

    fn of_process(&self, pid: u32) -> Cow<'_, [SchedEvent]> {
        let list = |pid| self.places.get(&pid).and_then(|place| self.lists.get(*place));
        let own = list(pid).map(Vec::as_slice).unwrap_or_default();
        match list(NOBODY) {
            None => Cow::Borrowed(own),
            Some(lost) => Cow::Owned([own, lost].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_gets_its_own_and_what_was_lost() {
        let event = |time, pid, kind| SchedEvent { time, pid, kind, ..SchedEvent::default() };
        let all =
            [event(1, 7, kind::ON), event(2, 8, kind::ON), event(3, 9, kind::LOST), event(4, 7, kind::OFF)];
        let fresh = Fresh::of(all.iter());
        let times = |pid| fresh.of_process(pid).iter().map(|event| event.time).collect::<Vec<_>>();
        assert_eq!((times(7), times(8), times(9)), (vec![1, 4, 3], vec![2, 3], vec![3]));
    }
}
