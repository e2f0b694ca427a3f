//! Contents and losses of a recording, for the report at its end.

use std::collections::BTreeSet;

use everycall_format::arena::{ArenaHeader, COUNTERS, ChildEntry, counter, process_state};
use everycall_format::env::RING_SIZE_MAX;
use everycall_format::until_nul;

/// A recording in figures.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Whether a traced program took the arena.
    pub traced: bool,
    /// Whether tracing was off at the end.
    pub off: bool,
    /// Bytes of the file.
    pub file_size: u64,
    /// Bytes of each ring.
    pub ring_size: u64,
    /// Most threads that could have been recorded.
    pub thread_capacity: u32,
    /// Traced processes. Each program run counts: a process that executes another traced program
    /// counts twice.
    pub processes: u32,
    /// Processes of these that were running when the recording ended.
    pub running: u32,
    /// Processes that should have been followed, and found no memory to write to.
    pub untraced_processes: u32,
    /// Processes into which libraries weren't loaded that record something.
    pub without_libraries: u32,
    /// Threads, in the order in which they got their rings.
    pub threads: Vec<ThreadSummary>,
    /// Processes that were not followed.
    pub children: Vec<Child>,
    /// The runtime's failures, by [`everycall_format::arena::counter`].
    pub counters: [u64; COUNTERS],
    /// Whether everything was stored while the program ran.
    pub streamed: bool,
    /// Files before the last one, including deleted ones, and their bytes.
    pub earlier_files: u32,
    /// See above.
    pub earlier_size: u64,
    /// Events that were overwritten before they were stored; they count as lost in their threads,
    /// too.
    pub missing: u64,
    /// Calls that were dropped because they were short.
    pub dropped: u64,
    /// How short, in nanoseconds; 0 if no calls are dropped.
    pub min_duration_ns: u64,
    /// Processes whose events all have a time of their own although that wasn't wanted.
    pub exact_instead: u32,
    /// Calls that were counted, by processes that count calls and don't record them.
    pub counted: Option<u64>,
    /// Nanoseconds that threads waited for the disk, added up.
    pub stall_ns: u64,
    /// CPU time of the recorder, in nanoseconds.
    pub cpu_ns: u64,
    /// Modules with traced code.
    pub modules: u32,
    /// Their paths.
    pub module_paths: BTreeSet<Vec<u8>>,
    /// Whether events other than overwritten ones could not be read; a warning says how many.
    pub is_incomplete: bool,
    /// Descriptions of what could not be recorded.
    pub warnings: Vec<String>,
}

/// One thread in figures.
#[derive(Clone, Debug, Default)]
pub struct ThreadSummary {
    /// Kernel thread id.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Entries and exits in the file.
    pub events: u64,
    /// Events known to be missing, except overwritten ones.
    pub lost: u64,
    /// Times in the file that recording was off for the thread.
    pub gaps: u64,
    /// Bytes that the thread wrote in all.
    pub written: u64,
    /// Whether older events were overwritten.
    pub overwritten: bool,
    /// Nanoseconds from the oldest event in the file to the program's end.
    pub reach_ns: u64,
}

/// A process that was not followed.
#[derive(Clone, Debug)]
pub struct Child {
    /// Process id.
    pub pid: u32,
    /// One of [`everycall_format::arena::child_kind`].
    pub kind: u32,
    /// Command name.
    pub name: String,
}

/// The text before the first NUL.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(bytes)).into_owned()
}

impl From<&ChildEntry> for Child {
    fn from(entry: &ChildEntry) -> Child {
        Child { pid: entry.pid, kind: entry.kind, name: text_of(&entry.name) }
    }
}

impl Summary {
    /// The summary that the header of a traced process's arena gives.
    #[must_use]
    pub fn of(arena: &ArenaHeader) -> Summary {
        Summary {
            traced: true,
            off: arena.state == process_state::OFF,
            ring_size: arena.ring_size,
            thread_capacity: arena.thread_capacity,
            counters: arena.counters,
            ..Summary::default()
        }
    }

    /// Entries and exits in the file.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.threads.iter().map(|thread| thread.events).fold(0, u64::saturating_add)
    }

    /// Events known to be missing, except overwritten ones.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lost).fold(0, u64::saturating_add)
    }

    /// Times that recording was off for a thread, as the program or somebody else wanted.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.threads.iter().map(|thread| thread.gaps).fold(0, u64::saturating_add)
    }

    /// Whether every call that should be in the file is there and lies where it was made: nothing
    /// was lost, and everything could be switched on and read. `is_run`: the file is of the
    /// program's whole life, so a selection that was changed meanwhile leaves a time without calls.
    /// Calls that an option leaves out aren't missing, nor are those made while recording was off
    /// at somebody's request: whoever says "complete" says how often that was
    /// ([`Summary::gaps`]). This is the only rule for the word "complete"; whether rings reach far
    /// enough is for the caller to say, by [`Summary::cut_threads`].
    #[must_use]
    pub fn is_complete(&self, is_run: bool) -> bool {
        let is_counted = |counter: &usize| self.counters.get(*counter).is_some_and(|count| *count > 0);
        self.lost() == 0
            && self.missing == 0
            && self.untraced_processes == 0
            && !self.off
            && !self.is_incomplete
            && !(is_run && is_counted(&counter::SELECTIONS))
            && !counter::MISSING.iter().any(is_counted)
    }

    /// The ring size, in bytes, that would have held every thread's events. `None` if no allowed
    /// size would.
    #[must_use]
    pub fn ring_size_for_all(&self) -> Option<u64> {
        let written = self.threads.iter().map(|thread| thread.written).max().unwrap_or(0);
        let size = written.max(self.ring_size.min(RING_SIZE_MAX)).checked_next_power_of_two()?;
        (size <= RING_SIZE_MAX).then_some(size)
    }

    /// The threads that lost their beginning, the shortest reach first.
    #[must_use]
    pub fn cut_threads(&self) -> Vec<&ThreadSummary> {
        let mut threads: Vec<_> = self.threads.iter().filter(|thread| thread.overwritten).collect();
        threads.sort_by_key(|thread| thread.reach_ns);
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_without_doubt_is_complete() {
        let complete = || Summary { threads: vec![ThreadSummary::default()], ..Summary::default() };
        assert!(complete().is_complete(true));
        for missing in counter::MISSING {
            let mut doubtful = complete();
            doubtful.counters[missing] = 1;
            assert!(!doubtful.is_complete(true) && !doubtful.is_complete(false), "{missing}");
        }
        let mut changed = complete();
        changed.counters[counter::SELECTIONS] = 1;
        assert!(!changed.is_complete(true) && changed.is_complete(false));
        let lost = ThreadSummary { lost: 1, ..ThreadSummary::default() };
        for doubtful in [
            Summary { threads: vec![lost], ..complete() },
            Summary { off: true, ..complete() },
            Summary { missing: 1, ..complete() },
            Summary { untraced_processes: 1, ..complete() },
            Summary { is_incomplete: true, ..complete() },
        ] {
            assert!(!doubtful.is_complete(false), "{doubtful:?}");
        }
    }

    #[test]
    fn the_ring_size_that_holds_everything() {
        let with = |written| Summary {
            ring_size: 1 << 20,
            threads: vec![ThreadSummary { written, ..ThreadSummary::default() }, ThreadSummary::default()],
            ..Summary::default()
        };
        assert_eq!(with(0).ring_size_for_all(), Some(1 << 20));
        assert_eq!(with(1 << 20).ring_size_for_all(), Some(1 << 20));
        assert_eq!(with((1 << 20) + 8).ring_size_for_all(), Some(2 << 20));
        assert_eq!(with(RING_SIZE_MAX).ring_size_for_all(), Some(RING_SIZE_MAX));
        assert_eq!(with(RING_SIZE_MAX + 8).ring_size_for_all(), None);
        assert_eq!(with(u64::MAX).ring_size_for_all(), None);
    }
}
