//! The arena's areas for triggers of clients of the control socket: which are in use.

use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};

/// A bit for each area. It isn't in the arena, so that the pages of unused areas stay untouched.
/// Written by the holder of the module lock.
static IN_USE: AtomicU32 = AtomicU32::new(0);

/// The areas that are in use, a bit for each.
pub(crate) fn in_use() -> u32 {
    IN_USE.load(Acquire)
}

/// Puts an area into use. Its contents were written before.
pub(crate) fn begin(index: u32) {
    IN_USE.fetch_or(1 << index, Release);
}

/// Takes an area out of use.
pub(crate) fn end(index: u32) {
    IN_USE.fetch_and(!(1 << index), Release);
}

/// In a forked child, takes all areas out of use: the clients are the parent's. Returns whether any
/// was in use.
pub(crate) fn begin_child() -> bool {
    IN_USE.swap(0, Release) != 0
}
