//! Times of calls that are counted and not recorded: see [`everycall_format::times`].
//!
//! Hooks need one more number for each open call: how long the calls took that it has made and that
//! have ended. It lies at a fixed distance from the call's entry in the open-call stack, in private
//! memory.
#![allow(unsafe_code)] // Sums and numbers of open calls, by their addresses.

use crate::state::arena::Arena;
use crate::sys::system::{
    self, MADV_DONTDUMP, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_format::ect::TimedCalls;
use everycall_format::memory::NUMBERS;
use everycall_format::times::{BUCKETS, STAMP_PLACE, TIME_SUMS_SIZE, TimeSums, bucket};
use everycall_ring::Control;

/// The distance from an open call's entry to the time of its callees; 0 if there is none. A forked
/// child inherits the memory, and its arena lies where its parent's did.
static CALLEES: AtomicU64 = AtomicU64::new(0);

/// Maps the memory for the times of callees. Returns false if the arena has no place for times, or
/// there is no memory.
pub(crate) fn begin(arena: &Arena) -> bool {
    let layout = arena.layout();
    if layout.times_offset == 0 {
        return false;
    }
    if CALLEES.load(Relaxed) == 0 {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let size = memory_size(arena);
        let Some(memory) = system::map(size, PROT_READ | PROT_WRITE, flags, -1) else { return false };
        // Its contents are of no use later, and tools that dump all of it would take long.
        let _ = system::advise(memory, size, MADV_DONTDUMP);
        let stacks = arena.base() as u64 + layout.open_calls_offset;
        CALLEES.store((memory as u64).wrapping_sub(stacks), Relaxed);
    }
    true
}

/// As many bytes as all open-call stacks.
fn memory_size(arena: &Arena) -> u64 {
    u64::from(arena.layout().thread_capacity).saturating_mul(arena.layout().open_call_stride)
}

/// That memory; empty if there is none.
pub(crate) fn memory(arena: &Arena) -> Range<u64> {
    match CALLEES.load(Relaxed) {
        0 => 0..0,
        callees => {
            let stacks = arena.base() as u64 + arena.layout().open_calls_offset;
            let first = stacks.wrapping_add(callees);
            first..first.wrapping_add(memory_size(arena))
        }
    }
}

/// The distance from an open call's entry to the time of its callees.
pub(crate) fn callees() -> u64 {
    CALLEES.load(Relaxed)
}

/// Address of a slot's sums.
pub(crate) fn sums_at(arena: &Arena, slot: u32) -> u64 {
    let slot = slot.min(arena.layout().thread_capacity.saturating_sub(1));
    arena.base() as u64 + arena.layout().times_at(slot, 0).unwrap_or(0)
}

/// Where the sums of the function at `place` are, from those of a slot on.
pub(crate) const fn offset_of_place(place: u32) -> u32 {
    place * TIME_SUMS_SIZE as u32
}

/// The sums of a function in the calling thread's slot.
#[derive(Clone, Copy)]
pub(crate) struct Sums(u64);

impl Sums {
    /// Those at `offset`, which [`offset_of_place`] has returned, or an open call's stamp.
    pub(crate) fn of(control: &Control, offset: u32) -> Sums {
        Sums(control.short_counts.load(Relaxed) + u64::from(offset & STAMP_PLACE))
    }

    /// Those at a place of a slot.
    pub(crate) fn at(arena: &Arena, slot: u32, place: u32) -> Sums {
        Sums(sums_at(arena, slot) + u64::from(offset_of_place(place.min(arena.layout().functions() - 1))))
    }

    fn word(self, offset: usize) -> &'static AtomicU64 {
        // SAFETY: within the arena by its layout, aligned, never unmapped.
        unsafe { &*((self.0 + offset as u64) as *const AtomicU64) }
    }

    /// Only the calling thread writes them, with signals blocked.
    fn add(self, offset: usize, more: u64) {
        let word = self.word(offset);
        word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// The numbers of [`everycall_format::memory`], in the calls themselves.
    pub(crate) fn own_memory(self) -> &'static [AtomicU64; NUMBERS] {
        self.numbers(offset_of!(TimeSums, memory_own))
    }

    /// The numbers of [`everycall_format::memory`], in the calls and their callees.
    pub(crate) fn total_memory(self) -> &'static [AtomicU64; NUMBERS] {
        self.numbers(offset_of!(TimeSums, memory_total))
    }

    fn numbers(self, offset: usize) -> &'static [AtomicU64; NUMBERS] {
        // SAFETY: as above.
        unsafe { &*((self.0 + offset as u64) as *const [AtomicU64; NUMBERS]) }
    }

    /// A call has begun.
    pub(crate) fn count(self) {
        self.add(offset_of!(TimeSums, calls), 1);
    }

    /// Where the outermost open call is, or was.
    pub(crate) fn outermost(self) -> &'static AtomicU64 {
        self.word(offset_of!(TimeSums, outermost))
    }

    /// A call has ended, which took `took`, and its callees `callees`.
    pub(crate) fn end(self, took: u64, callees: u64, is_outermost: bool) {
        self.add(offset_of!(TimeSums, own), took.wrapping_sub(callees));
        let into = if is_outermost { offset_of!(TimeSums, total) } else { offset_of!(TimeSums, nested) };
        self.add(into, took);
        self.word(offset_of!(TimeSums, shortest)).fetch_max(!took, Relaxed);
        self.word(offset_of!(TimeSums, longest)).fetch_max(took, Relaxed);
        const { assert!(BUCKETS <= 64) };
        self.add(offset_of!(TimeSums, histogram) + bucket(took) * size_of::<u64>(), 1);
    }
}

/// The sums of the function at `place` in a slot, without what the function is.
pub(crate) fn read(arena: &Arena, slot: u32, place: u32) -> TimedCalls {
    let sums = Sums::at(arena, slot, place);
    let of = |offset: usize| sums.word(offset).load(Relaxed);
    let mut histogram = [0; BUCKETS];
    for (count, at) in histogram.iter_mut().zip(0..) {
        *count = of(offset_of!(TimeSums, histogram) + at * size_of::<u64>());
    }
    let sums = TimeSums {
        calls: of(offset_of!(TimeSums, calls)),
        total: of(offset_of!(TimeSums, total)),
        own: of(offset_of!(TimeSums, own)),
        shortest: of(offset_of!(TimeSums, shortest)),
        longest: of(offset_of!(TimeSums, longest)),
        nested: of(offset_of!(TimeSums, nested)),
        histogram,
        ..TimeSums::default()
    };
    TimedCalls::of(&sums)
}

/// The time of the callees of the call at `entry` of an open-call stack.
pub(crate) fn callees_of(entry: u64) -> &'static AtomicU64 {
    // SAFETY: as far from the memory's beginning as the entry is from the first open-call stack.
    unsafe { &*(entry.wrapping_add(callees()) as *const AtomicU64) }
}
