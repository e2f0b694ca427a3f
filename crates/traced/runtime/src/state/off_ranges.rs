//! Functions that are off by themselves and whose hooks are always called: their ranges of process
//! addresses. Used while holding the module lock. A forked child inherits them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Off because of the budget ([`crate::features::budget`]).
pub(crate) static OVER_BUDGET: OffRanges = OffRanges::none();
/// Off because the program has left them out ([`crate::features::left_out`]).
pub(crate) static LEFT_OUT: OffRanges = OffRanges::none();

/// Limit on the functions of one table.
const PLACES: usize = 1024;

/// Functions that are off for one reason.
pub(crate) struct OffRanges {
    table: [Place; PLACES],
    /// The largest number of places that were ever used.
    used: AtomicU32,
}

struct Place {
    start: AtomicU64,
    /// 0 if the place is free.
    end: AtomicU64,
}

impl OffRanges {
    const fn none() -> OffRanges {
        OffRanges {
            table: [const { Place { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; PLACES],
            used: AtomicU32::new(0),
        }
    }

    fn used(&self) -> &[Place] {
        self.table.get(..self.used.load(Relaxed) as usize).unwrap_or(&self.table)
    }

    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.used().iter().map(|place| (place.start.load(Relaxed), place.end.load(Relaxed)));
        all.filter(|(_, end)| *end != 0)
    }

    /// Adds a function. Returns false if there is no place.
    pub(crate) fn add(&self, start: u64, end: u64) -> bool {
        if self.ranges().any(|range| range == (start, end)) {
            return true;
        }
        let free = self.table.iter().position(|place| place.end.load(Relaxed) == 0);
        let Some((number, place)) = free.and_then(|number| Some((number, self.table.get(number)?))) else {
            return false;
        };
        place.start.store(start, Relaxed);
        place.end.store(end, Relaxed);
        self.used.fetch_max(number as u32 + 1, Relaxed);
        true
    }

    /// Removes the functions that begin within this range.
    pub(crate) fn remove(&self, start: u64, end: u64) {
        for place in self.used() {
            if (start..end).contains(&place.start.load(Relaxed)) {
                place.end.store(0, Relaxed);
            }
        }
    }
}

/// Forgets all functions of a module that is unloaded.
pub(crate) fn forget(start: u64, end: u64) {
    [&OVER_BUDGET, &LEFT_OUT].into_iter().for_each(|ranges| ranges.remove(start, end));
}

/// All ranges within a module, whatever they are off for.
pub(crate) fn within(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    OVER_BUDGET.ranges().chain(LEFT_OUT.ranges()).filter(move |(first, _)| (start..end).contains(first))
}
