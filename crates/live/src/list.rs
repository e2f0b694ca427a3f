//! Which processes can be asked.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use everycall_format::arena::{process_state, thread_state};
use everycall_format::event::Word;
use everycall_recorder::clock;

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::find::{self, Reached, attach};
use crate::process::ProcessFacts;

/// A process that can be asked.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What the kernel tells of it.
    pub process: ProcessFacts,
    /// Nanoseconds since it began to be traced.
    pub age_ns: u64,
    /// When that was, in nanoseconds since 1970.
    pub since_ns: u64,
    /// Threads that made traced calls and weren't found to have ended.
    pub threads: u32,
    /// Threads that have ended and are kept.
    pub ended_threads: u32,
    /// Entries and exits that these threads have written, those that were overwritten included.
    pub events: u64,
    /// Bytes of a ring.
    pub ring_size: u64,
    /// Whether it records.
    pub on: bool,
    /// Whose its arena is.
    pub reached: Reached,
    /// Its crash file.
    pub file: Option<PathBuf>,
}

/// All processes that can be asked, and why those can't that only look so. Those of other users aren't seen.
#[must_use]
pub fn list() -> (Vec<Listed>, Vec<(u32, LiveError)>) {
    let (mut listed, mut others) = (Vec::new(), Vec::new());
    for pid in find::all_processes().into_iter().filter(|pid| find::may_be_traced(*pid)) {
        match attach(pid) {
            Ok(arena) => listed.push(describe(&arena)),
            // It went meanwhile, has shared memory of its own, or is an untraced child.
            Err(
                LiveError::NoProcess | LiveError::Ended | LiveError::NotTraced | LiveError::Inherited { .. },
            ) => {}
            Err(error) => others.push((pid, error)),
        }
    }
    (listed, others)
}

fn describe(arena: &LiveArena) -> Listed {
    let header = arena.header();
    let threads: Vec<_> =
        (0..arena.thread_count()).filter_map(|slot| Some((slot, arena.thread(slot)?))).collect();
    let ended = threads.iter().filter(|(_, thread)| thread.state == thread_state::ENDED).count();
    let mut newest: Vec<(u32, u32, u64)> =
        threads.iter().map(|(slot, thread)| (*slot, thread.generation, thread.segment)).collect();
    newest.sort_unstable();
    let pool = arena.pool();
    let mut events = 0_u64;
    for (index, entry) in (0..arena.segments_taken()).zip(pool.entries) {
        let whose = || (entry.slot.load(Relaxed), entry.generation.load(Relaxed), entry.number.load(Relaxed));
        let of = whose();
        if entry.holders.load(Relaxed) == 0 || newest.binary_search(&of).is_err() {
            continue;
        }
        let words = pool.segment(index).iter().map(|word| word.load(Relaxed)).take_while(|word| *word != 0);
        let in_it = words.filter(|word| Word::decode(*word).is_event()).count() as u64;
        if whose() == of {
            events = events.saturating_add(entry.events_before.load(Relaxed)).saturating_add(in_it);
        }
    }
    Listed {
        process: arena.process().clone(),
        age_ns: clock::read().monotonic_raw_ns.saturating_sub(header.start.monotonic_raw_ns),
        since_ns: header.start.realtime_ns,
        threads: (threads.len() - ended) as u32,
        ended_threads: ended as u32,
        events,
        ring_size: header.ring_size,
        on: header.state == process_state::TRACING,
        reached: arena.reached(),
        file: arena.file().map(Path::to_owned),
    }
}
