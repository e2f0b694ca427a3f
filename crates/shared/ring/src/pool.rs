//! The pool of segments that the rings of all threads share, and the segments' owners.
//!
//! A segment's `pins` are its owner and those that have pinned it
//! ([`everycall_format::arena::pinned_by`]). The protocol is wait-free for threads: every step is
//! one atomic operation, and a process that dies between two of them costs at most one segment.

use crate::free_list::FreeList;
use crate::primitive::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::arena::pinned_by;

/// A [`everycall_format::arena::SegmentEntry`] that several processes use.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SegmentEntry {
    /// A set of [`pinned_by`].
    pub pins: AtomicU32,
    /// Index, plus 1, of the segment to which its thread advanced; in the pool, of the next one.
    pub next: AtomicU32,
    /// Its thread's slot.
    pub slot: AtomicU32,
    /// The slot's generation.
    pub generation: AtomicU32,
    /// Its number in its thread's ring.
    pub number: AtomicU64,
    /// Events that the thread wrote before it.
    pub events_before: AtomicU64,
    /// In the pool: bytes from its start that may be non-zero.
    pub written: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SegmentEntry>() == size_of::<everycall_format::arena::SegmentEntry>());

/// A segment that was taken from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its place in the pool.
    pub index: u32,
    /// Bytes from its start that may be non-zero.
    pub written: u64,
}

/// The pool's parts in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// The segments' entries: owners, pins, numbers.
    pub entries: &'a [SegmentEntry],
    /// The words of all segments.
    pub words: &'a [AtomicU64],
    /// Address of the first word.
    pub base: u64,
    /// Words of a segment; a power of two.
    pub segment_words: usize,
    /// Segments taken from the pool's end so far; later ones were never written.
    pub taken: &'a AtomicU32,
    /// Returned segments: a [`FreeList`].
    pub free: &'a AtomicU64,
    /// Segments that are owned by a thread or pinned.
    pub in_use: &'a AtomicU32,
    /// Segments that the rings of all threads together may have.
    pub ring_segments: &'a AtomicU32,
    /// Segments that may be in use beyond that.
    pub extra: u32,
    /// Time (ticks) until which rings take new segments rather than their oldest:
    /// [`crate::GrowRequest`].
    pub grow_until: &'a AtomicU64,
    /// Number of segments with disk space, from the first one on. `None` if all have memory.
    pub room: Option<&'a AtomicU32>,
}

impl<'a> Pool<'a> {
    /// The words of segment `index`; none for an index out of range.
    pub fn segment(&self, index: u32) -> &'a [AtomicU64] {
        let first = index as usize * self.segment_words;
        self.words.get(first..first + self.segment_words).unwrap_or(&[])
    }

    /// The address of segment `index`.
    #[must_use]
    pub fn address(&self, index: u32) -> u64 {
        self.base + u64::from(index) * self.segment_size()
    }

    /// Bytes of a segment.
    #[must_use]
    pub fn segment_size(&self) -> u64 {
        (self.segment_words * everycall_format::event::WORD_SIZE) as u64
    }

    /// Takes a segment for a ring below its limit. `None` if the pool is empty.
    #[must_use]
    pub fn take(&self) -> Option<Taken> {
        let taken = self.take_given_back().or_else(|| {
            let room = self.room.map_or(u32::MAX, |room| room.load(Acquire));
            let capacity = room.min(self.entries.len() as u32);
            let next = |count: u32| (count < capacity).then_some(count + 1);
            let index = self.taken.fetch_update(Relaxed, Relaxed, next).ok()?;
            Some(Taken { index, written: 0 })
        })?;
        self.in_use.fetch_add(1, Relaxed);
        Some(taken)
    }

    /// Takes a segment for a ring at its limit. `None` if too many segments are in use.
    #[must_use]
    pub fn take_extra(&self) -> Option<Taken> {
        let allowed = self.ring_segments.load(Relaxed).saturating_add(self.extra);
        (self.in_use.load(Relaxed) < allowed).then(|| self.take()).flatten()
    }

    fn take_given_back(&self) -> Option<Taken> {
        let entry = |index: u32| self.entries.get(index as usize);
        let index = FreeList::new(self.free).take(|index| Some(entry(index)?.next.load(Relaxed)))?;
        Some(Taken { index, written: entry(index)?.written.load(Relaxed) })
    }

    /// Returns a segment without pins.
    fn give_back(&self, index: u32) {
        let Some(entry) = self.entries.get(index as usize) else { return };
        self.in_use.fetch_sub(1, Relaxed);
        FreeList::new(self.free).give(index, |next| entry.next.store(next, Relaxed));
    }

    /// Pins segment `index` with `bit`, unless it has no pin or is being cleared. The caller
    /// must read the segment's owner afterwards: from then on it stays the same.
    #[must_use]
    pub fn pin(&self, index: u32, bit: u32) -> bool {
        let pinned = |pins: u32| (pins != 0 && pins & pinned_by::CLEARING == 0).then_some(pins | bit);
        self.entries
            .get(index as usize)
            .is_some_and(|entry| entry.pins.fetch_update(AcqRel, Relaxed, pinned).is_ok())
    }

    /// Whether `bit` still pins segment `index`: a thread that finds no other segment clears the
    /// bit.
    #[must_use]
    pub fn is_pinned(&self, index: u32, bit: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| entry.pins.load(Acquire) & bit != 0)
    }

    /// Clears `bit` of segment `index`; the last pin returns the segment to the pool. Returns
    /// whether this was the last pin.
    pub fn release(&self, index: u32, bit: u32) -> bool {
        let Some(entry) = self.entries.get(index as usize) else { return false };
        let less = |pins: u32| (pins & bit != 0).then_some(pins & !bit);
        let is_last = entry.pins.fetch_update(AcqRel, Relaxed, less) == Ok(bit);
        if is_last {
            self.give_back(index);
        }
        is_last
    }

    /// Takes segment `index` from its owner for its next use, if no process has pinned it.
    pub(crate) fn reuse(&self, index: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| {
            entry.pins.compare_exchange(pinned_by::OWNER, pinned_by::CLEARING, AcqRel, Relaxed).is_ok()
        })
    }

    /// Takes segment `index` for its next use, even if it is pinned.
    pub(crate) fn seize(&self, index: u32) {
        if let Some(entry) = self.entries.get(index as usize) {
            entry.pins.swap(pinned_by::CLEARING, AcqRel);
        }
    }

    /// Writes the owner of a segment that was taken.
    pub(crate) fn begin(&self, index: u32, slot: u32, generation: u32, number: u64, events_before: u64) {
        let Some(entry) = self.entries.get(index as usize) else { return };
        entry.next.store(0, Relaxed);
        entry.slot.store(slot, Relaxed);
        entry.generation.store(generation, Relaxed);
        entry.number.store(number, Relaxed);
        entry.events_before.store(events_before, Relaxed);
        entry.written.store(self.segment_size(), Relaxed);
    }

    /// Allows segment `index` to be pinned from now on.
    pub(crate) fn open(&self, index: u32) {
        if let Some(entry) = self.entries.get(index as usize) {
            entry.pins.store(pinned_by::OWNER, Release);
        }
    }
}
