//! Names of threads. The runtime reads a thread's name when the thread gets its ring, at segment ends and at its
//! end; a name that is set from outside, or set by a thread which then waits, is seen only here.
//!
//! Of the runtime's name and ours the newer one wins: the arena's where it has changed since the last look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use everycall_format::arena::{ThreadHeader, thread_state};
use everycall_machine::proc_files::{Name, thread_name};

use crate::memory::arena::Arena;

/// Time between two rounds while threads are new, which is when they get their names.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Time between two rounds when nothing changes.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The pause after a round is at least this multiple of its duration.
const PAUSE_SHARE: u32 = 20;
/// The owner of a name; a slot is used by several threads in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    slot: u32,
    generation: u32,
    tid: u32,
}

#[derive(Clone, Copy, Debug)]
struct ThreadNames {
    in_arena: Name,
    in_kernel: Name,
}

/// The names seen so far.
#[derive(Debug)]
pub struct Names {
    seen: HashMap<Owner, ThreadNames>,
    next_slot: u32,
    threads: u32,
    pause: Duration,
}

impl Default for Names {
    fn default() -> Names {
        Names { seen: HashMap::new(), next_slot: 0, threads: 0, pause: PAUSE_MIN }
    }
}

impl Names {
    /// How long to wait until the next round.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Reads the names of the next threads, at most `most`. Returns how many were read.
    pub fn poll(&mut self, arena: &Arena, most: u32) -> u32 {
        let begin = Instant::now();
        let header = arena.header();
        let count = arena.thread_count();
        let are_new = std::mem::replace(&mut self.threads, count) != count;
        let looks = if header.target_pid == 0 { 0 } else { count.min(most) };
        self.look(arena, header.target_pid, count, looks);
        let pause = if are_new { PAUSE_MIN } else { self.pause * 2 };
        self.pause = pause.max(begin.elapsed() * PAUSE_SHARE).clamp(PAUSE_MIN, PAUSE_MAX);
        looks
    }

    fn look(&mut self, arena: &Arena, pid: u32, count: u32, looks: u32) {
        for _ in 0..looks {
            let slot = if self.next_slot < count { self.next_slot } else { 0 };
            self.next_slot = slot + 1;
            let thread = arena.thread(slot);
            // A fiber's name isn't that of the thread that runs it.
            if thread.state == thread_state::USED
                && thread.fiber == 0
                && let Some(in_kernel) = thread_name(pid, thread.tid)
            {
                self.seen.insert(owner(slot, &thread), ThreadNames { in_arena: thread.name, in_kernel });
            }
        }
    }

    /// The newest name of the thread in `slot`.
    #[must_use]
    pub fn newest(&self, slot: u32, thread: &ThreadHeader) -> Name {
        match self.seen.get(&owner(slot, thread)) {
            Some(seen) if seen.in_arena == thread.name => seen.in_kernel,
            _ => thread.name,
        }
    }
}

fn owner(slot: u32, thread: &ThreadHeader) -> Owner {
    Owner { slot, generation: thread.generation, tid: thread.tid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_name_wins() {
        let name = |text: &[u8]| {
            let mut name = Name::default();
            name[..text.len()].copy_from_slice(text);
            name
        };
        let mut thread = ThreadHeader { tid: 5, name: name(b"app"), ..ThreadHeader::default() };
        let mut names = Names::default();
        assert_eq!(names.newest(0, &thread), name(b"app"));
        names
            .seen
            .insert(owner(0, &thread), ThreadNames { in_arena: name(b"app"), in_kernel: name(b"worker") });
        assert_eq!(names.newest(0, &thread), name(b"worker"));
        thread.name = name(b"worker 2");
        assert_eq!(names.newest(0, &thread), name(b"worker 2"), "changed since the last look");
        thread.generation = 1;
        thread.name = name(b"app");
        assert_eq!(names.newest(0, &thread), name(b"app"), "another thread");
    }
}
