//! Threads that were asked to end.

use core::sync::atomic::AtomicU64;

/// The bit of [`Control::thread`] for a thread that the program has asked to end.
pub(crate) const CANCELLED: u64 = 1;

/// The bit for such a thread if it has since filled at least one segment.
pub(crate) const LONG_AGO: u64 = 2;

/// A thread that was asked to end before its first call: its thread pointer (0 for none) and the
/// time of the request.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    pub(crate) thread: AtomicU64,
    pub(crate) ticks: AtomicU64,
}
