//! Which processes can be traced and read from outside.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use everycall_format::arena::{process_state, thread_state};
use everycall_format::event::Word;
use everycall_machine::clock;
use everycall_machine::proc_files::all_processes;
use everycall_ring::SegmentEntry;

use crate::arena::LiveArena;
use crate::arena::Reached;
use crate::error::LiveError;
use crate::find::{self, attach};
use crate::process::ProcessFacts;

/// A process of which a snapshot can be taken.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Facts from the kernel.
    pub process: ProcessFacts,
    /// Nanoseconds since it began to be traced.
    pub age_ns: u64,
    /// When that was, in nanoseconds since 1970.
    pub since_ns: u64,
    /// Threads that made traced calls and weren't found to have ended.
    pub threads: u32,
    /// Threads that have ended and whose events are still in rings.
    pub ended_threads: u32,
    /// Entries and exits that these threads have written, including overwritten ones.
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

/// All processes of which snapshots can be taken, and the reason for each traced process of which
/// none can. Those of other users are not found.
#[must_use]
pub fn list() -> (Vec<Listed>, Vec<(u32, LiveError)>) {
    let (mut listed, mut others) = (Vec::new(), Vec::new());
    for pid in all_processes().into_iter().filter(|pid| find::may_be_traced(*pid)) {
        match attach(pid) {
            Ok(arena) => listed.push(describe(&arena)),
            // It ended meanwhile, has shared memory of its own, or is an untraced child.
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
    let generations: HashMap<u32, u32> =
        threads.iter().map(|(slot, thread)| (*slot, thread.generation)).collect();
    Listed {
        process: arena.process().clone(),
        age_ns: clock::read().monotonic_raw_ns.saturating_sub(header.start.monotonic_raw_ns),
        since_ns: header.start.realtime_ns,
        threads: (threads.len() - ended) as u32,
        ended_threads: ended as u32,
        events: events(arena, &generations),
        ring_size: header.ring_size,
        on: header.state == process_state::TRACING,
        reached: arena.reached(),
        file: arena.file().map(Path::to_owned),
    }
}

/// Entries and exits that the threads of these slots and generations have written: those before
/// each thread's newest segment found here, and those in it, unless the thread has left it
/// meanwhile.
fn events(arena: &LiveArena, generations: &HashMap<u32, u32>) -> u64 {
    let pool = arena.pool();
    // By slot: number of the segment, where it is, and events before it.
    let mut newest: HashMap<u32, (u64, u32, u64)> = HashMap::new();
    let owner = |entry: &SegmentEntry| (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
    for (index, entry) in (0..arena.segments_taken()).zip(pool.entries) {
        let of @ (slot, generation) = owner(entry);
        let number = entry.number.load(Relaxed);
        let is_newer = newest.get(&slot).is_none_or(|(known, ..)| number > *known);
        if entry.pins.load(Acquire) == 0 || generations.get(&slot) != Some(&generation) || !is_newer {
            continue;
        }
        let before = entry.events_before.load(Relaxed);
        fence(Acquire);
        if owner(entry) == of && entry.number.load(Relaxed) == number {
            newest.insert(slot, (number, index, before));
        }
    }
    let counts = newest.iter().map(|(slot, (number, index, before))| {
        let words = pool.segment(*index).iter().map(|word| word.load(Relaxed)).take_while(|word| *word != 0);
        let inside = words.filter(|word| Word::decode(*word).is_event()).count() as u64;
        fence(Acquire);
        let is_still = pool.entries.get(*index as usize).is_some_and(|entry| {
            generations.get(slot) == Some(&owner(entry).1) && entry.number.load(Relaxed) == *number
        });
        before.saturating_add(if is_still { inside } else { 0 })
    });
    counts.fold(0, u64::saturating_add)
}
