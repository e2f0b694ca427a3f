//! Contexts that have ended and whose events are still kept, and the free slots.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::env::KeepEnded;

/// The ended threads, the longest ended first, for whoever holds the lock; and the free slots, for
/// all.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    pub(crate) lock: AtomicU32,
    /// Index of the slot that is looked at next.
    pub(crate) next_look: AtomicU32,
    /// Slot of the thread that began last, index plus 1: many a program has one thread after the
    /// other.
    pub(crate) newest: AtomicU32,
    /// Slots of ended threads, index plus 1: a list by [`Slot::next`].
    pub(crate) first: AtomicU32,
    pub(crate) last: AtomicU32,
    /// Free slots: a [`FreeList`] by the same words. Whoever finds the lock closed takes from it,
    /// too, else each time that threads begin together would leave a slot and a stack more.
    pub(crate) free: AtomicU64,
    /// Open-call stacks that nobody has any more: a [`FreeList`] by the words of their sentinels.
    pub(crate) free_stacks: AtomicU64,
    /// Open-call stacks that were taken so far.
    pub(crate) stacks_taken: AtomicU32,
    /// Bytes that the ended threads occupy.
    pub(crate) bytes: AtomicU64,
    /// How many bytes they may occupy.
    pub(crate) bytes_max: AtomicU64,
    /// How long they are kept, in nanoseconds; [`u64::MAX`] for ever.
    pub(crate) keep_ns: AtomicU64,
    /// When it is time to look after many, in ticks.
    pub(crate) pass_due: AtomicU64,
}

/// What [`Retired::keep`] was told, for forked children.
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
