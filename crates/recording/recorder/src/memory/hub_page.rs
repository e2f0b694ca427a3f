//! The hub's first page in our memory: the doorbell and its answer are futexes, which need an address that is
//! shared with the traced processes, and spare arenas are handed over by atomic exchanges.
//!
//! # Safety
//!
//! The page is mapped for as long as [`HubPage`] lives, and reached by atomic operations alone, as other
//! processes write it at the same time. The memfd is sealed against shrinking before it is mapped, so that
//! no access can fault.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use everycall_format::arena::PAGE;
use everycall_format::hub::{ASKING, HubHeader, SPARES};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of the hub's header.
#[derive(Debug)]
pub struct HubPage(*mut AtomicU32);

// SAFETY: the mapping belongs to no thread, and is only reached by atomic operations.
unsafe impl Send for HubPage {}
// SAFETY: as above.
unsafe impl Sync for HubPage {}

impl HubPage {
    /// Maps the first page of the hub.
    pub fn map(hub: BorrowedFd<'_>) -> io::Result<HubPage> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let page = unsafe { mmap(std::ptr::null_mut(), PAGE as usize, access, MapFlags::SHARED, hub, 0) }?;
        Ok(HubPage(page.cast()))
    }

    /// [`HubHeader::doorbell`].
    pub fn doorbell(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, doorbell))
    }

    /// [`HubHeader::acknowledged`].
    pub fn acknowledged(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, acknowledged))
    }

    /// [`HubHeader::silent`].
    pub fn silent(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, silent))
    }

    /// [`HubHeader::captures`].
    pub fn captures(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, captures))
    }

    /// [`HubHeader::selects`].
    pub fn selects(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, selects))
    }

    /// [`HubHeader::follow`].
    pub fn follow(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, follow))
    }

    /// [`HubHeader::hooks`].
    pub fn hooks(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, hooks))
    }

    /// [`HubHeader::asked`].
    pub fn asked(&self) -> &AtomicU32 {
        self.at(offset_of!(HubHeader, asked))
    }

    /// The places of [`HubHeader::asking`].
    pub fn asking(&self) -> impl Iterator<Item = &AtomicU32> {
        (0..ASKING).map(|place| self.at(offset_of!(HubHeader, asking) + place * size_of::<u32>()))
    }

    /// The places of [`HubHeader::spares`].
    pub fn spares(&self) -> impl Iterator<Item = &AtomicU32> {
        (0..SPARES).map(|place| self.at(offset_of!(HubHeader, spares) + place * size_of::<u32>()))
    }

    fn at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset is that of an aligned 32-bit field in the mapped page.
        unsafe { &*self.0.byte_add(offset) }
    }
}

impl Drop for HubPage {
    fn drop(&mut self) {
        // SAFETY: we mapped it, and references into it can't outlive `self`.
        let _ = unsafe { munmap(self.0.cast(), PAGE as usize) };
    }
}
