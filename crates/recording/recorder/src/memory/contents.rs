//! Operations on arenas, both those that we created and those of attached processes.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::arena::{ArenaHeader, OpenCall, ThreadHeader};
use everycall_ring::Pool;

/// The front of an arena in our memory: its header fields, and the pool of segments.
pub trait ArenaFront: Debug + Send + Sync {
    /// The 32-bit field at `offset`; `None` if that isn't a mapped field.
    fn word_at(&self, offset: u64) -> Option<&AtomicU32>;

    /// The 64-bit field at `offset`; `None` if that isn't a mapped field.
    fn long_at(&self, offset: u64) -> Option<&AtomicU64>;

    /// The pool. Its words may be absent.
    fn pool(&self) -> Pool<'_>;
}

/// The contents of an arena: untrusted.
pub trait ArenaContents: Debug + Send + Sync {
    /// Its memory file and header, if we created it.
    fn file(&self) -> Option<(BorrowedFd<'_>, &ArenaHeader)>;

    /// Thread slots in use.
    fn thread_count(&self) -> u32;

    /// The header of a thread slot; `slot` is below [`ArenaContents::thread_count`].
    fn thread(&self, slot: u32) -> ThreadHeader;

    /// The calls that the thread in a slot has open, outermost first.
    fn open_calls(&self, slot: u32) -> Vec<OpenCall>;

    /// The records of names of frames by id without their first `from` bytes.
    fn frame_names_since(&self, from: u64) -> Vec<u8>;

    /// Bytes of a segment.
    fn segment_size(&self) -> u64;

    /// Copies segment `index` of the pool into `bytes`.
    fn read_segment(&self, index: u32, bytes: &mut [u8]);
}
