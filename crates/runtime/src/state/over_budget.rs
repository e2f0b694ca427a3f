//! Functions that are off because of the budget and whose hooks are always called: their ranges of
//! process addresses. Used while holding the module lock. A forked child inherits them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

struct Place {
    start: AtomicU64,
    /// 0 if the place is free.
    end: AtomicU64,
}

/// Limit on these functions.
const PLACES: usize = 1024;

static TABLE: [Place; PLACES] =
    [const { Place { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; PLACES];
/// The largest number of places that were ever used.
static USED: AtomicU32 = AtomicU32::new(0);

fn used() -> &'static [Place] {
    TABLE.get(..USED.load(Relaxed) as usize).unwrap_or(&TABLE)
}

/// Adds a function. Returns false if there is no place.
pub(crate) fn add(start: u64, end: u64) -> bool {
    if ranges().any(|range| range == (start, end)) {
        return true;
    }
    let free = TABLE.iter().position(|place| place.end.load(Relaxed) == 0);
    let Some((number, place)) = free.and_then(|number| Some((number, TABLE.get(number)?))) else {
        return false;
    };
    place.start.store(start, Relaxed);
    place.end.store(end, Relaxed);
    USED.fetch_max(number as u32 + 1, Relaxed);
    true
}

/// Removes the functions that begin within this range: one function, or those of a module that is
/// unloaded.
pub(crate) fn remove(start: u64, end: u64) {
    for place in used() {
        if (start..end).contains(&place.start.load(Relaxed)) {
            place.end.store(0, Relaxed);
        }
    }
}

/// The ranges of all these functions.
pub(crate) fn ranges() -> impl Iterator<Item = (u64, u64)> {
    let all = used().iter().map(|place| (place.start.load(Relaxed), place.end.load(Relaxed)));
    all.filter(|(_, end)| *end != 0)
}

/// The ranges within a module.
pub(crate) fn within(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    ranges().filter(move |(first, _)| (start..end).contains(first))
}
