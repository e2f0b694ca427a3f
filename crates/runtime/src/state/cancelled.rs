//! Threads that were asked to end.

use core::sync::atomic::AtomicU64;

/// [`Control::thread`]'s bit of a thread that the program has asked to end.
pub(crate) const CANCELLED: u64 = 1;

/// And of one that has gone on since, for a segment at least.
pub(crate) const LONG_AGO: u64 = 2;

/// A thread that was asked to end before its first call: its thread pointer, 0 for none, and when
/// that was.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    pub(crate) thread: AtomicU64,
    pub(crate) ticks: AtomicU64,
}
