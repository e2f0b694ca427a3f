//! Counts of calls by their values: see [`everycall_format::value_counts`]. Nothing waits and
//! nothing is allocated, so signal handlers may count, too.
#![allow(unsafe_code)] // Places in the arena, by their addresses.

use crate::state::arena::Arena;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::value_counts::{
    BYTES_MAX, PLACES, TRIES, ValueCount, ValueCountsHeader, first_place, hash, place_at,
};

/// The counts of a process that counts calls by their values instead of recording them.
#[derive(Clone, Copy)]
pub(crate) struct ValueCounts {
    /// Address of the header.
    at: u64,
}

impl ValueCounts {
    /// `None` if the process records its calls.
    pub(crate) fn of(arena: &Arena) -> Option<ValueCounts> {
        let offset = arena.layout().values_offset;
        (offset != 0).then(|| ValueCounts { at: arena.base() as u64 + offset })
    }

    /// Counts a call by the capture of its values.
    pub(crate) fn count(self, id: u32, bytes: &[u8]) {
        if bytes.len() > BYTES_MAX {
            self.count_too_long();
            return;
        }
        let hash = hash(id, bytes);
        let first = first_place(hash);
        let places = (first..first + TRIES).map(|place| Place(self.at + place_at(place & (PLACES - 1))));
        for place in places {
            if place.is_of(hash, id, bytes) {
                place.calls().fetch_add(1, Relaxed);
                return;
            }
        }
        self.word(offset_of!(ValueCountsHeader, others)).fetch_add(1, Relaxed);
    }

    /// Counts a call with values of too many bytes.
    pub(crate) fn count_too_long(self) {
        self.word(offset_of!(ValueCountsHeader, others)).fetch_add(1, Relaxed);
        self.word(offset_of!(ValueCountsHeader, too_long)).fetch_add(1, Relaxed);
    }

    fn word(self, offset: usize) -> &'static AtomicU64 {
        word_at(self.at + offset as u64)
    }
}

/// The address of a place.
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    fn state(self) -> &'static AtomicU64 {
        word_at(self.0 + offset_of!(ValueCount, state) as u64)
    }

    fn calls(self) -> &'static AtomicU64 {
        word_at(self.0 + offset_of!(ValueCount, calls) as u64)
    }

    /// Whether the place has these bytes. If it is free, it gets them.
    fn is_of(self, hash: u64, id: u32, bytes: &[u8]) -> bool {
        match self.state().load(Acquire) {
            0 => self.take(hash, id, bytes),
            state => state == hash | ValueCount::READY && self.has(id, bytes),
        }
    }

    fn take(self, hash: u64, id: u32, bytes: &[u8]) -> bool {
        if self.state().compare_exchange(0, hash | ValueCount::WRITING, Relaxed, Relaxed).is_err() {
            return false;
        }
        self.id_and_length().store(id_with_length(id, bytes), Relaxed);
        for (index, part) in bytes.chunks(8).enumerate() {
            self.bytes(index).store(word_of(part), Relaxed);
        }
        self.state().store(hash | ValueCount::READY, Release);
        true
    }

    fn has(self, id: u32, bytes: &[u8]) -> bool {
        self.id_and_length().load(Relaxed) == id_with_length(id, bytes)
            && bytes
                .chunks(8)
                .enumerate()
                .all(|(index, part)| self.bytes(index).load(Relaxed) == word_of(part))
    }

    fn id_and_length(self) -> &'static AtomicU64 {
        word_at(self.0 + offset_of!(ValueCount, id) as u64)
    }

    fn bytes(self, word: usize) -> &'static AtomicU64 {
        word_at(self.0 + (offset_of!(ValueCount, bytes) + 8 * word) as u64)
    }
}

/// The fields `id` and `length` of a place as one word.
fn id_with_length(id: u32, bytes: &[u8]) -> u64 {
    u64::from(id) | (bytes.len() as u64) << 32
}

/// Up to eight bytes as a word, with zeros behind them.
fn word_of(part: &[u8]) -> u64 {
    part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn word_at(address: u64) -> &'static AtomicU64 {
    // SAFETY: aligned, and within the arena by its layout, as places are below `PLACES`, and bytes
    // below `BYTES_MAX`. The arena is never unmapped.
    unsafe { &*(address as *const AtomicU64) }
}
