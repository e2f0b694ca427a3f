//! Arenas.

use crate::{Bytes, Process, clock_reading, module_entry, open_call};

const PAGE: usize = 4096;
const MODULES: usize = 8;
const CHILDREN: usize = 4;
const PATHS: usize = 1024;

/// The arena of a process: what its memory would hold now. All rings have the layout of the first.
#[must_use]
pub fn arena_image(process: &Process) -> Vec<u8> {
    let (segment_size, capacity) = process
        .threads
        .first()
        .map_or((4096, 16), |thread| (thread.ring.segment_words() * 8, thread.ring.capacity()));
    let ring_size = segment_size * capacity;
    let deepest = process.threads.iter().map(|thread| thread.ring.open_calls().len()).max().unwrap_or(0);
    let open_capacity = deepest + 2;
    let open_bytes = (open_capacity * 24).next_multiple_of(PAGE);
    let children_at = PAGE + MODULES * 128;
    let paths_at = children_at + CHILDREN * 64;
    let threads_at = (paths_at + PATHS).next_multiple_of(PAGE);
    let stride = PAGE + open_bytes + ring_size;
    let slots = process.threads.len() + 1;
    let size = threads_at + slots * stride;
    let paths: usize = process.modules.iter().map(|module| module.path.len()).sum();

    let mut bytes = Bytes::default();
    bytes.padded(b"everycal", 8).u32(1).u32(440).u64(size as u64);
    bytes.u64(ring_size as u64).u64(segment_size as u64);
    bytes.u32(open_capacity as u32).u32(slots as u32).u32(MODULES as u32).u32(CHILDREN as u32);
    bytes.u64(PAGE as u64).u64(children_at as u64).u64(paths_at as u64).u64(PATHS as u64);
    bytes.u64(threads_at as u64).u64(stride as u64);
    bytes.u32(1).u32(process.pid).u32(1).u32(0).u32(0);
    bytes.u32(process.modules.len() as u32).u32(0).u32(process.threads.len() as u32).u64(paths as u64);
    clock_reading(&mut bytes, &process.clock.first().copied().unwrap_or_default());
    bytes.zeros(32 * 8);
    assert_eq!(bytes.0.len(), 440, "the header's size");

    bytes.0.resize(PAGE, 0);
    let mut path_offset = 0;
    for (index, module) in process.modules.iter().enumerate() {
        module_entry(&mut bytes, module, path_offset, index == 0);
        path_offset += module.path.len() as u32;
    }
    bytes.0.resize(paths_at, 0);
    process.modules.iter().for_each(|module| bytes.0.extend(module.path.as_bytes()));
    for (slot, thread) in process.threads.iter().enumerate() {
        let slot_at = threads_at + slot * stride;
        bytes.0.resize(slot_at, 0);
        let segments: Vec<&[u64]> = thread.ring.segments().collect();
        let newest = thread.ring.first_segment() + segments.len() as u64 - 1;
        bytes.u32(1).u32(thread.tid).u32(0).u32(0).u64(thread.start_ticks).u64(newest);
        bytes.padded(thread.name.as_bytes(), 16);
        bytes.0.resize(slot_at + PAGE, 0);
        bytes.u64(u64::MAX).u64(u64::MAX).u64(0);
        for (place, call) in thread.ring.open_calls().iter().enumerate() {
            open_call(&mut bytes, call, place);
        }
        let ring_at = slot_at + PAGE + open_bytes;
        bytes.0.resize(ring_at + ring_size, 0);
        for (number, words) in (thread.ring.first_segment()..).zip(&segments) {
            let at = ring_at + (number as usize % capacity) * segment_size;
            for (place, word) in words.iter().enumerate() {
                bytes.0[at + 8 * place..at + 8 * place + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    bytes.0.resize(size, 0);
    bytes.0
}
