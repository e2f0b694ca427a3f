//! Whether the arena is a crash file, and what the process knows about that file.

use crate::sys::name::NAME_MAX;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::THREAD_CAPACITY;

/// Whether the arena is a file.
pub(crate) static IS_FILE: AtomicBool = AtomicBool::new(false);
/// Number of segments, from the beginning of the pool, that have disk space.
pub(crate) static SEGMENTS: AtomicU32 = AtomicU32::new(u32::MAX);

/// The process's state of its crash file. It is wiped in a forked child, which must not
/// remove its parent's file.
pub(crate) struct CrashFile {
    pub(crate) name: UnsafeCell<[u8; NAME_MAX]>,
    /// Device and inode.
    pub(crate) identity: UnsafeCell<(u64, u64)>,
    /// Held while disk space is allocated.
    pub(crate) room_lock: AtomicU32,
    /// Ticks until which no thread tries to allocate disk space.
    pub(crate) no_room_until: AtomicU64,
    /// Open-call stacks that have disk space: a set of their indices.
    pub(crate) stacks: [AtomicU64; (THREAD_CAPACITY / u64::BITS) as usize],
    /// Slots whose counts of dropped calls have disk space: a set of their indices.
    pub(crate) counts: [AtomicU64; (THREAD_CAPACITY / u64::BITS) as usize],
    /// Slots whose counts of all calls have disk space: a set of their indices.
    pub(crate) all_calls: [AtomicU64; (THREAD_CAPACITY / u64::BITS) as usize],
    /// Bytes of the names of frames by id that have disk space.
    pub(crate) frames: AtomicU64,
    /// Held while the clocks are read.
    pub(crate) clock_lock: AtomicU32,
    /// When they were last read, in ticks.
    pub(crate) looked: AtomicU64,
}

/// Whether the arena is a file.
pub(crate) fn is_file() -> bool {
    IS_FILE.load(Relaxed)
}

/// How many segments have disk space, if the arena is a file.
pub(crate) fn room() -> Option<&'static AtomicU32> {
    IS_FILE.load(Relaxed).then_some(&SEGMENTS)
}
