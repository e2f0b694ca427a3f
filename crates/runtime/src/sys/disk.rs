//! System calls about files that are mapped: a folder that is the user's own, and room on its disk.
#![allow(unsafe_code)] // System calls.

use crate::sys::file::File;
use crate::sys::system::{self, done};
use everycall_format::hub::SPARE_MODE;
use everycall_hooks::arch::number;
use everycall_hooks::syscall;

/// Bits of a mode that say what kind of file it is.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// What lies below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Room that a file has stays its own.
    Plain,
    /// Only for files that are marked before anything is written: Btrfs.
    Marked,
    /// Every write needs new room, or nobody knows.
    Other,
}

/// What the kernel says of a file: one `stat`, 144 bytes.
fn stat(descriptor: usize) -> Option<[u64; 18]> {
    let mut facts = [0_u64; 18];
    // SAFETY: writes one stat.
    let result = unsafe { syscall(number::FSTAT, [descriptor, facts.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (result == 0).then_some(facts)
}

/// The mode of a file, and whose it is. Behind device, inode and links, 64 bits each, they are 32
/// bits each.
fn mode_and_owner(facts: &[u64; 18]) -> (u32, u32) {
    (facts[3] as u32, (facts[3] >> 32) as u32)
}

fn user() -> u32 {
    // SAFETY: only returns a number.
    unsafe { syscall(number::GETEUID, [0; 6]) as u32 }
}

/// Whether a folder is the process's user's, and nobody else may write there.
pub(crate) fn is_private(folder: &File) -> bool {
    stat(folder.number()).is_some_and(|facts| {
        let (mode, owner) = mode_and_owner(&facts);
        owner == user() && mode & OTHERS_WRITE == 0
    })
}

/// Seals of memory whose size nobody can change any more: `F_SEAL_SEAL`, `F_SEAL_SHRINK`,
/// `F_SEAL_GROW`.
const FIXED_SIZE: usize = 7;

/// Why a recorder's memory isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMemory {
    /// It is gone, or the process may not open it.
    NotThere,
    /// It isn't a recorder's of the process's user or root, or others could write to it.
    NotTrusted,
    /// It is of a `record` of another version.
    OtherVersion,
}

/// Opens a recorder's memory under `/proc/PID/fd` to be mapped; its path ends with NUL. What else
/// lies there isn't even opened: to open a device may do something.
pub(crate) fn open_memory(path: &[u8]) -> Result<File, NotMemory> {
    let named = File::found(path).map_err(|_| NotMemory::NotThere)?;
    if !is_recorders(&named) {
        return Err(NotMemory::NotTrusted);
    }
    let file = named.reopened().map_err(|_| NotMemory::NotThere)?;
    if seals(&file) & FIXED_SIZE == FIXED_SIZE { Ok(file) } else { Err(NotMemory::OtherVersion) }
}

/// What the kernel keeps from being done with a memory file; other files can't have [`FIXED_SIZE`].
fn seals(file: &File) -> usize {
    const GET_SEALS: usize = 1034;
    // SAFETY: only returns a number.
    let seals = unsafe { syscall(number::FCNTL, [file.number(), GET_SEALS, 0, 0, 0, 0]) };
    usize::try_from(seals).unwrap_or(0)
}

/// Whether a file is the process's user's or root's, and nobody else may open it to write.
pub(crate) fn is_recorders(file: &File) -> bool {
    facts_of(file).is_some_and(|facts| facts.is_regular && facts.is_trusted)
}

/// How large a file is. That of a memory file whose size is sealed stays so.
pub(crate) fn size_of(file: &File) -> Option<u64> {
    facts_of(file).map(|facts| facts.size)
}

/// Whether a recorder's arena is nobody's yet: the recorder marks those so, and takes the mark away
/// when one is claimed. Only it can, so that who has an arena can't have another process take it,
/// too.
pub(crate) fn is_spare(file: &File) -> bool {
    stat(file.number()).is_some_and(|facts| mode_and_owner(&facts).0 & SPARE_MODE == SPARE_MODE)
}

/// What a descriptor stands for: device and inode.
pub(crate) fn identity_of(descriptor: usize) -> Option<(u64, u64)> {
    stat(descriptor).map(|facts| (facts[0], facts[1]))
}

/// What is known of a file that is to be read.
pub(crate) struct Facts {
    pub(crate) is_regular: bool,
    /// It is this user's or root's, and nobody else may write there.
    pub(crate) is_trusted: bool,
    pub(crate) size: u64,
}

/// See [`Facts`].
pub(crate) fn facts_of(file: &File) -> Option<Facts> {
    let facts = stat(file.number())?;
    let (mode, owner) = mode_and_owner(&facts);
    Some(Facts {
        is_regular: mode & TYPE == REGULAR,
        is_trusted: (owner == 0 || owner == user()) && mode & OTHERS_WRITE == 0,
        // Behind group, padding and what a device is.
        size: facts[6],
    })
}

/// Whether a new file may take this name, which ends with NUL: nothing has it, or a file, or a
/// link. A device or a pipe stays what it is.
pub(crate) fn is_for_files(path: &[u8]) -> bool {
    const LINK: u32 = 0o120_000;
    let Some(facts) = File::named(path).ok().and_then(|file| stat(file.number())) else { return true };
    matches!(mode_and_owner(&facts).0 & TYPE, REGULAR | LINK)
}

/// What a file or folder lies on.
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

/// Gives a file so many bytes, which read as zeros and take no room yet.
pub(crate) fn set_size(file: &File, size: u64) -> Result<(), isize> {
    // SAFETY: our own, new file.
    done(unsafe { syscall(number::FTRUNCATE, [file.number(), size as usize, 0, 0, 0, 0]) })
}

/// Takes room on the disk for the first `size` bytes of a file, as far as its file system can.
pub(crate) fn take_room(file: &File, size: u64) -> Result<(), isize> {
    const KEEP_SIZE: usize = 1;
    // SAFETY: our own, new file.
    done(unsafe { syscall(number::FALLOCATE, [file.number(), KEEP_SIZE, 0, size as usize, 0, 0]) })
}

/// Makes pages of a mapped file present and writable, which takes room for them on its disk:
/// whoever writes there later needs none. (Where the disk is full, the kernel says so here, and not
/// by a signal.) EINVAL before Linux 5.14.
pub(crate) fn take_room_at(address: u64, size: u64) -> Result<(), isize> {
    system::advise(address as *mut u8, size, system::MADV_POPULATE_WRITE)
}
