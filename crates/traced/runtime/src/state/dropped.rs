//! Calls that hooks count and don't record: see [`everycall_format::dropped`]. These are short
//! calls, or, in a process that only counts, all calls. And the places of functions, which counts
//! of all calls beside the ring ([`crate::state::all_calls`]) have, too.
//!
//! A hook finds the place of its function's count in the process's [`everycall_hooks::ShortMap`],
//! or in its module's table. If the function isn't there, the slow path adds it, after the entry or
//! at the exit. So the map is changed with signals blocked, by several threads at a time, without a
//! lock.
//!
//! The map that hooks read has the first [`FUNCTIONS`] places. Further places are in further maps,
//! which only the slow path reads, each with as many as all before it. So the maps of a program
//! with few functions take little memory.
#![allow(unsafe_code)] // Shared memory: structures and counts in the arena, by their addresses.

use crate::state::arena::Arena;
use crate::state::more_places::{MORE_MAPS, nobodys};
use crate::state::process::Process;
use crate::state::times;
use crate::sys::wiped;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use everycall_format::dropped::{DroppedFunction, DroppedHeader, FUNCTIONS, OTHERS, counting};
use everycall_format::memory::NUMBERS;
use everycall_hooks::short_map;
use everycall_ring::Control;

/// The lower half of an entry whose code offset was given to another module, after the function's
/// was unloaded. No function has this code offset.
const GONE: u32 = 1;

/// Not 0 in a process that counts its calls and doesn't record them. It stays as it was at the
/// start.
static COUNTING: AtomicU32 = AtomicU32::new(counting::OFF);

/// Called when the process starts, and in a forked child: stores whether calls are only counted. If
/// the recorder's arena doesn't request that, `wanted` does: one of [`counting`].
pub(crate) fn begin_counting(arena: &Arena, wanted: u32) {
    let place = field!(header(arena), DroppedHeader, counting, AtomicU32);
    if place.load(Relaxed) == counting::OFF {
        place.store(wanted, Relaxed);
    }
    if counting::has_times(place.load(Relaxed)) && !times::begin(arena) {
        place.store(counting::CALLS, Relaxed);
    }
    COUNTING.store(place.load(Relaxed), Relaxed);
}

/// The facts of [`everycall_format::memory`] in an arena.
pub(crate) fn memory_facts(arena: &Arena) -> &'static AtomicU32 {
    field!(header(arena), DroppedHeader, memory_facts, AtomicU32)
}

/// Memory allocated and freed by threads that have no slot in an arena.
pub(crate) fn memory_elsewhere(arena: &Arena) -> &'static [AtomicU64; NUMBERS] {
    field!(header(arena), DroppedHeader, memory_elsewhere, [AtomicU64; NUMBERS])
}

/// Whether the process counts its calls and doesn't record them.
pub(crate) fn is_counting() -> bool {
    COUNTING.load(Relaxed) != counting::OFF
}

/// Whether it also times them.
pub(crate) fn is_timing() -> bool {
    counting::has_times(COUNTING.load(Relaxed))
}

/// Whether it also counts what they allocate.
pub(crate) fn counts_memory() -> bool {
    COUNTING.load(Relaxed) == counting::MEMORY
}

fn header(arena: &Arena) -> *mut u8 {
    arena.base().wrapping_add(arena.layout().dropped_offset as usize)
}

/// The threshold in ticks; 0 if every call is recorded.
pub(crate) fn threshold(arena: &Arena) -> u32 {
    let threshold = field!(header(arena), DroppedHeader, threshold, AtomicU64).load(Relaxed);
    u32::try_from(threshold).unwrap_or(0)
}

/// The threshold and the highest one so far, in nanoseconds.
pub(crate) fn thresholds_ns(arena: &Arena) -> (u64, u64) {
    let now = field!(header(arena), DroppedHeader, threshold_ns, AtomicU64).load(Relaxed);
    (now, field!(header(arena), DroppedHeader, highest_ns, AtomicU64).load(Relaxed))
}

/// Sets the threshold. Threads adopt it by themselves.
pub(crate) fn set_threshold(arena: &Arena, ticks: u64, nanoseconds: u64) {
    field!(header(arena), DroppedHeader, threshold_ns, AtomicU64).store(nanoseconds, Relaxed);
    field!(header(arena), DroppedHeader, highest_ns, AtomicU64).fetch_max(nanoseconds, Relaxed);
    field!(header(arena), DroppedHeader, threshold, AtomicU64).store(ticks, Relaxed);
}

/// Passes a parent's threshold on to its child's arena. `threshold`: in ticks and in nanoseconds.
pub(crate) fn inherit(arena: &Arena, threshold: (u64, u64)) {
    begin_counting(arena, COUNTING.load(Relaxed));
    set_threshold(arena, threshold.0, threshold.1);
}

/// The threshold in ticks and in nanoseconds, for [`inherit`].
pub(crate) fn inheritance(arena: &Arena) -> (u64, u64) {
    (threshold(arena).into(), thresholds_ns(arena).0)
}

/// Number of places that functions have, with place 0, and whether one found none.
pub(crate) fn places(arena: &Arena) -> (u32, bool) {
    let places = field!(header(arena), DroppedHeader, places, AtomicU32).load(Acquire);
    let places = places.min(arena.layout().functions());
    (places, field!(header(arena), DroppedHeader, is_full, AtomicU32).load(Relaxed) != 0)
}

/// The function at a place: its code offset, and when its first short call ended.
pub(crate) fn function(arena: &Arena, place: u32) -> (u32, u64) {
    let function = function_at(arena, place);
    (
        field!(function, DroppedFunction, code, AtomicU32).load(Relaxed),
        field!(function, DroppedFunction, ticks, AtomicU64).load(Relaxed),
    )
}

fn function_at(arena: &Arena, place: u32) -> *mut u8 {
    let place = place.min(arena.layout().functions() - 1);
    arena.base().wrapping_add(arena.layout().dropped_function_at(place) as usize)
}

/// Address of a slot's counts.
pub(crate) fn counts_at(arena: &Arena, slot: u32) -> u64 {
    let slot = slot.min(arena.layout().thread_capacity.saturating_sub(1));
    arena.base() as u64 + arena.layout().dropped_counts_at(slot)
}

/// A slot's count at `place`; at place 0, that of all functions. If the arena is a file, the counts
/// must have disk space.
pub(crate) fn count(arena: &Arena, slot: u32, place: u32) -> u64 {
    let address = counts_at(arena, slot) + offset_in_counts(arena, place);
    // SAFETY: within the arena by its layout, aligned, never unmapped.
    unsafe { &*(address as *const AtomicU64) }.load(Relaxed)
}

/// Where the count at `place` is in a slot's counts.
pub(crate) fn offset_in_counts(arena: &Arena, place: u32) -> u64 {
    u64::from(place.min(arena.layout().functions() - 1)) * size_of::<u64>() as u64
}

/// Number of calls that were dropped so far in a context's slot. The slot must have counts.
pub(crate) fn count_of(arena: &Arena, control: &Control) -> u64 {
    count(arena, control.slot.load(Relaxed), 0)
}

/// More entries than hashes, because a search doesn't wrap around.
const BEHIND: usize = (short_map::SIZE - (1 << (u32::BITS - short_map::SHIFT))) as usize;

/// A map of functions with places: see [`everycall_hooks::ShortMap`].
#[derive(Clone, Copy)]
struct Map<'a> {
    entries: &'a [AtomicU64],
    shift: u32,
}

/// What became of a function that was to be added to a map.
enum Added {
    Now,
    Before,
    NoRoom,
}

impl<'a> Map<'a> {
    /// Map number `level`, if it is there; 0 is that of hooks.
    fn of(process: &'a Process, level: usize) -> Option<Map<'a>> {
        let Some(further) = level.checked_sub(1) else {
            return Some(Map { entries: &process.short_map.entries, shift: short_map::SHIFT });
        };
        let entries = process.more_places.0.get(further)?.load(Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: mapped with this length, aligned, never unmapped; all zero are empty entries.
        let entries = unsafe { core::slice::from_raw_parts(entries, entries_of(level)) };
        Some(Map { entries, shift: short_map::SHIFT - level as u32 })
    }

    /// Map number `level`, which is mapped if it isn't there.
    fn made(process: &'a Process, level: usize) -> Option<Map<'a>> {
        if let Some(map) = Map::of(process, level) {
            return Some(map);
        }
        let place = process.more_places.0.get(level.checked_sub(1)?)?;
        let size = entries_of(level) as u64 * size_of::<u64>() as u64;
        let memory = wiped::map_table(size)?;
        if place.compare_exchange(core::ptr::null_mut(), memory.cast(), AcqRel, Acquire).is_err() {
            // Another thread has mapped it meanwhile.
            wiped::unmap_table(memory, size);
        }
        Map::of(process, level)
    }

    /// The entries where the search for a function begins.
    fn from(self, code: u32) -> &'a [AtomicU64] {
        let hash = code.wrapping_mul(short_map::FACTOR) >> self.shift;
        self.entries.get(hash as usize..).unwrap_or(&[])
    }

    fn place(self, code: u32) -> Option<u32> {
        let entries = self.from(code).iter().map(|entry| entry.load(Acquire));
        let mut entries = entries.take_while(|entry| *entry as u32 != 0);
        entries.find(|entry| *entry as u32 == code).map(|entry| (entry >> 32) as u32)
    }

    fn add(self, code: u32, place: u32) -> Added {
        let wanted = u64::from(place) << 32 | u64::from(code);
        for entry in self.from(code) {
            let mut now = entry.load(Relaxed);
            while matches!(now as u32, 0 | GONE) {
                match entry.compare_exchange(now, wanted, AcqRel, Relaxed) {
                    Ok(_) => return Added::Now,
                    Err(other) => now = other,
                }
            }
            if now as u32 == code {
                return Added::Before;
            }
        }
        Added::NoRoom
    }
}

/// Number of entries of a map.
const fn entries_of(level: usize) -> usize {
    ((short_map::SIZE as usize - BEHIND) << level) + BEHIND
}

/// The map in which the function at `place` is.
fn level_of(place: u32) -> usize {
    (place / FUNCTIONS).checked_ilog2().map_or(0, |level| level as usize + 1)
}

/// Gives the function at `code` a place, so that its calls are counted from now on. Returns the
/// place if it is a new one.
#[cold]
pub(crate) fn learn(process: &Process, code: u32, ticks: u64) -> Option<u32> {
    let arena = process.arena();
    if places(arena).1 || find(process, code).is_some() {
        return None;
    }
    let next = || process.short_map.places.fetch_add(1, Relaxed).wrapping_add(1);
    let place = Some(next()).filter(|place| *place != OTHERS).unwrap_or_else(next);
    if place >= FUNCTIONS {
        process.short_map.is_full.store(1, Relaxed);
    }
    if place < arena.layout().functions() {
        let function = function_at(arena, place);
        field!(function, DroppedFunction, code, AtomicU32).store(code, Relaxed);
        field!(function, DroppedFunction, ticks, AtomicU64).store(ticks, Relaxed);
        field!(header(arena), DroppedHeader, places, AtomicU32).fetch_max(place + 1, AcqRel);
        for level in level_of(place)..=MORE_MAPS {
            match Map::made(process, level).map(|map| map.add(code, place)) {
                Some(Added::Now) => return Some(place),
                // Another thread has added the function meanwhile. This place stays unused.
                Some(Added::Before) => return None,
                Some(Added::NoRoom) if level == 0 => process.short_map.is_full.store(1, Relaxed),
                Some(Added::NoRoom) => {}
                None => break,
            }
        }
    }
    process.short_map.is_full.store(1, Relaxed);
    field!(header(arena), DroppedHeader, is_full, AtomicU32).store(1, Relaxed);
    None
}

/// The place of the function at `code`, if it has one.
fn find(process: &Process, code: u32) -> Option<u32> {
    (0..=MORE_MAPS).filter_map(|level| Map::of(process, level)).find_map(|map| map.place(code))
}

/// The place of the function at `code`. It gets one if it has none yet, or that of all others if
/// there is none left; so do functions that aren't known. Returns it with whether it is a new one.
#[cold]
pub(crate) fn place_of(process: &Process, code: Option<u32>) -> (u32, bool) {
    let Some(code) = code else { return (OTHERS, false) };
    if let Some(place) = find(process, code) {
        return (place, false);
    }
    let new = learn(process, code, everycall_hooks::ticks());
    // Another thread may have added the function meanwhile.
    (new.or_else(|| find(process, code)).unwrap_or(OTHERS), new.is_some())
}

/// Counts a call of the calling thread at `place`. The thread has counts, and its signals are
/// blocked.
pub(crate) fn count_call(arena: &Arena, control: &Control, place: u32) {
    let address = control.short_counts.load(Relaxed) + offset_in_counts(arena, place);
    // SAFETY: within the arena by its layout, aligned, never unmapped. Only this thread writes it.
    let count = unsafe { &*(address as *const AtomicU64) };
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}

/// In a process that counts, discards the counts of a thread from now on.
pub(crate) fn leave_out(control: &Control) {
    if is_counting() && !is_timing() {
        control.short_counts.store(nobodys(), Relaxed);
    }
}

/// Forgets the functions at code offsets from `first` to `end`, which are given to another module.
/// None of the former module's functions runs any more.
pub(crate) fn forget(process: &Process, first: u32, end: u32) {
    if process.short_map.places.load(Relaxed) == 0 {
        return;
    }
    for entry in (0..=MORE_MAPS).filter_map(|level| Map::of(process, level)).flat_map(|map| map.entries) {
        let now = entry.load(Relaxed);
        if (first..end).contains(&(now as u32)) {
            entry.store(u64::from(GONE), Relaxed);
        }
    }
}
