//! Scans the events that the threads of a running process write, without affecting it: no segment
//! is pinned, and segments that are overwritten before they are scanned are counted.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use everycall_format::arena::{pinned_by, thread_state};
use everycall_format::event::WORD_SIZE;
use everycall_tracefile::is_segment;

use crate::memory::contents::{ArenaContents, ArenaFront};

/// A thread: its slot, and the slot's generation.
pub type Owner = (u32, u32);

/// The events that a thread has written since the last scan.
#[derive(Clone, Copy, Debug)]
pub struct News<'a> {
    /// The thread.
    pub owner: Owner,
    /// Kernel thread id.
    pub tid: u32,
    /// A segment from its beginning, as far as it is complete.
    pub words: &'a [u64],
    /// Number of words that were already there at the last scan.
    pub seen: usize,
    /// Whether segments were overwritten between the last look and this segment.
    pub is_cut: bool,
}

/// The state of the scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// By thread: number of a segment, and how many of its words were scanned.
    places: HashMap<Owner, (u64, usize)>,
    bytes: Vec<u8>,
    words: Vec<u64>,
    /// Segments that were overwritten before they were scanned.
    pub missed: u64,
}

impl Scan {
    /// Passes on the new events of all threads, thread by thread.
    pub fn pass(
        &mut self,
        arena: &dyn ArenaContents,
        shared: &dyn ArenaFront,
        each: &mut dyn FnMut(News<'_>),
    ) {
        let pool = shared.pool();
        let taken = (pool.taken.load(Acquire) as usize).min(pool.entries.len());
        let mut segments: Vec<(Owner, u64, u32)> = Vec::new();
        for (index, entry) in (0..).zip(&pool.entries[..taken]) {
            let pins = entry.pins.load(Acquire);
            if pins == 0 || pins & pinned_by::CLEARING != 0 {
                continue;
            }
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            let number = entry.number.load(Relaxed);
            if self.places.get(&owner).is_none_or(|(next, _)| number >= *next) {
                segments.push((owner, number, index));
            }
        }
        segments.sort_unstable();
        for group in segments.chunk_by(|a, b| a.0 == b.0) {
            let owner = group[0].0;
            if owner.0 >= arena.thread_count() {
                continue;
            }
            let header = arena.thread(owner.0);
            let is_its = matches!(header.state, thread_state::USED | thread_state::ENDED);
            let tid = if is_its && header.generation == owner.1 { header.tid } else { 0 };
            let newest = group.last().map_or(0, |(_, number, _)| *number);
            for &(_, number, index) in group {
                self.segment(arena, shared, (owner, tid), (number, index, number == newest), each);
            }
        }
        let alive: HashSet<Owner> = segments.iter().map(|(owner, ..)| *owner).collect();
        self.places.retain(|owner, _| alive.contains(owner));
    }

    fn segment(
        &mut self,
        arena: &dyn ArenaContents,
        shared: &dyn ArenaFront,
        (owner, tid): (Owner, u32),
        (number, index, is_newest): (u64, u32, bool),
        each: &mut dyn FnMut(News<'_>),
    ) {
        self.bytes.resize(arena.segment_size() as usize, 0);
        arena.read_segment(index, &mut self.bytes);
        fence(Acquire);
        let Some(entry) = shared.pool().entries.get(index as usize) else { return };
        let identity = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
        if identity != owner || entry.number.load(Relaxed) != number || !is_segment(&self.bytes, number) {
            return;
        }
        let words = self.bytes.as_chunks::<WORD_SIZE>().0.iter().map(|word| u64::from_le_bytes(*word));
        self.words.clear();
        if is_newest {
            // Up to the word that is being written.
            self.words.extend(words.take_while(|word| *word as u32 != 0));
        } else {
            self.words.extend(words);
        }
        let before = self.places.get(&owner).copied();
        let seen = before.filter(|(at, _)| *at == number).map_or(0, |(_, seen)| seen);
        let next = before.map_or(0, |(at, _)| at.saturating_add(1));
        let missed = if before.is_some_and(|(at, _)| at == number) { 0 } else { number.saturating_sub(next) };
        self.missed = self.missed.saturating_add(missed);
        if self.words.len() > seen {
            each(News { owner, tid, words: &self.words, seen, is_cut: missed > 0 });
        }
        self.places.insert(owner, (number, self.words.len().max(seen)));
    }
}
