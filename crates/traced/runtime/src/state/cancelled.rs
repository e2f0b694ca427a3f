//! Threads that the program has cancelled.

use core::sync::atomic::AtomicU64;

/// The bit of [`everycall_ring::Control::thread`] for a cancelled thread.
pub(crate) const CANCELLED: u64 = 1;

/// The bit for a cancelled thread that has reached the end of a segment since.
pub(crate) const LONG_AGO: u64 = 2;

/// A thread that was cancelled before its first call: its thread pointer (0 for none) and the time
/// of the cancellation.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    pub(crate) thread: AtomicU64,
    pub(crate) ticks: AtomicU64,
}
