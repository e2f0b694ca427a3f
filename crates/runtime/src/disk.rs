//! System calls about files that are mapped: a folder that is the user's own, a new file in it, and room on its disk.

use crate::folder::Name;
use crate::system::{self, File, number};
use everycall_hooks::syscall;

const O_RDONLY: usize = 0;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_DIRECTORY: usize = 0o200_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
const AT_FDCWD: usize = -100_isize as usize;
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
const MADV_POPULATE_WRITE: usize = 23;

/// Errors of the kernel.
pub(crate) mod errno {
    pub const ENOENT: isize = -2;
    pub const EEXIST: isize = -17;
    pub const ENOTDIR: isize = -20;
    pub const EINVAL: isize = -22;
    pub const ENOSPC: isize = -28;
    pub const ELOOP: isize = -40;
    pub const EDQUOT: isize = -122;
}

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

/// Opens a folder, whose path ends with NUL; its last part is no symbolic link.
pub(crate) fn open_folder(path: &[u8]) -> Result<File, isize> {
    if path.last() != Some(&0) {
        return Err(errno::EINVAL);
    }
    let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the path ends with NUL.
    File::from_result(unsafe { syscall(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0]) })
}

/// The same, also through a link.
pub(crate) fn open_folder_or_link(path: &[u8]) -> Result<File, isize> {
    if path.last() != Some(&0) {
        return Err(errno::EINVAL);
    }
    let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    // SAFETY: the path ends with NUL.
    File::from_result(unsafe { syscall(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0]) })
}

/// Makes a new file without a name, for its owner alone.
pub(crate) fn create_unnamed(folder: &File) -> Result<File, isize> {
    const O_TMPFILE: usize = 0o20_000_000 | O_DIRECTORY;
    // SAFETY: the path ends with NUL.
    File::from_result(unsafe {
        let here = c".".as_ptr() as usize;
        syscall(number::OPENAT, [folder.number(), here, O_RDWR | O_TMPFILE | O_CLOEXEC, 0o600, 0, 0])
    })
}

/// Gives such a file a name in a folder.
pub(crate) fn give_name(file: &File, folder: &File, name: &Name) -> Result<(), isize> {
    const AT_SYMLINK_FOLLOW: usize = 0x400;
    // The thread may have a table of descriptors of its own.
    let mut path = Name::empty();
    path.put(b"/proc/thread-self/fd/");
    path.put_number(file.number() as u32);
    let (from, to) = (path.text(), name.text());
    // SAFETY: both end with NUL.
    let result = unsafe {
        syscall(
            number::LINKAT,
            [AT_FDCWD, from.as_ptr() as usize, folder.number(), to.as_ptr() as usize, AT_SYMLINK_FOLLOW, 0],
        )
    };
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Removes a file in a folder. The name ends with NUL.
pub(crate) fn remove_in(folder: &File, name: &[u8]) {
    if name.last() == Some(&0) {
        // SAFETY: the name ends with NUL.
        unsafe { syscall(number::UNLINKAT, [folder.number(), name.as_ptr() as usize, 0, 0, 0, 0]) };
    }
}

/// Makes a new file in a folder, for its owner alone. The name ends with NUL.
pub(crate) fn create_in(folder: &File, name: &[u8]) -> Result<File, isize> {
    if name.last() != Some(&0) {
        return Err(errno::EINVAL);
    }
    let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: the name ends with NUL.
    File::from_result(unsafe {
        syscall(number::OPENAT, [folder.number(), name.as_ptr() as usize, flags, 0o600, 0, 0])
    })
}

/// Whether a folder is the process's user's, and nobody else may write there.
pub(crate) fn is_private(folder: &File) -> bool {
    let mut facts = [0_u64; 18];
    // SAFETY: writes one stat, 144 bytes; then only returns a number.
    let (result, user) = unsafe {
        (
            syscall(number::FSTAT, [folder.number(), facts.as_mut_ptr() as usize, 0, 0, 0, 0]),
            syscall(number::GETEUID, [0; 6]),
        )
    };
    // Behind device, inode and links, 64 bits each: mode and owner, 32 bits each.
    let (mode, owner) = (facts[3] as u32, (facts[3] >> 32) as u32);
    result == 0 && owner as isize == user && mode & OTHERS_WRITE == 0
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
    match unsafe { syscall(number::FTRUNCATE, [file.number(), size as usize, 0, 0, 0, 0]) } {
        0 => Ok(()),
        other => Err(other),
    }
}

/// Takes room on the disk for the first `size` bytes of a file, as far as its file system can.
pub(crate) fn take_room(file: &File, size: u64) -> Result<(), isize> {
    const KEEP_SIZE: usize = 1;
    // SAFETY: our own, new file.
    match unsafe { syscall(number::FALLOCATE, [file.number(), KEEP_SIZE, 0, size as usize, 0, 0]) } {
        0 => Ok(()),
        other => Err(other),
    }
}

/// Makes pages of a mapped file present and writable, which takes room for them on its disk: whoever writes there later needs none.
/// (Where the disk is full, the kernel says so here, and not by a signal.) EINVAL before Linux 5.14.
pub(crate) fn take_room_at(address: u64, size: u64) -> Result<(), isize> {
    // SAFETY: changes no bytes.
    match unsafe { syscall(number::MADVISE, [address as usize, size as usize, MADV_POPULATE_WRITE, 0, 0, 0]) }
    {
        0 => Ok(()),
        other => Err(other),
    }
}

/// The working folder, with a NUL; its bytes without that, 0 where it has no path.
pub(crate) fn working_folder(buffer: &mut [u8]) -> usize {
    // SAFETY: writes into the buffer only.
    let count = unsafe { syscall(number::GETCWD, [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0]) };
    // One that can't be reached from the root begins with "(unreachable)".
    let is_path = buffer.first() == Some(&b'/');
    usize::try_from(count).ok().filter(|_| is_path).and_then(|count| count.checked_sub(1)).unwrap_or(0)
}

/// Removes a file, whose path ends with NUL.
pub(crate) fn remove(path: &[u8]) {
    if path.last() == Some(&0) {
        system::unlink(path);
    }
}
