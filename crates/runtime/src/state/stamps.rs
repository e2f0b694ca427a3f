//! Which events have a time of their own: see [`everycall_format::stamp`].
//!
//! The hooks' table has a double word for each function, at twice the code offset of its entry: the
//! lower one is a word of [`site`], the upper one holds what was [`seen`] of its events.
//!
//! Whether an event may go without is learned from the times of its function's events, so it takes
//! no analysis of code, and a short loop doesn't count as a long one.
#![allow(unsafe_code)] // A table that is mapped here, and the C library's area.

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::sys::system::{
    self, MADV_DONTDUMP, MADV_DONTNEED, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE,
    PROT_READ, PROT_WRITE,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::{ArenaHeader, EXIT_WITHOUT_STAMP};
use everycall_format::event::{EXIT, WORD_SIZE};
use everycall_format::stamp::{BOUNDED_EVENTS, EXACT, ORDER};
use everycall_hooks::arch::{self, Sequence};
use everycall_hooks::{ModuleDescriptor, site};
use everycall_ring::Control;

/// One of [`everycall_format::stamp`]. Forked children inherit it, with the table, which they find
/// empty.
static STAMPS: AtomicU32 = AtomicU32::new(EXACT);
/// The hooks' table. Behind it, one that stays empty.
static TABLE: AtomicU64 = AtomicU64::new(0);
static GUARD_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Those of modules, by their index, and one for the modules that have none.
static SEQUENCES: [Sequence; MODULES + 1] = [const { Sequence::new() }; MODULES + 1];
const MODULES: usize = 256;

/// Bytes of the table. Entries are at least five bytes apart, so double words don't overlap.
const TABLE_SIZE: u64 = (EXIT as u64) * 2 + size_of::<u64>() as u64;

/// What was seen of a function's entries, and in the next bits of its exits.
mod seen {
    pub const BITS: u32 = 14;
    /// How often the stretches beside it were short.
    pub const SHORT_MAX: u32 = (1 << 9) - 1;
    /// How often one of them was long.
    pub const LONG_SHIFT: u32 = 9;
    pub const LONG_MAX: u32 = (1 << 5) - 1;
}

const _: () =
    assert!(everycall_format::dropped::FUNCTIONS as usize * size_of::<u64>() <= site::COUNT as usize);

/// Begins, when the process does. Without a guard or room for the table, every event gets a stamp.
pub(crate) fn begin(arena: &Arena, wanted: u32) {
    if wanted == EXACT || dropped::is_counting() {
        return;
    }
    let Some(offset) = arch::guard_offset() else { return };
    let [.., none] = &SEQUENCES;
    // Kernels may leave the guard of a thread that waits alone: it isn't within a sequence. Then it
    // doesn't tell of waits.
    // SAFETY: the offset is the guard's, and the sequence is never freed.
    if !unsafe {
        arch::is_guarded(offset)
            && arch::is_cleared(offset, none, || system::wait(&AtomicU32::new(0), 0, WAIT_NS))
    } {
        return;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Some(table) = system::map(2 * TABLE_SIZE, PROT_READ | PROT_WRITE, flags, -1) else { return };
    if system::advise(table, 2 * TABLE_SIZE, MADV_WIPEONFORK).is_err() {
        system::unmap(table, 2 * TABLE_SIZE);
        return;
    }
    let _ = system::advise(table, 2 * TABLE_SIZE, MADV_DONTDUMP);
    GUARD_OFFSET.store(offset, Relaxed);
    TABLE.store(table as u64, Relaxed);
    STAMPS.store(wanted, Relaxed);
    note(arena);
}

/// How long the first thread waits once, so that the kernel stops it.
const WAIT_NS: u64 = 1000;

/// Notes the choice in an arena, for readers.
pub(crate) fn note(arena: &Arena) {
    let place = core::mem::offset_of!(ArenaHeader, stamps);
    // SAFETY: in the arena's header.
    unsafe { AtomicU32::from_ptr(arena.base().wrapping_add(place).cast()) }
        .store(STAMPS.load(Relaxed), Relaxed);
}

/// Lets a module's hooks know. Events of modules without an index get stamps.
pub(crate) fn prepare(module: &ModuleDescriptor, index: Option<u32>) {
    let table = TABLE.load(Relaxed);
    if table == 0 {
        return;
    }
    let [modules @ .., none] = &SEQUENCES;
    let (sequence, table) = match index.and_then(|index| modules.get(index as usize)) {
        Some(sequence) => (sequence, table),
        None => (none, table + TABLE_SIZE),
    };
    let [start, end, abort] = [0, 1, 2].map(|number| module.sequence[number].load(Relaxed));
    sequence.begin(start, end, abort);
    module.guard_offset.store(GUARD_OFFSET.load(Relaxed), Relaxed);
    module.guard.store(sequence as *const Sequence as u64, Relaxed);
    module.unstamped.store(table, Relaxed);
}

/// A module with these code offsets is about to be unloaded.
pub(crate) fn end(module: &ModuleDescriptor, codes: core::ops::Range<u32>) {
    let [modules @ .., _] = &SEQUENCES;
    if TABLE.load(Relaxed) != 0
        && let Some(sequence) = modules.get(module.index.load(Relaxed) as usize)
    {
        sequence.end();
    }
    if let Some(Function(first)) = Function::at(codes.start) {
        let _ = system::advise(first.cast(), 2 * u64::from(codes.end - codes.start), MADV_DONTNEED);
    }
}

/// The calling thread, or a fiber that it makes, begins. Without a guard of its own, all its events
/// get stamps.
pub(crate) fn begin_thread(control: &Control) {
    let distance = match STAMPS.load(Relaxed) {
        EXACT => 0,
        // SAFETY: the offset is the guard's.
        _ if !unsafe { arch::is_guarded(GUARD_OFFSET.load(Relaxed)) } => 0,
        ORDER => u64::from(u32::MAX),
        _ => BOUNDED_EVENTS * WORD_SIZE as u64,
    };
    control.stamp_due.store(0, Relaxed);
    control.stamp_after.store(distance, Relaxed);
}

/// Whether hooks may write events without stamps.
pub(crate) fn are_left_out() -> bool {
    STAMPS.load(Relaxed) != EXACT
}

/// The function whose entry is at a code offset counts at this offset.
pub(crate) fn counts_at(code: u32, offset: u32) {
    if let Some(function) = Function::at(code) {
        let old = function.load();
        function.store(old & !u64::from(site::COUNT) | u64::from(offset & site::COUNT));
    }
}

/// What was seen of an event of the function whose entry is at a code offset: the stretches from the
/// event before it and to the event after it, together.
pub(crate) fn learn(code: u32, is_exit: bool, was_long: bool) {
    let Some(function) = Function::at(code) else { return };
    let old = function.load();
    if old & u64::from(site::COUNT) == 0 {
        // The function's first call has not been counted yet.
        return;
    }
    let may = u64::from(if is_exit { EXIT_WITHOUT_STAMP } else { site::ENTRY });
    if old & may != 0 && !was_long {
        return;
    }
    if STAMPS.load(Relaxed) == ORDER {
        function.store(old | may);
        return;
    }
    let shift = u32::BITS + if is_exit { seen::BITS } else { 0 };
    let seen = (old >> shift) as u32 & ((1 << seen::BITS) - 1);
    let (mut short, mut long) = (seen & seen::SHORT_MAX, seen >> seen::LONG_SHIFT);
    match was_long {
        true => long = (long + 1).min(seen::LONG_MAX),
        false => short = (short + 1).min(seen::SHORT_MAX),
    }
    let is_short = short >= SHORT_ENOUGH + SHORT_FOR_LONG * long;
    if !is_short && short == seen::SHORT_MAX {
        (short, long) = (0, long / 2);
    }
    let seen = u64::from(long << seen::LONG_SHIFT | short);
    let kept = old & !(((1 << seen::BITS) - 1) << shift | may);
    function.store(kept | seen << shift | if is_short { may } else { 0 });
}

/// An event may go without a stamp after so many short stretches, and so many more for each long one.
const SHORT_ENOUGH: u32 = 16;
const SHORT_FOR_LONG: u32 = 48;

/// A double word of the table. They aren't aligned. Threads may write one at the same time; then
/// one of them has learned in vain.
struct Function(*mut u64);

impl Function {
    /// That of the function whose entry is at a code offset.
    fn at(code: u32) -> Option<Function> {
        let table = TABLE.load(Relaxed);
        (table != 0).then(|| Function((table + 2 * u64::from(code)) as *mut u64))
    }

    fn load(&self) -> u64 {
        // SAFETY: within the table, which is never unmapped.
        unsafe { self.0.read_unaligned() }
    }

    fn store(&self, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.write_unaligned(value) }
    }
}
