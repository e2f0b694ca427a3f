//! Shared memory of another process, mapped here.
//!
//! # Safety
//!
//! The other process writes it at the same time and may write anything: so it is reached by atomic
//! operations alone, and every offset is checked against the size of the mapping. It can't shrink
//! under us: memory files have to be sealed against that, and System V segments never change their
//! size. Crash files are the asker's own.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::arena::PAGE;
use everycall_ring::SegmentEntry;
use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::geteuid;

/// A shared mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    size: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    File,
    Segment,
}

impl Mapping {
    /// Maps the whole of a memory file that is sealed against shrinking.
    pub fn of_file(file: BorrowedFd<'_>) -> io::Result<Mapping> {
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory isn't sealed"));
        }
        Mapping::whole(file)
    }

    /// Maps the whole of a crash file. It can't be sealed: truncating it ends this process as well
    /// as the program. So it must belong to this process's user, unless that is root, and nobody
    /// else may write to it.
    pub fn of_crash_file(file: BorrowedFd<'_>) -> io::Result<Mapping> {
        let facts = fstat(file)?;
        let own = geteuid().as_raw();
        let is_plain = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        if !is_plain || facts.st_mode & 0o022 != 0 || own != 0 && facts.st_uid != own {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "others may write to its crash file",
            ));
        }
        Mapping::whole(file)
    }

    fn whole(file: BorrowedFd<'_>) -> io::Result<Mapping> {
        let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        let length = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, flags, file, 0) }?;
        Ok(Mapping { base: base.cast(), size, kind: Kind::File })
    }

    /// Attaches System V segment `id`.
    pub fn of_segment(id: i32) -> io::Result<Mapping> {
        // SAFETY: an all-zero shmid_ds is a valid one, and it is only written.
        let mut facts: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: writes one shmid_ds.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut facts) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let base = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if base as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), size: facts.shm_segsz as u64, kind: Kind::Segment })
    }

    /// Bytes that are mapped.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where it begins.
    pub fn base(&self) -> u64 {
        self.base as u64
    }

    /// `count` objects from `offset` on; none where not all of them are inside, or the offset isn't aligned.
    fn slice<T>(&self, offset: u64, count: u64) -> &[T] {
        let end = count.checked_mul(size_of::<T>() as u64).and_then(|size| size.checked_add(offset));
        let inside = end.is_some_and(|end| end <= self.size) && offset.is_multiple_of(align_of::<T>() as u64);
        if !inside {
            return &[];
        }
        // SAFETY: inside the mapping, which lives as long as `self` and begins at a page; aligned.
        // Callers' types consist of atomics, for which any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.base.byte_add(offset as usize).cast(), count as usize) }
    }

    /// Makes `count` bytes from `offset` on reachable without a page fault for each page (Linux
    /// 5.14; elsewhere they take their faults).
    pub fn populate(&self, offset: u64, count: u64) {
        let (Ok(length), page) = (usize::try_from(count), PAGE) else { return };
        let is_inside = offset.checked_add(count).is_some_and(|end| end <= self.size);
        if is_inside && offset.is_multiple_of(page) && count.is_multiple_of(page) {
            // SAFETY: inside the mapping; changes no memory's contents.
            let _ = unsafe {
                madvise(self.base.byte_add(offset as usize).cast(), length, Advice::LinuxPopulateRead)
            };
        }
    }

    /// Words from `offset` on.
    pub fn words(&self, offset: u64, count: u64) -> &[AtomicU64] {
        self.slice(offset, count)
    }

    /// A field of 32 bits.
    pub fn u32_at(&self, offset: u64) -> Option<&AtomicU32> {
        self.slice(offset, 1).first()
    }

    /// A field of 64 bits.
    pub fn u64_at(&self, offset: u64) -> Option<&AtomicU64> {
        self.slice(offset, 1).first()
    }

    /// The table of segments.
    pub fn segment_entries(&self, offset: u64, count: u64) -> &[SegmentEntry] {
        self.slice(offset, count)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we mapped it, and references into it can't outlive `self`.
        unsafe {
            match self.kind {
                Kind::File => {
                    let _ = munmap(self.base.cast(), self.size as usize);
                }
                Kind::Segment => {
                    libc::shmdt(self.base.cast());
                }
            }
        }
    }
}

// SAFETY: the mapping belongs to no thread, and is only reached by atomic operations.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
