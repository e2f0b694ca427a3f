//! Names of threads, of which the kernel says the new ones alone.

use std::collections::HashMap;

use everycall_format::sched::{RENAME_PARTS, SchedEvent, rename};

/// The name of a thread: ends with zeros.
pub type Name = [u8; 16];

/// An event that concerns a thread's name.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// The thread was started by another one, whose name it has.
    Started {
        /// That one.
        by: u32,
    },
    /// It got this name.
    Renamed(Name),
    /// It ended.
    Ended,
}

/// The names by thread, as far as they are known.
#[derive(Debug, Default)]
pub struct Names {
    of: HashMap<u32, Name>,
}

impl Names {
    /// Takes changes, and gives what they say of renames.
    pub fn changed(&mut self, mut changes: Vec<(SchedEvent, Change)>, mut take: impl FnMut(SchedEvent)) {
        changes.sort_by_key(|(event, _)| event.time);
        for (event, change) in changes {
            self.change(event, change).into_iter().flatten().for_each(&mut take);
        }
    }

    fn change(&mut self, event: SchedEvent, change: Change) -> Option<[SchedEvent; RENAME_PARTS]> {
        match change {
            Change::Started { by } => {
                if let Some(name) = self.of.get(&by).copied() {
                    self.of.entry(event.tid).or_insert(name);
                }
                None
            }
            Change::Renamed(name) => {
                let before = self.of.insert(event.tid, name).unwrap_or_default();
                (before != name).then(|| rename(event, before, name))
            }
            Change::Ended => {
                self.of.remove(&event.tid);
                None
            }
        }
    }
}

/// A name from the bytes of one, which may end before.
pub fn name_of(bytes: &[u8]) -> Name {
    let mut name = Name::default();
    name.iter_mut().zip(bytes.iter().take_while(|byte| **byte != 0)).for_each(|(to, byte)| *to = *byte);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_of_the_one_that_started_it() {
        let at = |time, tid| SchedEvent { time, pid: 7, tid, ..SchedEvent::default() };
        let renamed = |text: &[u8]| Change::Renamed(name_of(text));
        let (mut names, mut all) = (Names::default(), Vec::new());
        // Those of several CPUs come one after the other.
        let changes = vec![
            (at(30, 8), renamed(b"loader\0?")),
            (at(10, 7), renamed(b"app")),
            (at(20, 8), Change::Started { by: 7 }),
            (at(40, 8), renamed(b"loader")),
        ];
        names.changed(changes, |event| all.push(event));
        let first = rename(at(10, 7), Name::default(), name_of(b"app"));
        let second = rename(at(30, 8), name_of(b"app"), name_of(b"loader"));
        assert_eq!(all, [first, second].concat());
        all.clear();
        names.changed(vec![(at(50, 8), Change::Ended), (at(60, 8), renamed(b"x"))], |event| all.push(event));
        assert_eq!(all, rename(at(60, 8), Name::default(), name_of(b"x")));
    }
}
