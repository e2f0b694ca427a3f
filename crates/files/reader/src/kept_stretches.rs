//! One timeline of a recording and its kept calls.
//!
//! A kept call has a snapshot of its own, with segments that rings have overwritten since. Segments
//! are numbered in their thread, so each that the recording's end doesn't have is taken from one of
//! the snapshots, and each is there once. Where some are missing between two stretches, their
//! numbers show that.

use std::collections::HashMap;
use std::ops::Range;

use crate::file::TraceFile;
use crate::model::{Reason, Snapshot, Thread, ThreadKey};
use crate::segments::{Piece, segment_words};

/// Identifies a thread in all snapshots: process, slot, generation, and the number of its fiber or
/// the kernel's number.
type Identity = (usize, u32, u32, Option<u32>, u32);

fn identity(snapshot: &Snapshot, thread: &Thread) -> Identity {
    let tid = if thread.fiber.is_some() { 0 } else { thread.tid };
    (snapshot.process, thread.slot, thread.generation, thread.fiber, tid)
}

/// A thread that gets segments of others.
struct Merged {
    key: ThreadKey,
    pieces: Vec<Piece>,
    /// Whether segments were added.
    is_changed: bool,
}

impl TraceFile<'_> {
    /// Adds the segments of kept calls to the threads of the recording, and leaves out the kept
    /// calls' snapshots. Where a process has only kept calls, its newest one takes the others.
    pub fn merge_kept(&mut self) {
        let is_kept = |snapshot: &Snapshot| snapshot.reason == Reason::Trigger;
        let snapshots = &self.indexed.recording.snapshots;
        if !snapshots.iter().any(is_kept) {
            return;
        }
        let mut kept: Vec<usize> = (0..snapshots.len()).filter(|index| is_kept(&snapshots[*index])).collect();
        kept.sort_by_key(|index| std::cmp::Reverse((snapshots[*index].ticks, snapshots[*index].number)));
        // By process, the snapshot that is the recording.
        let mut bases: HashMap<usize, usize> = HashMap::new();
        let whole = (0..snapshots.len()).filter(|index| !is_kept(&snapshots[*index]));
        for index in whole.chain(kept.iter().copied()) {
            let has_threads = snapshots[index].threads.iter().any(|thread| !thread.is_sampled);
            let base = bases.entry(snapshots[index].process).or_insert(index);
            if has_threads && snapshots[*base].threads.iter().all(|thread| thread.is_sampled) {
                *base = index;
            }
        }
        let mut merged: HashMap<Identity, Merged> = HashMap::new();
        for (index, snapshot) in snapshots.iter().enumerate() {
            if is_kept(snapshot) && bases.get(&snapshot.process) != Some(&index) {
                continue;
            }
            for (thread, facts) in snapshot.threads.iter().enumerate().filter(|(_, facts)| !facts.is_sampled)
            {
                let key = ThreadKey { snapshot: index, thread };
                let pieces =
                    self.indexed.threads.get(&key).map(|chunks| chunks.events.clone()).unwrap_or_default();
                merged.entry(identity(snapshot, facts)).or_insert(Merged { key, pieces, is_changed: false });
            }
        }
        // Threads that ended before the recording did, and whose rings others have now.
        let mut added: Vec<(ThreadKey, ThreadKey)> = Vec::new();
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for index in kept.iter().copied() {
            let snapshot = &self.indexed.recording.snapshots[index];
            let Some(base) = bases.get(&snapshot.process).copied().filter(|base| *base != index) else {
                continue;
            };
            let whole = &self.indexed.recording.snapshots[base];
            let words = segment_words(snapshot.segment_size);
            let Some(words) = words.filter(|_| snapshot.segment_size == whole.segment_size) else { continue };
            for (thread, facts) in snapshot.threads.iter().enumerate() {
                let from = ThreadKey { snapshot: index, thread };
                let more = self.indexed.threads.get(&from).map_or(&[][..], |chunks| &chunks.events);
                match merged.get_mut(&identity(snapshot, facts)) {
                    Some(merged) => merged.add(more, words),
                    None => {
                        let count = counts.entry(base).or_insert(whole.threads.len());
                        let key = ThreadKey { snapshot: base, thread: *count };
                        *count += 1;
                        added.push((key, from));
                        let new = Merged { key, pieces: more.to_vec(), is_changed: false };
                        merged.insert(identity(snapshot, facts), new);
                    }
                }
            }
        }
        for (key, from) in added {
            let thread = self.indexed.recording.snapshots[from.snapshot].threads[from.thread].clone();
            self.indexed.recording.snapshots[key.snapshot].threads.push(thread);
            if let Some(chunks) = self.indexed.threads.get(&from).cloned() {
                self.indexed.threads.insert(key, chunks);
            }
        }
        for Merged { key, pieces, .. } in merged.into_values().filter(|merged| merged.is_changed) {
            let snapshot = &mut self.indexed.recording.snapshots[key.snapshot];
            let words = segment_words(snapshot.segment_size).unwrap_or(1);
            let thread = &mut snapshot.threads[key.thread];
            if let Some(first) = pieces.first() {
                thread.first_segment = first.from.min(thread.first_segment);
            }
            let numbers = pieces.iter().map(|piece| used(piece, words));
            thread.segments = numbers.map(|of| of.end.saturating_sub(of.start)).fold(0, u64::saturating_add);
            self.indexed.threads.entry(key).or_default().events = pieces;
        }
        let wanted: Vec<u32> =
            bases.values().map(|base| self.indexed.recording.snapshots[*base].number).collect();
        self.select_snapshots(|snapshot| !is_kept(snapshot) || wanted.contains(&snapshot.number));
    }
}

/// The numbers of the segments that a piece gives.
fn used(piece: &Piece, words: u64) -> Range<u64> {
    let numbers = piece.numbers(words);
    piece.from.max(numbers.start)..piece.until.min(numbers.end)
}

impl Merged {
    /// Adds those segments of an older snapshot that aren't there yet.
    fn add(&mut self, more: &[Piece], words: u64) {
        let mut new = Vec::new();
        for (place, piece) in more.iter().enumerate() {
            let all = piece.numbers(words);
            let mut from = all.start;
            let add = |new: &mut Vec<Piece>, range: Range<u64>| {
                if range.start < range.end {
                    let ends = place + 1 == more.len() && range.end == all.end;
                    new.push(Piece { from: range.start, until: range.end, ends, ..*piece });
                }
            };
            let first = self.pieces.partition_point(|there| used(there, words).end <= all.start);
            let rest = self.pieces.get(first..).unwrap_or_default().iter().map(|there| used(there, words));
            for there in rest.take_while(|there| there.start < all.end) {
                add(&mut new, from..there.start.min(all.end));
                from = from.max(there.end);
            }
            add(&mut new, from..all.end);
        }
        if new.is_empty() {
            return;
        }
        self.is_changed = true;
        self.pieces.extend(new);
        self.pieces.sort_by_key(|piece| piece.from);
        let mut last: Option<(u64, bool)> = None;
        for piece in &mut self.pieces {
            let numbers = used(piece, words);
            piece.is_behind_cut = last.is_some_and(|(end, is_cut)| is_cut && end == numbers.start);
            last = Some((numbers.end, piece.ends && piece.ends_early(words)));
        }
    }
}
