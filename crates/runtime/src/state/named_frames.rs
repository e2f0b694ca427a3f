//! Which triggers name which frames by id: a table for each area of triggers, written when a name is
//! told and when an area gets its rules. The tables are private, so a forked child has its parent's.
#![allow(unsafe_code)] // Tables that are mapped here.

use crate::state::arena::Arena;
use crate::state::frames::{self, Name};
use crate::state::trigger_table::Triggers;
use crate::sys::lock::Lock;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::frame::{FIRST, IDS, STEP, is_frame};
use everycall_format::frame_pattern::matches;
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

/// Stores the rules of an area that name an id. Without memory for the table, none does.
fn put(area: usize, id: u32, rules: u32) {
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

/// The rules of an area that mean this name.
fn rules_for(triggers: &Triggers, name: &Name<'_>) -> u32 {
    let rules = triggers.frame_rules().filter(|(_, pattern)| matches(pattern, name.name, name.file));
    rules.fold(0, |all, (rule, _)| all | 1 << rule)
}

/// An id was named. Returns whether it is the first frame that the rules of an area name.
pub(crate) fn look_at(arena: &Arena, name: &Name<'_>) -> bool {
    let _lock = Lock::take(&LOCK);
    let mut is_first = false;
    for triggers in Triggers::all(arena) {
        let had_any = are_any(triggers.area);
        put(triggers.area, name.id, rules_for(&triggers, name));
        is_first |= !had_any && are_any(triggers.area);
    }
    is_first
}

/// An area has got its rules: compares all names. `begin` puts it into use: names that are told
/// from then on are compared one by one.
pub(crate) fn begin(arena: &Arena, triggers: &Triggers, begin: impl FnOnce()) {
    let _lock = Lock::take(&LOCK);
    for rules in table(triggers.area) {
        // Only what isn't 0 takes memory.
        if rules.load(Relaxed) != 0 {
            rules.store(0, Relaxed);
        }
    }
    if triggers.frame_rules().next().is_some() {
        frames::each(arena, |name| put(triggers.area, name.id, rules_for(triggers, &name)));
    }
    begin();
}

/// In a forked child: a thread of the parent may have held the lock.
pub(crate) fn begin_child() {
    LOCK.store(0, Relaxed);
}
