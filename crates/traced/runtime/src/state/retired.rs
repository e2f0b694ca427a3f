//! Retired threads and fibers, and the free slots.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::env::KeepEnded;

/// The list of retired threads, in the order of their ends, protected by the lock; and the free
/// slots, which any thread may take.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    pub(crate) lock: AtomicU32,
    /// Index of the next slot to check.
    pub(crate) next_look: AtomicU32,
    /// Slot of the thread that began last, index plus 1. It is checked first, because many programs
    /// have one short-lived thread after the other.
    pub(crate) newest: AtomicU32,
    /// The list of retired slots, index plus 1, linked by [`super::arena::Slot::next`].
    pub(crate) first: AtomicU32,
    pub(crate) last: AtomicU32,
    /// Free slots: a [`everycall_ring::FreeList`] linked by the same words. It needs no lock, so
    /// that threads that begin together can reuse slots instead of taking new ones.
    pub(crate) free: AtomicU64,
    /// Unused open-call stacks: a [`everycall_ring::FreeList`] linked by the words of their
    /// sentinels.
    pub(crate) free_stacks: AtomicU64,
    /// Number of open-call stacks that were taken so far.
    pub(crate) stacks_taken: AtomicU32,
    /// Bytes that the retired threads occupy.
    pub(crate) bytes: AtomicU64,
    /// Limit on these bytes.
    pub(crate) bytes_max: AtomicU64,
    /// How long retired threads are kept, in nanoseconds; [`u64::MAX`] for no limit.
    pub(crate) keep_ns: AtomicU64,
    /// When the next pass over many slots is due, in ticks.
    pub(crate) pass_due: AtomicU64,
}

/// The arguments of [`Retired::keep`], for forked children.
static BYTES_MAX: AtomicU64 = AtomicU64::new(0);
static KEEP_NS: AtomicU64 = AtomicU64::new(0);

impl Retired {
    /// Keeps as much as the process's parent does.
    pub(crate) fn keep_as_parent(&self) {
        self.bytes_max.store(BYTES_MAX.load(Relaxed), Relaxed);
        self.keep_ns.store(KEEP_NS.load(Relaxed), Relaxed);
    }

    /// Sets how much is kept, and how long.
    pub(crate) fn keep(&self, kept: KeepEnded) {
        BYTES_MAX.store(kept.bytes, Relaxed);
        KEEP_NS.store(kept.nanoseconds, Relaxed);
        self.bytes_max.store(kept.bytes, Relaxed);
        self.keep_ns.store(kept.nanoseconds, Relaxed);
    }
}
