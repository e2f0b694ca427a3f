//! The arena's first page in our memory: the doorbell and its answer are futexes, which need an address that is
//! shared with the traced process. All else is read through the file descriptor.
//!
//! # Safety
//!
//! The page is mapped for as long as [`HeaderPage`] lives, and reached by atomic operations alone, as the other
//! process writes it at the same time. The memfd is sealed against shrinking before it is mapped, so that
//! no access can fault.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use everycall_format::arena::{ArenaHeader, PAGE};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of the arena's header.
#[derive(Debug)]
pub struct HeaderPage(*mut AtomicU32);

// SAFETY: the mapping belongs to no thread, and is only reached by atomic operations.
unsafe impl Send for HeaderPage {}
// SAFETY: as above.
unsafe impl Sync for HeaderPage {}

impl HeaderPage {
    /// Maps the first page of the arena.
    pub fn map(arena: BorrowedFd<'_>) -> io::Result<HeaderPage> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let page = unsafe { mmap(std::ptr::null_mut(), PAGE as usize, access, MapFlags::SHARED, arena, 0) }?;
        Ok(HeaderPage(page.cast()))
    }

    /// [`ArenaHeader::doorbell`].
    pub fn doorbell(&self) -> &AtomicU32 {
        self.at(offset_of!(ArenaHeader, doorbell))
    }

    /// [`ArenaHeader::acknowledged`].
    pub fn acknowledged(&self) -> &AtomicU32 {
        self.at(offset_of!(ArenaHeader, acknowledged))
    }

    fn at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is that of an aligned 32-bit field in the mapped page.
        unsafe { &*self.0.byte_add(offset) }
    }
}

impl Drop for HeaderPage {
    fn drop(&mut self) {
        // SAFETY: we mapped it, and references into it can't outlive `self`.
        let _ = unsafe { munmap(self.0.cast(), PAGE as usize) };
    }
}
