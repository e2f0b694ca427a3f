//! Private memory that is mapped for one purpose, and unmapped when it is dropped.
#![allow(unsafe_code)] // Memory that is mapped here.

use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};

/// Bytes, zero at first.
pub(crate) struct Block {
    base: *mut u8,
    size: u64,
}

// SAFETY: the memory belongs to the block alone, and to no thread.
unsafe impl Send for Block {}

impl Block {
    /// `size` bytes. `None` if there is no memory.
    pub(crate) fn new(size: u64) -> Option<Block> {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let base = system::map(size.max(1), PROT_READ | PROT_WRITE, flags, -1)?;
        Some(Block { base, size })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, of this size; the owner of the block writes only through it.
        unsafe { core::slice::from_raw_parts(self.base, self.size as usize) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.base, self.size as usize) }
    }

    /// The address, for an owner who keeps the block beyond this value.
    pub(crate) fn leak(self) -> *mut u8 {
        let base = self.base;
        core::mem::forget(self);
        base
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        system::unmap(self.base, self.size.max(1));
    }
}
