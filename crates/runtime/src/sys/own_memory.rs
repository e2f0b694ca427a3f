//! Memory for an arena of the process's own.

use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The user whose processes may reach an arena of our own; [`NOBODY`] where none may.
static REACHED_BY: AtomicU32 = AtomicU32::new(NOBODY);
/// No user's number.
const NOBODY: u32 = u32::MAX;

/// Remembers who the process was started as. Where it may do more than that user's other processes,
/// they must not reach its memory.
pub(crate) fn remember_user() {
    if let Some(user) = system::user().filter(|user| *user == 0 || !system::has_capabilities()) {
        REACHED_BY.store(user, Relaxed);
    }
}

/// Memory for an arena of the process's own: such that snapshots can be taken of it from outside,
/// if there is such. A segment belongs to whom the process acts as, and that user's processes can
/// write to it: so there is none where that isn't who has started it, as in a daemon that acts as
/// somebody else for a while.
pub(crate) fn map(size: u64) -> Option<*mut u8> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    let is_ours = system::user().is_some_and(|user| user != NOBODY && user == REACHED_BY.load(Relaxed));
    let segment = if is_ours { system::map_segment(size) } else { None };
    segment.or_else(|| system::map(size, PROT_READ | PROT_WRITE, flags, -1))
}
