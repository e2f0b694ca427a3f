//! System calls for files that are mapped: ownership and permissions, and allocation of disk space.
#![allow(unsafe_code)] // System calls.

use crate::sys::file::File;
use crate::sys::system::{self, done};
use everycall_format::hub::SPARE_MODE;
use everycall_hooks::arch::kernel::mode_owner_links;
use everycall_hooks::arch::number;
use everycall_hooks::syscall;

/// Bits of a mode that hold the file type.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// Bits of a mode that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// How the file system of a folder allocates space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Space that is allocated for a file stays allocated.
    Plain,
    /// As [`Plain`](Disk::Plain), but only for files that were marked ([`mark`]) before anything
    /// was written: Btrfs.
    Marked,
    /// Every write may need new space, or it is unknown whether it does.
    Other,
}

/// The result of `fstat`, 144 bytes or fewer.
fn stat(descriptor: usize) -> Option<[u64; 18]> {
    let mut facts = [0_u64; 18];
    // SAFETY: writes one stat.
    let result = unsafe { syscall(number::FSTAT, [descriptor, facts.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (result == 0).then_some(facts)
}

/// The size of an open file; 0 if it is unknown.
pub(crate) fn size_behind(descriptor: i32) -> u64 {
    usize::try_from(descriptor).ok().and_then(stat).map_or(0, |facts| facts[6])
}

/// The size of the file at a path, which ends with NUL; of a link its own.
pub(crate) fn size_at(path: &[u8]) -> Option<u64> {
    const AT_FDCWD: usize = -100_isize as usize;
    const AT_SYMLINK_NOFOLLOW: usize = 0x100;
    let mut facts = [0_u64; 18];
    let place = facts.as_mut_ptr() as usize;
    if path.last() != Some(&0) {
        return None;
    }
    // SAFETY: the path ends with NUL; writes one stat.
    let result = unsafe {
        syscall(number::NEWFSTATAT, [AT_FDCWD, path.as_ptr() as usize, place, AT_SYMLINK_NOFOLLOW, 0, 0])
    };
    (result == 0).then_some(facts[6])
}

fn user() -> u32 {
    // SAFETY: only returns a number.
    unsafe { syscall(number::GETEUID, [0; 6]) as u32 }
}

/// Whether a folder belongs to the process's user, and only that user may write there.
pub(crate) fn is_private(folder: &File) -> bool {
    stat(folder.number()).is_some_and(|facts| {
        let (mode, owner, _) = mode_owner_links(&facts);
        owner == user() && mode & OTHERS_WRITE == 0
    })
}

/// Seals of memory whose size can't change any more: `F_SEAL_SEAL`, `F_SEAL_SHRINK`, `F_SEAL_GROW`.
const FIXED_SIZE: usize = 7;

/// Why a recorder's memory is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMemory {
    /// The memory is gone, or the process may not open it.
    NotThere,
    /// Its owner is neither the process's user nor root, or other users could write to it.
    NotTrusted,
    /// It belongs to a `record` of another version.
    OtherVersion,
}

/// Opens a recorder's memory under `/proc/PID/fd` for mapping. The path ends with NUL. Anything
/// else at that path isn't opened, because opening a device may have side effects.
pub(crate) fn open_memory(path: &[u8]) -> Result<File, NotMemory> {
    let named = File::found(path).map_err(|_| NotMemory::NotThere)?;
    if !is_recorders(&named) {
        return Err(NotMemory::NotTrusted);
    }
    let file = named.reopened().map_err(|_| NotMemory::NotThere)?;
    if seals(&file) & FIXED_SIZE == FIXED_SIZE { Ok(file) } else { Err(NotMemory::OtherVersion) }
}

/// The seals of a memory file. Other files can't have [`FIXED_SIZE`].
fn seals(file: &File) -> usize {
    const GET_SEALS: usize = 1034;
    // SAFETY: only returns a number.
    let seals = unsafe { syscall(number::FCNTL, [file.number(), GET_SEALS, 0, 0, 0, 0]) };
    usize::try_from(seals).unwrap_or(0)
}

/// Whether a file belongs to the process's user or to root, and others may not open it for writing.
pub(crate) fn is_recorders(file: &File) -> bool {
    facts_of(file).is_some_and(|facts| facts.is_regular && facts.is_trusted)
}

/// The size of a file. A memory file with a sealed size keeps it.
pub(crate) fn size_of(file: &File) -> Option<u64> {
    facts_of(file).map(|facts| facts.size)
}

/// Whether a recorder's arena is unclaimed. The recorder marks spare arenas, and removes the mark
/// when one is claimed. Only the recorder can do that, so a process that has an arena can't make
/// another process take it, too.
pub(crate) fn is_spare(file: &File) -> bool {
    stat(file.number()).is_some_and(|facts| mode_owner_links(&facts).0 & SPARE_MODE == SPARE_MODE)
}

/// Device and inode of a descriptor's file.
pub(crate) fn identity_of(descriptor: usize) -> Option<(u64, u64)> {
    stat(descriptor).map(|facts| (facts[0], facts[1]))
}

/// Properties of a file that is to be read.
pub(crate) struct Facts {
    pub(crate) is_regular: bool,
    /// It belongs to this user or root.
    pub(crate) is_own: bool,
    /// It is [`Facts::is_own`], and others may not write to it.
    pub(crate) is_trusted: bool,
    pub(crate) size: u64,
    /// How many names it has.
    pub(crate) links: u64,
}

/// See [`Facts`].
pub(crate) fn facts_of(file: &File) -> Option<Facts> {
    let facts = stat(file.number())?;
    let (mode, owner, links) = mode_owner_links(&facts);
    let is_own = owner == 0 || owner == user();
    Some(Facts {
        is_regular: mode & TYPE == REGULAR,
        is_own,
        is_trusted: is_own && mode & OTHERS_WRITE == 0,
        // Everywhere at the same place.
        size: facts[6],
        links,
    })
}

/// Whether a new file may have this path, which ends with NUL: nothing is there, or a file or link.
/// Devices and pipes are not replaced.
pub(crate) fn is_for_files(path: &[u8]) -> bool {
    const LINK: u32 = 0o120_000;
    let Some(facts) = File::named(path).ok().and_then(|file| stat(file.number())) else { return true };
    matches!(mode_owner_links(&facts).0 & TYPE, REGULAR | LINK)
}

/// The kind of file system on which a file or folder lies.
pub(crate) fn disk_of(file: &File) -> Disk {
    let mut facts = [0_u64; 16];
    // SAFETY: writes one statfs, 120 bytes, which begins with the type.
    let result =
        unsafe { syscall(number::FSTATFS, [file.number(), facts.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    match facts[0] {
        _ if result != 0 => Disk::Other,
        // ext2 to ext4, XFS, tmpfs, overlayfs.
        0xef53 | 0x5846_5342 | 0x0102_1994 | 0x794c_7630 => Disk::Plain,
        0x9123_683e => Disk::Marked,
        _ => Disk::Other,
    }
}

/// Marks a new file so that it is written in place (`chattr +C`).
pub(crate) fn mark(file: &File) -> bool {
    const GET_FLAGS: usize = 0x8008_6601;
    const SET_FLAGS: usize = 0x4008_6602;
    const NOCOW: u64 = 0x0080_0000;
    let mut flags = 0_u64;
    // SAFETY: writes the flags only.
    let known =
        unsafe { syscall(number::IOCTL, [file.number(), GET_FLAGS, &raw mut flags as usize, 0, 0, 0]) };
    let marked = flags | NOCOW;
    // SAFETY: reads the flags only.
    known == 0
        && unsafe { syscall(number::IOCTL, [file.number(), SET_FLAGS, &raw const marked as usize, 0, 0, 0]) }
            == 0
}

/// Sets the size of a file. The bytes read as zeros and take no disk space yet.
pub(crate) fn set_size(file: &File, size: u64) -> Result<(), isize> {
    // SAFETY: our own, new file.
    done(unsafe { syscall(number::FTRUNCATE, [file.number(), size as usize, 0, 0, 0, 0]) })
}

/// Allocates disk space for the first `size` bytes of a file, as far as its file system can.
pub(crate) fn take_room(file: &File, size: u64) -> Result<(), isize> {
    const KEEP_SIZE: usize = 1;
    // SAFETY: our own, new file.
    done(unsafe { syscall(number::FALLOCATE, [file.number(), KEEP_SIZE, 0, size as usize, 0, 0]) })
}

/// Makes pages of a mapped file present and writable. This allocates their disk space, so later
/// writes need none. (On a full disk, the kernel returns an error here instead of raising a signal
/// later.) EINVAL before Linux 5.14.
pub(crate) fn take_room_at(address: u64, size: u64) -> Result<(), isize> {
    system::advise(address as *mut u8, size, system::MADV_POPULATE_WRITE)
}
