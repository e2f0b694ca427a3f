//! The pool of segments in our memory: what was stored is given back to the threads by the same atomic operations that
//! they use themselves. All else is read through the file descriptor.
//!
//! # Safety
//!
//! The arena's front, up to the end of the segment table, is mapped for as long as [`SharedPool`] lives, and reached by atomic
//! operations alone, as the traced process writes it at the same time. The memfd is sealed against shrinking before
//! it is mapped, so that no access can fault. Where something lies comes from the header that we wrote ourselves.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::arena::ArenaHeader;
use everycall_ring::{Pool, SegmentEntry};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memory::contents::ArenaFront;

/// A shared mapping of the arena's front.
#[derive(Debug)]
pub struct SharedPool {
    base: *mut u8,
    length: usize,
    table: u64,
    capacity: u32,
    segment_size: u64,
}

// SAFETY: the mapping belongs to no thread, and is only reached by atomic operations.
unsafe impl Send for SharedPool {}
// SAFETY: as above.
unsafe impl Sync for SharedPool {}

impl SharedPool {
    /// Maps the front of the arena whose header we wrote as `layout`.
    pub fn map(arena: BorrowedFd<'_>, layout: &ArenaHeader) -> io::Result<SharedPool> {
        if !layout.is_consistent(layout.arena_size) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let end = layout.segment_entry_at(layout.segment_capacity);
        let length = usize::try_from(end).map_err(io::Error::other)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, arena, 0) }?;
        Ok(SharedPool {
            base: base.cast(),
            length,
            table: layout.segment_table_offset,
            capacity: layout.segment_capacity,
            segment_size: layout.segment_size,
        })
    }

    /// The pool, to read, pin and release segments. Its words are absent.
    pub fn pool(&self) -> Pool<'_> {
        // SAFETY: the table lies within the mapping (its end is the mapping's), aligned, and its entries are atomics.
        let entries = unsafe {
            let first = self.base.add(self.table as usize).cast::<SegmentEntry>();
            std::slice::from_raw_parts(first, self.capacity as usize)
        };
        Pool {
            entries,
            words: &[],
            base: 0,
            segment_words: self.segment_size as usize / size_of::<u64>(),
            taken: self.word(offset_of!(ArenaHeader, segments_taken)),
            free: self.long(offset_of!(ArenaHeader, free_segments)),
            in_use: self.word(offset_of!(ArenaHeader, segments_in_use)),
            ring_segments: self.word(offset_of!(ArenaHeader, ring_segments)),
            extra: 0,
            grow_until: self.long(offset_of!(ArenaHeader, grow_until)),
            room: None,
        }
    }

    /// [`ArenaHeader::stream`].
    pub fn stream(&self) -> &AtomicU32 {
        self.word(offset_of!(ArenaHeader, stream))
    }

    /// [`ArenaHeader::pool_doorbell`].
    pub fn doorbell(&self) -> &AtomicU32 {
        self.word(offset_of!(ArenaHeader, pool_doorbell))
    }

    /// [`ArenaHeader::pool_waiters`].
    pub fn waiters(&self) -> &AtomicU32 {
        self.word(offset_of!(ArenaHeader, pool_waiters))
    }

    fn inside(&self, offset: u64, size: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(size)?;
        (end <= self.length && offset.is_multiple_of(size)).then_some(offset)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is that of an aligned 32-bit field of the header, which is mapped.
        unsafe { &*self.base.add(offset).cast() }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is that of an aligned 64-bit field of the header, which is mapped.
        unsafe { &*self.base.add(offset).cast() }
    }
}

impl ArenaFront for SharedPool {
    fn word_at(&self, offset: u64) -> Option<&AtomicU32> {
        let offset = self.inside(offset, size_of::<AtomicU32>())?;
        // SAFETY: inside the mapping, aligned; atomics may be shared.
        Some(unsafe { &*self.base.add(offset).cast() })
    }

    fn long_at(&self, offset: u64) -> Option<&AtomicU64> {
        let offset = self.inside(offset, size_of::<AtomicU64>())?;
        // SAFETY: inside the mapping, aligned; atomics may be shared.
        Some(unsafe { &*self.base.add(offset).cast() })
    }

    fn pool(&self) -> Pool<'_> {
        SharedPool::pool(self)
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        // SAFETY: we mapped it, and references into it can't outlive `self`.
        let _ = unsafe { munmap(self.base.cast(), self.length) };
    }
}
