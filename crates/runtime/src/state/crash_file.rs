//! Whether the arena is a file that outlives the process, and what the process knows of it.

use crate::sys::name::NAME_MAX;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::THREAD_CAPACITY;

/// Whether the arena is a file.
pub(crate) static IS_FILE: AtomicBool = AtomicBool::new(false);
/// Segments from the pool's begin that have room on the disk.
pub(crate) static SEGMENTS: AtomicU32 = AtomicU32::new(u32::MAX);

/// A process's part of it: wiped in a forked child, which is not to remove its parent's file.
pub(crate) struct CrashFile {
    pub(crate) name: UnsafeCell<[u8; NAME_MAX]>,
    /// Device and inode.
    pub(crate) identity: UnsafeCell<(u64, u64)>,
    /// Held while room is taken.
    pub(crate) room_lock: AtomicU32,
    /// Until then nobody asks for room.
    pub(crate) no_room_until: AtomicU64,
    /// Open-call stacks that have room on the disk: a set of their indices.
    pub(crate) stacks: [AtomicU64; (THREAD_CAPACITY / u64::BITS) as usize],
    /// Held while the clocks are looked at.
    pub(crate) clock_lock: AtomicU32,
    /// When that was, ticks.
    pub(crate) looked: AtomicU64,
}

/// Whether the arena is a file.
pub(crate) fn is_file() -> bool {
    IS_FILE.load(Relaxed)
}

/// How many segments have room on the disk, where that matters.
pub(crate) fn room() -> Option<&'static AtomicU32> {
    IS_FILE.load(Relaxed).then_some(&SEGMENTS)
}
