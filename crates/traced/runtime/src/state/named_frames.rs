//! Which triggers name which frames by id: a table for each area of triggers, written when a name
//! is stored and when an area gets its rules. The tables are private, so a forked child has its
//! parent's.
#![allow(unsafe_code)] // Tables that are mapped here.

use crate::sys::lock::Lock;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::frame::{FIRST, IDS, STEP, is_frame};
use everycall_format::trigger::LIVE_AREAS;

/// Areas: that of `record` or of the process itself, and those of clients.
pub(crate) const AREAS: usize = 1 + LIVE_AREAS as usize;

/// By area, [`IDS`] words: of each id, a bit for each rule that names it. Null as long as none is
/// named. Never unmapped.
static TABLES: [AtomicPtr<AtomicU32>; AREAS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; AREAS];
/// Held while a name is compared, or all of them.
static LOCK: AtomicU32 = AtomicU32::new(0);

fn table(area: usize) -> &'static [AtomicU32] {
    let first = TABLES.get(area).map_or(core::ptr::null_mut(), |table| table.load(Acquire));
    if first.is_null() {
        return &[];
    }
    // SAFETY: mapped by `put` with this size, and never unmapped.
    unsafe { core::slice::from_raw_parts(first, IDS as usize) }
}

/// The rules of an area that name the function with this code offset, a bit for each.
pub(crate) fn rules_of(area: usize, code: u32) -> u32 {
    if !is_frame(code) {
        return 0;
    }
    let id = code.wrapping_sub(FIRST) / STEP;
    table(area).get(id as usize).map_or(0, |rules| rules.load(Relaxed))
}

/// Whether any rule of an area may name a frame.
pub(crate) fn are_any(area: usize) -> bool {
    !table(area).is_empty()
}

/// Stores the rules of an area that name an id. Without memory for the table, none does. The caller
/// holds the [lock].
pub(crate) fn put(area: usize, id: u32, rules: u32) {
    if rules != 0 && !are_any(area) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let size = u64::from(IDS) * size_of::<AtomicU32>() as u64;
        if let (Some(base), Some(place)) =
            (system::map(size, PROT_READ | PROT_WRITE, flags, -1), TABLES.get(area))
        {
            place.store(base.cast(), Release);
        }
    }
    if let Some(place) = table(area).get(id as usize) {
        place.store(rules, Relaxed);
    }
}

/// Removes all rules of an area. The caller holds the [lock].
pub(crate) fn clear(area: usize) {
    for rules in table(area) {
        // Only what isn't 0 takes memory.
        if rules.load(Relaxed) != 0 {
            rules.store(0, Relaxed);
        }
    }
}

/// Held while a name is compared, or all of them.
pub(crate) fn lock() -> Lock<'static> {
    Lock::take(&LOCK)
}

/// In a forked child: a thread of the parent may have held the lock.
pub(crate) fn begin_child() {
    LOCK.store(0, Relaxed);
}
