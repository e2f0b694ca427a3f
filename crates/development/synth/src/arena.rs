//! Arenas.

use crate::{Bytes, Process, clock_reading, module_entry, open_call};

const PAGE: usize = 4096;
const MODULES: usize = 8;
const CHILDREN: usize = 4;
const PATHS: usize = 1024;
/// Number of functions whose short calls can be counted.
const DROPPED_FUNCTIONS: usize = 16384;
/// Bytes for the names of frames by id.
const FRAMES: usize = PAGE;

/// The arena of a process: the bytes that its memory would hold now. All rings have the layout of
/// the first.
#[must_use]
pub fn arena_image(process: &Process) -> Vec<u8> {
    let (segment_size, capacity) = process
        .threads
        .first()
        .map_or((4096, 16), |thread| (thread.ring.segment_words() * 8, thread.ring.capacity()));
    let ring_size = segment_size * capacity;
    let deepest = process.threads.iter().map(|thread| thread.ring.open_calls().len()).max().unwrap_or(0);
    let open_capacity = deepest + 2;
    let children_at = PAGE + MODULES * 128;
    let paths_at = children_at + CHILDREN * 64;
    let table_at = (paths_at + PATHS).next_multiple_of(PAGE);
    let in_rings: usize = process.threads.iter().map(|thread| thread.ring.segments().count()).sum();
    // One in the pool, one being cleared, and one that was never used.
    let segments = in_rings + 3;
    let threads_at = (table_at + segments * 40).next_multiple_of(PAGE);
    let stride = (open_capacity * 24).next_multiple_of(PAGE);
    let slots = process.threads.len() + 1;
    let dropped_at = (threads_at + slots * 128).next_multiple_of(PAGE);
    let open_calls_at = dropped_at + PAGE + DROPPED_FUNCTIONS * 16;
    // Behind the counts of dropped calls, for as many functions.
    let all_calls_at = open_calls_at + slots * (stride + DROPPED_FUNCTIONS * 8);
    let segments_at = all_calls_at + slots * DROPPED_FUNCTIONS * 8;
    let frames_at = (segments_at + segments * segment_size).next_multiple_of(PAGE);
    let size = frames_at + FRAMES;
    let paths: usize = process.modules.iter().map(|module| module.path.len()).sum();

    let mut bytes = Bytes::default();
    bytes.padded(b"everycal", 8).u32(8).u32(608).u64(size as u64);
    bytes.u64(ring_size as u64).u64(segment_size as u64);
    bytes.u32(open_capacity as u32).u32(slots as u32).u32(MODULES as u32).u32(CHILDREN as u32);
    bytes.u64(PAGE as u64).u64(children_at as u64).u64(paths_at as u64).u64(PATHS as u64);
    bytes.u64(threads_at as u64).u64(open_calls_at as u64).u64(stride as u64);
    bytes.u64(table_at as u64).u64(segments_at as u64);
    bytes.u32(segments as u32).u32(16);
    bytes.u32(1).u32(process.pid).u32(1).u32(0).u32(0);
    bytes.u32(process.modules.len() as u32).u32(0).u32(process.threads.len() as u32);
    bytes.u32(in_rings as u32 + 2).u32(in_rings as u32).u32((slots * capacity) as u32).u32(0);
    // The segment after those of the rings is in the pool.
    bytes.u64(in_rings as u64 + 1).u64(0).u32(0).u32(0).u64(paths as u64);
    clock_reading(&mut bytes, &process.clock.first().copied().unwrap_or_default());
    bytes.zeros(32 * 8);
    bytes.zeros(8).zeros(16).u64(dropped_at as u64).u64(0).u64(0).u64(all_calls_at as u64);
    bytes.u64(frames_at as u64).u64(FRAMES as u64).u32(0).u32(0).u64(0).u32(0).u32(0);
    assert_eq!(bytes.0.len(), 608, "the header's size");

    bytes.0.resize(PAGE, 0);
    let mut path_offset = 0;
    for (index, module) in process.modules.iter().enumerate() {
        module_entry(&mut bytes, module, path_offset, index == 0);
        path_offset += module.path.len() as u32;
    }
    bytes.0.resize(paths_at, 0);
    process.modules.iter().for_each(|module| bytes.0.extend(module.path.as_bytes()));
    // Thread 0 has the last stack, and so on down.
    let stack_of = |slot: usize| slots - 1 - slot;
    bytes.0.resize(threads_at, 0);
    for (slot, thread) in process.threads.iter().enumerate() {
        bytes.u32(1).u32(thread.tid).u32(0).u32(0).u64(thread.start_ticks).u64(thread.ring.newest_segment());
        bytes.padded(thread.name.as_bytes(), 16).zeros(4 * 8 + 3 * 8);
        bytes.u32(capacity as u32).u32(0).u32(stack_of(slot) as u32 + 1).u32(0).u64(0);
    }
    for (slot, thread) in process.threads.iter().enumerate().rev() {
        bytes.0.resize(open_calls_at + stack_of(slot) * stride, 0);
        bytes.u64(u64::MAX).u64(u64::MAX).u64(0);
        for (place, call) in thread.ring.open_calls().iter().enumerate() {
            open_call(&mut bytes, call, place);
        }
    }
    bytes.0.resize(size, 0);
    let mut pool = Pool { bytes: &mut bytes.0, table_at, segments_at, segment_size, next: 0 };
    // Newest first, so that positions in the pool differ from segment numbers.
    for (slot, thread) in process.threads.iter().enumerate() {
        let mut numbered: Vec<_> = (thread.ring.first_segment()..).zip(thread.ring.segments()).collect();
        numbered.reverse();
        for (number, words) in numbered {
            pool.add(1, slot as u32, number, words);
        }
    }
    // Segments in the pool or being cleared hold old events, which belong to no thread.
    let stale: Vec<u64> = process
        .threads
        .first()
        .map_or_else(Vec::new, |thread| thread.ring.segments().next().unwrap_or_default().to_vec());
    pool.add(0, 0, 7, &stale);
    pool.add(0x8000_0000, 0, 8, &stale);
    bytes.0
}

/// Writes segments and their entries, one position after the other.
struct Pool<'a> {
    bytes: &'a mut Vec<u8>,
    table_at: usize,
    segments_at: usize,
    segment_size: usize,
    next: usize,
}

impl Pool<'_> {
    fn add(&mut self, pins: u32, slot: u32, number: u64, words: &[u64]) {
        let mut entry = Bytes::default();
        entry.u32(pins).u32(0).u32(slot).u32(0).u64(number).u64(0).u64(0);
        let at = self.table_at + self.next * 40;
        self.bytes[at..at + 40].copy_from_slice(&entry.0);
        let at = self.segments_at + self.next * self.segment_size;
        for (place, word) in words.iter().enumerate() {
            self.bytes[at + 8 * place..at + 8 * place + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.next += 1;
    }
}
