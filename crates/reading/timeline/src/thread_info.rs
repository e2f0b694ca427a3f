//! Facts about a thread before its timeline is made.

use everycall_calls::{FIBERS_FROM, TASKS_FROM};
use everycall_reader::ThreadKey;

use crate::renames::Rename;

/// Facts about a thread in one snapshot before its timeline is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its place in [`crate::Trace::threads`], for [`crate::Trace::thread_events`].
    pub index: usize,
    /// Its place in the recording.
    pub key: ThreadKey,
    /// Its place in [`crate::Trace::processes`].
    pub process: usize,
    /// Process id.
    pub pid: u32,
    /// Kernel thread id; of a fiber, that of the thread that ran it last.
    pub tid: u32,
    /// Of a fiber, a stack that threads run which isn't their own: its number in its process, from
    /// 1.
    pub fiber: Option<u32>,
    /// It isn't a thread: its events are counters of the process, which the recorder has sampled.
    pub is_sampled: bool,
    /// Its slot among its process's threads, and how many threads had it before.
    pub slot: (u32, u32),
    /// Name; bytes that are no UTF-8 are replaced.
    pub name: String,
    /// When it got other names while its events were recorded, as far as the kernel reported it.
    pub renames: Vec<Rename>,
    /// When the thread took its ring, in nanoseconds since the origin.
    pub start_ns: u64,
    /// First and last moment that its events cover, in nanoseconds since the origin; `None` where
    /// it has none. Open calls may have begun earlier.
    pub reach: Option<(u64, u64)>,
    /// Entries and exits that are there.
    pub events: u64,
    /// Entries that are there.
    pub entries: u64,
    /// Events known to be missing within the covered time.
    pub losses: u64,
    /// Events of missing segments, before or within the covered time, as far as they were counted.
    pub missing: u64,
    /// Times that recording was off.
    pub gaps: u64,
    /// How long it was off in all, in nanoseconds.
    pub gaps_ns: u64,
    /// Times that its stack was suspended, while its thread ran others: of a fiber, or of a thread
    /// that runs some.
    pub suspended: u64,
    /// How long it was in all, in nanoseconds.
    pub suspended_ns: u64,
    /// Words that can't be decoded: truncated records, payloads without their first word.
    pub malformed_words: u64,
    /// Whether every segment of the thread exists, from its beginning on.
    pub is_complete: bool,
    /// Segments before the reach: they were overwritten.
    pub segments_overwritten: u64,
    /// Whether segments that belong to what the file is of were overwritten. What a session's file
    /// doesn't have from before the session isn't missing.
    pub is_cut: bool,
    /// Segments within the covered time that are missing or damaged.
    pub segments_lost: u64,
    /// Calls that had not returned when the snapshot was taken.
    pub open_calls: u64,
    /// Frames that were left without an exit, in the thread's whole life.
    pub unwound: u64,
    /// Exits whose entry the runtime did not know, in the thread's whole life.
    pub orphan_exits: u64,
    /// Events that the runtime dropped, in the thread's whole life.
    pub lost_busy: u64,
    /// Events deeper than the open-call stack, in the thread's whole life.
    pub deep: u64,
    /// Short calls that were dropped in the time that its events cover; `None` if none were to be.
    pub dropped_within: Option<u64>,
}

impl ThreadInfo {
    /// The time before its oldest event, if older ones were overwritten: from its start on.
    #[must_use]
    pub fn overwritten_ns(&self) -> Option<(u64, u64)> {
        let (first, _) = self.reach.filter(|_| self.segments_overwritten > 0)?;
        (self.start_ns < first).then_some((self.start_ns, first))
    }

    /// Its name, and the names that it had before, as `server (before: loader, app)`: the last ones
    /// first, at most three. Those that it bore for less than a millisecond aren't among them:
    /// threads that name themselves first of all have that of their creator until then.
    #[must_use]
    pub fn title(&self) -> String {
        const SHOWN: usize = 3;
        const SHORT: u64 = 1_000_000;
        let begins = [self.reach.map_or(self.start_ns, |(first, _)| first)];
        let begins = begins.into_iter().chain(self.renames.iter().map(|rename| rename.at));
        let mut before: Vec<&str> = Vec::new();
        for (begin, rename) in begins.zip(&self.renames).collect::<Vec<_>>().into_iter().rev() {
            let name = rename.before.as_str();
            let is_new = !name.is_empty() && name != self.name && !before.contains(&name);
            if is_new && rename.at.saturating_sub(begin) >= SHORT {
                before.push(name);
            }
        }
        if before.is_empty() {
            return self.name.clone();
        }
        let more = before.len().saturating_sub(SHOWN);
        before.truncate(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} (before: {}{more})", self.name, before.join(", "))
    }

    /// Its number, if it is a task: a coroutine that threads run step by step.
    #[must_use]
    pub fn task(&self) -> Option<u32> {
        self.fiber.and_then(|fiber| fiber.checked_sub(TASKS_FROM))
    }

    /// A number that no other one of its process has: its kernel thread id; a fiber's from
    /// [`FIBERS_FROM`] on.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.fiber.map_or(self.tid, |fiber| FIBERS_FROM.saturating_add(fiber))
    }
}
