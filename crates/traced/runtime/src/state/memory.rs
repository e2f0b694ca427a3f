//! Memory that calls allocate and free: see [`everycall_format::memory`].
//!
//! Only the calling thread writes the numbers of its slot. A signal handler may come in between at
//! any point; it may not allocate (no C library allows that), and if it does, a number may lack
//! the handler's allocations.

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::state::times::Sums;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::memory::{NUMBERS, is_open, total_now, turned};
use everycall_format::times::{STAMP_OPENED, STAMP_PLACE, STAMP_VISITED};

/// Whether the preloaded library shall report allocations: one of [`wanted`].
pub(crate) static WANTED: AtomicU32 = AtomicU32::new(wanted::PERHAPS);

/// Values of [`WANTED`].
pub(crate) mod wanted {
    /// The runtime hasn't started.
    pub const PERHAPS: u32 = 0;
    pub const YES: u32 = 1;
    pub const NO: u32 = 2;
}

/// Memory allocated before the runtime started.
static EARLY: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// A set of [`everycall_format::memory::facts`], which a forked child inherits.
static FACTS: AtomicU32 = AtomicU32::new(0);

/// The effect of one call of an allocator.
#[derive(Clone, Copy)]
pub(crate) struct Change(pub(crate) [u64; NUMBERS]);

impl Change {
    fn add_to(self, numbers: &[AtomicU64; NUMBERS], times: u64) {
        for (number, more) in numbers.iter().zip(self.0) {
            number.store(number.load(Relaxed).wrapping_add(more.wrapping_mul(times)), Relaxed);
        }
    }

    /// Adds it where several threads add.
    fn share(self, numbers: &[AtomicU64; NUMBERS]) {
        for (number, more) in numbers.iter().zip(self.0).filter(|(_, more)| *more > 0) {
            number.fetch_add(more, Relaxed);
        }
    }
}

/// The process has an arena now, and counts what it allocates, or doesn't.
pub(crate) fn begin(arena: &Arena) {
    let is_wanted = dropped::counts_memory();
    WANTED.store(if is_wanted { wanted::YES } else { wanted::NO }, Relaxed);
    if is_wanted {
        dropped::memory_facts(arena).store(FACTS.load(Relaxed), Relaxed);
        Change(EARLY.each_ref().map(|number| number.swap(0, Relaxed)))
            .share(dropped::memory_elsewhere(arena));
    }
}

/// The preloaded library has learned something about the allocator.
pub(crate) fn note(facts: u32, arena: Option<&Arena>) {
    let facts = FACTS.fetch_or(facts, Relaxed) | facts;
    if let Some(arena) = arena.filter(|_| dropped::counts_memory()) {
        dropped::memory_facts(arena).store(facts, Relaxed);
    }
}

/// A thread that has no slot has allocated or freed. `arena`: `None` if the runtime hasn't started.
pub(crate) fn count_elsewhere(arena: Option<&Arena>, change: Change) {
    change.share(arena.map_or(&EARLY, dropped::memory_elsewhere));
}

/// Adds what was allocated or freed in a call with these sums; `meter` are those of its thread, at
/// place 0. If it is in no call, they are the same.
pub(crate) fn count(sums: Sums, meter: Sums, change: Change) {
    change.add_to(sums.own_memory(), 1);
    change.add_to(meter.total_memory(), 2);
}

/// As [`count`], in a call that isn't in the open-call stack.
pub(crate) fn count_deep(sums: Sums, meter: Sums, change: Change) {
    for (word, more) in sums.total_memory().iter().zip(change.0) {
        let now = word.load(Relaxed);
        if !is_open(now) {
            word.store(now.wrapping_add(more.wrapping_mul(2)), Relaxed);
        }
    }
    count(sums, meter, change);
}

/// Something will be allocated or freed in a call, for the first time. Returns the bits to add to
/// its stamp. `is_outermost`: no other call of its function is open around it.
pub(crate) fn open(sums: Sums, meter: Sums, is_outermost: bool) -> u32 {
    if !is_outermost || is_open(sums.total_memory()[0].load(Relaxed)) {
        return STAMP_VISITED;
    }
    for (word, meter) in sums.total_memory().iter().zip(meter.total_memory()) {
        word.store(turned(word.load(Relaxed), meter.load(Relaxed)), Relaxed);
    }
    STAMP_VISITED | STAMP_OPENED
}

/// A call with this stamp has ended.
pub(crate) fn close(sums: Sums, meter: Sums, stamp: u32) {
    if stamp & STAMP_OPENED != 0 {
        close_all(sums, meter);
    }
}

fn close_all(sums: Sums, meter: Sums) {
    for (word, meter) in sums.total_memory().iter().zip(meter.total_memory()) {
        let now = word.load(Relaxed);
        if is_open(now) {
            word.store(turned(now, meter.load(Relaxed)), Relaxed);
        }
    }
}

/// The numbers at a place of a slot: own and total.
pub(crate) fn read(arena: &Arena, slot: u32, place: u32) -> ([u64; NUMBERS], [u64; NUMBERS]) {
    let (sums, meter) = (Sums::at(arena, slot, place), Sums::at(arena, slot, 0));
    let load = |numbers: &[AtomicU64; NUMBERS]| numbers.each_ref().map(|number| number.load(Relaxed));
    let (own, mut totals) = (load(sums.own_memory()), load(sums.total_memory()));
    for ((word, meter), own) in totals.iter_mut().zip(load(meter.total_memory())).zip(own) {
        *word = total_now(*word, meter, own);
    }
    (own, totals)
}

/// A slot gets its next thread. Calls in which the one before has ended don't count further.
pub(crate) fn begin_thread(arena: &Arena, slot: u32) {
    let meter = Sums::at(arena, slot, 0);
    // Memory that was never written isn't read: that takes memory.
    if dropped::counts_memory() && meter.total_memory().iter().any(|number| number.load(Relaxed) != 0) {
        let others = core::iter::once(everycall_format::dropped::OTHERS);
        (1..dropped::places(arena).0)
            .filter(|place| *place != everycall_format::dropped::OTHERS)
            .chain(others)
            .for_each(|place| close_all(Sums::at(arena, slot, place), meter));
    }
}

const _: () = assert!(STAMP_PLACE & (STAMP_VISITED | STAMP_OPENED) == 0);
