//! Parts of a process's memory for functions that are counted: see [`crate::state::dropped`].

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use everycall_format::dropped::{FUNCTIONS, FUNCTIONS_MAX};

/// Number of maps beside that of hooks.
pub(crate) const MORE_MAPS: usize = (FUNCTIONS_MAX / FUNCTIONS).ilog2() as usize;

/// The maps beside that of hooks, each with as many places as all before it together.
#[derive(Debug)]
pub(crate) struct MorePlaces(pub(crate) [AtomicPtr<AtomicU64>; MORE_MAPS]);

/// Address of counts that are never read: those of threads that the program has excluded, or whose
/// counts have no place.
pub(crate) fn nobodys() -> u64 {
    NOBODYS.load(Relaxed)
}

/// Sets that address, where there is memory for the counts of a slot; before the first event.
pub(crate) fn set_nobodys(counts: u64) {
    NOBODYS.store(counts, Relaxed);
}

static NOBODYS: AtomicU64 = AtomicU64::new(0);
