//! Memory for an arena of the process's own.

use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The user whose processes may access a private arena; [`NOBODY`] if none may.
static REACHED_BY: AtomicU32 = AtomicU32::new(NOBODY);
/// Not a user id.
const NOBODY: u32 = u32::MAX;

/// Stores the user who started the process, unless the process has more privileges than that user's
/// other processes: these must not access its memory.
pub(crate) fn remember_user() {
    if let Some(user) = system::user().filter(|user| *user == 0 || !system::has_capabilities()) {
        REACHED_BY.store(user, Relaxed);
    }
}

/// Maps memory for an arena of the process's own: if possible, a segment, of which other processes
/// can take snapshots. A segment belongs to the process's effective user, and that user's processes
/// can write to it. So it isn't used if the effective user isn't the one who started the process,
/// as in a daemon that acts as another user for a while.
pub(crate) fn map(size: u64) -> Option<*mut u8> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    let is_ours = system::user().is_some_and(|user| user != NOBODY && user == REACHED_BY.load(Relaxed));
    let segment = if is_ours { system::map_segment(size) } else { None };
    segment.or_else(|| system::map(size, PROT_READ | PROT_WRITE, flags, -1))
}
