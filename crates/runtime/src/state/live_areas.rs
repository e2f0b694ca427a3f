//! Which areas of the arena clients of the control socket have for their triggers.

use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};

/// A bit for each area. Not in the arena, whose pages for them stay untouched until they are used.
/// Written by the holder of the module lock.
static IN_USE: AtomicU32 = AtomicU32::new(0);

/// The areas whose triggers count, a bit for each.
pub(crate) fn in_use() -> u32 {
    IN_USE.load(Acquire)
}

/// The triggers in an area count from now on. What is in it was written before.
pub(crate) fn begin(index: u32) {
    IN_USE.fetch_or(1 << index, Release);
}

/// The triggers in an area don't count any more.
pub(crate) fn end(index: u32) {
    IN_USE.fetch_and(!(1 << index), Release);
}

/// In a forked child: clients are the parent's. Returns whether there were some.
pub(crate) fn begin_child() -> bool {
    IN_USE.swap(0, Release) != 0
}
