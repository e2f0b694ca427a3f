//! What is done with an arena that we have made, and with one of a process that runs and was attached to.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::arena::{ArenaHeader, OpenCall, ThreadHeader};
use everycall_ring::Pool;

/// An arena's front in our memory: fields of what stands there, and the pool of segments.
pub trait ArenaFront: Debug + Send + Sync {
    /// The 32-bit field at `offset`; `None` where that isn't one of what is mapped.
    fn word_at(&self, offset: u64) -> Option<&AtomicU32>;

    /// The 64-bit field at `offset`; `None` where that isn't one of what is mapped.
    fn long_at(&self, offset: u64) -> Option<&AtomicU64>;

    /// The pool. Its words need not be there.
    fn pool(&self) -> Pool<'_>;
}

/// What stands in an arena: the traced program's word.
pub trait ArenaContents: Debug + Send + Sync {
    /// The memory file that it is, and its header, where we have made it.
    fn file(&self) -> Option<(BorrowedFd<'_>, &ArenaHeader)>;

    /// Thread slots in use.
    fn thread_count(&self) -> u32;

    /// The header of a thread slot; `slot` is below [`ArenaContents::thread_count`].
    fn thread(&self, slot: u32) -> ThreadHeader;

    /// The calls that the thread in a slot has open, outermost first.
    fn open_calls(&self, slot: u32) -> Vec<OpenCall>;

    /// Bytes of a segment.
    fn segment_size(&self) -> u64;

    /// Copies segment `index` of the pool into `bytes`.
    fn read_segment(&self, index: u32, bytes: &mut [u8]);
}
