//! Snapshots that the program has taken of itself and not freed.

use core::sync::atomic::{AtomicU32, AtomicU64};
use everycall_format::arena::PINNERS;

/// [`Handle::state`].
pub(crate) mod snapshot_state {
    pub(crate) const FREE: u32 = 0;
    /// It is being taken, written or freed.
    pub(crate) const BUSY: u32 = 1;
    pub(crate) const READY: u32 = 2;
}

/// The snapshots that the process has taken and not freed, by index in the table of pinners.
pub(crate) struct Snapshots(pub(crate) [Handle; PINNERS as usize]);

/// A snapshot that was taken.
pub(crate) struct Handle {
    pub(crate) state: AtomicU32,
    /// Number of its uses, so that a handle isn't valid for a later snapshot.
    pub(crate) uses: AtomicU32,
    /// The memory of its lists, and its bytes.
    pub(crate) memory: AtomicU64,
    pub(crate) size: AtomicU64,
    pub(crate) threads: AtomicU32,
    pub(crate) ticks: AtomicU64,
}
