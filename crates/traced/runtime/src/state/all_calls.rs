//! Counts of all calls that are recorded: see [`everycall_format::all_calls`]. Functions have the
//! places of [`dropped`].
#![allow(unsafe_code)] // Counts in the arena, by their addresses.

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::state::more_places;
use crate::state::places::Place;
use crate::state::process::Process;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_ring::Control;

/// Address of a slot's counts.
pub(crate) fn counts_at(arena: &Arena, slot: u32) -> u64 {
    let slot = slot.min(arena.layout().thread_capacity.saturating_sub(1));
    arena.base() as u64 + arena.layout().all_calls_at(slot)
}

/// A slot's count at `place`. If the arena is a file, the counts must have disk space.
pub(crate) fn count(arena: &Arena, slot: u32, place: u32) -> u64 {
    word(counts_at(arena, slot), arena, place).load(Relaxed)
}

/// Lets a thread's hooks count at `counts`, or, if there are none, where it is never read.
pub(crate) fn begin(control: &Control, counts: Option<u64>) {
    control.counts.store(counts.unwrap_or(more_places::nobodys()), Relaxed);
}

/// Whether all of a thread's calls are counted, or were: counts of ended threads stay.
pub(crate) fn is_counted(control: &Control) -> bool {
    let counts = control.counts.load(Relaxed);
    counts != 0 && counts != more_places::nobodys()
}

/// Counts a call of the calling thread, whose signals are blocked, in a process that records.
/// Returns the function's place, and whether it is a new one.
pub(crate) fn add(process: &Process, control: &Control, place: Place) -> (u32, bool) {
    let code = if let Place::Offset(code) = place { Some(code) } else { None };
    let (place, is_new) = dropped::place_of(process, code);
    let counts = control.counts.load(Relaxed);
    if counts != 0 {
        let count = word(counts, process.arena(), place);
        // Only this thread writes it.
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }
    (place, is_new)
}

fn word(counts: u64, arena: &Arena, place: u32) -> &'static AtomicU64 {
    let address = counts + dropped::offset_in_counts(arena, place);
    // SAFETY: within the arena by its layout, or within counts that are never read; aligned, never
    // unmapped.
    unsafe { &*(address as *const AtomicU64) }
}
