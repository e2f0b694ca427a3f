//! Which events have a time of their own: see [`everycall_format::stamp`].
//!
//! The hooks' table has a word for each site, at the lower half of its event word:
//!
//! - 0 or negative: the event gets a stamp. A negative word holds what was seen of the site so far;
//! - positive: it may go without. For entries, the word is the offset of the function's count.
//!
//! Whether a site may go without is learned from the times of its events, so it takes no analysis of
//! code, and a short loop doesn't count as a long one.
#![allow(unsafe_code)] // A table that is mapped here, and the C library's area.

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::sys::system::{
    self, MADV_DONTDUMP, MADV_DONTNEED, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE,
    PROT_READ, PROT_WRITE,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::ArenaHeader;
use everycall_format::event::{EXIT, WORD_SIZE};
use everycall_format::stamp::{BOUNDED_EVENTS, EXACT, ORDER};
use everycall_hooks::{ModuleDescriptor, arch};
use everycall_ring::Control;

/// One of [`everycall_format::stamp`]. Forked children inherit it, with the table, which they find
/// empty.
static STAMPS: AtomicU32 = AtomicU32::new(EXACT);
/// The hooks' table, and what modules get.
static TABLE: AtomicU64 = AtomicU64::new(0);
static GUARD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Bytes of the table: a word may begin at each byte.
const TABLE_SIZE: u64 = (1 << 32) + size_of::<u32>() as u64;

/// A site's word that isn't positive: what was seen of it.
mod seen {
    /// The sign: there is something.
    pub const MARK: u32 = 1 << 31;
    /// The offset of the function's count.
    pub const OFFSET: u32 = (1 << 17) - 1;
    /// How often the stretches beside it were short.
    pub const SHORT_SHIFT: u32 = 17;
    pub const SHORT_MAX: u32 = (1 << 9) - 1;
    /// How often one of them was long.
    pub const LONG_SHIFT: u32 = 26;
    pub const LONG_MAX: u32 = (1 << 5) - 1;
}

const _: () =
    assert!(everycall_format::dropped::FUNCTIONS as usize * size_of::<u64>() <= seen::OFFSET as usize + 1);

/// Begins, when the process does. Without a guard or room for the table, every event gets a stamp.
pub(crate) fn begin(arena: &Arena, wanted: u32) {
    if wanted == EXACT || dropped::is_counting() {
        return;
    }
    // SAFETY: no other thread is there yet.
    let Some((offset, guard)) = (unsafe { arch::guard() }) else { return };
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let Some(table) = system::map(TABLE_SIZE, PROT_READ | PROT_WRITE, flags, -1) else { return };
    if system::advise(table, TABLE_SIZE, MADV_WIPEONFORK).is_err() {
        system::unmap(table, TABLE_SIZE);
        return;
    }
    let _ = system::advise(table, TABLE_SIZE, MADV_DONTDUMP);
    GUARD[0].store(offset, Relaxed);
    GUARD[1].store(guard, Relaxed);
    TABLE.store(table as u64, Relaxed);
    STAMPS.store(wanted, Relaxed);
    note(arena);
}

/// Notes the choice in an arena, for readers.
pub(crate) fn note(arena: &Arena) {
    let place = core::mem::offset_of!(ArenaHeader, stamps);
    // SAFETY: in the arena's header.
    unsafe { AtomicU32::from_ptr(arena.base().wrapping_add(place).cast()) }
        .store(STAMPS.load(Relaxed), Relaxed);
}

/// Lets a module's hooks know.
pub(crate) fn prepare(module: &ModuleDescriptor) {
    module.guard_offset.store(GUARD[0].load(Relaxed), Relaxed);
    module.guard.store(GUARD[1].load(Relaxed), Relaxed);
    module.unstamped.store(TABLE.load(Relaxed), Relaxed);
}

/// The calling thread, or a fiber that it makes, begins. Without a guard of its own, all its events
/// get stamps.
pub(crate) fn begin_thread(control: &Control) {
    let distance = match STAMPS.load(Relaxed) {
        EXACT => 0,
        // SAFETY: the offset is the guard's.
        _ if !unsafe { arch::is_guarded(GUARD[0].load(Relaxed)) } => 0,
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

/// The entry at a code offset counts at this offset.
pub(crate) fn counts_at(code: u32, offset: u32) {
    if let Some(word) = Word::at(code) {
        word.store(seen::MARK | offset & seen::OFFSET);
    }
}

/// A module with these code offsets is about to be unloaded.
pub(crate) fn forget(codes: core::ops::Range<u32>) {
    for first in [codes.start, codes.start | EXIT] {
        if let Some(Word(word)) = Word::at(first) {
            let _ = system::advise(word.cast(), u64::from(codes.end - codes.start), MADV_DONTNEED);
        }
    }
}

/// What was seen at the site with these lower 32 bits of an event word: the stretches from the event
/// before it and to the event after it, together.
pub(crate) fn learn(site: u32, was_long: bool) {
    let Some(word) = Word::at(site) else { return };
    let old = word.load();
    let is_order = STAMPS.load(Relaxed) == ORDER;
    let may_go_without = old != 0 && old & seen::MARK == 0;
    if may_go_without && (is_order || !was_long) {
        return;
    }
    let is_exit = site & EXIT != 0;
    let offset = if is_exit { 0 } else { old & seen::OFFSET };
    if !is_exit && offset == 0 {
        // The function's first call has not been counted yet.
        return;
    }
    let (mut short, mut long) = match old & seen::MARK {
        0 => (0, 0),
        _ => (old >> seen::SHORT_SHIFT & seen::SHORT_MAX, old >> seen::LONG_SHIFT & seen::LONG_MAX),
    };
    match was_long {
        true => long = (long + 1).min(seen::LONG_MAX),
        false => short += 1,
    }
    let new = if is_order || short >= SHORT_ENOUGH + SHORT_FOR_LONG * long {
        if is_exit { 1 } else { offset }
    } else {
        if short >= seen::SHORT_MAX {
            (short, long) = (0, long / 2);
        }
        seen::MARK | long << seen::LONG_SHIFT | short << seen::SHORT_SHIFT | offset
    };
    word.store(new);
}

/// A site may go without a stamp after so many short stretches, and so many more for each long one.
const SHORT_ENOUGH: u32 = 16;
const SHORT_FOR_LONG: u32 = 128;

/// A word of the table. Words aren't aligned, but no two sites' words overlap. Threads may write one
/// at the same time; then one of them has learned in vain.
struct Word(*mut u32);

impl Word {
    /// That of the site with these lower 32 bits of an event word.
    fn at(site: u32) -> Option<Word> {
        let table = TABLE.load(Relaxed);
        (table != 0).then(|| Word((table + u64::from(site)) as *mut u32))
    }

    fn load(&self) -> u32 {
        // SAFETY: within the table, which is never unmapped.
        unsafe { self.0.read_unaligned() }
    }

    fn store(&self, value: u32) {
        // SAFETY: as above.
        unsafe { self.0.write_unaligned(value) }
    }
}
