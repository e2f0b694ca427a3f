//! System calls for files and folders, by path or relative to an open folder.
#![allow(unsafe_code)] // System calls.

use crate::sys::errors::errno;
use crate::sys::name::Name;
use crate::sys::system::{self, MAP_FIXED, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE, done};
use everycall_hooks::arch::kernel::{O_DIRECTORY, O_NOFOLLOW};
use everycall_hooks::arch::number;
use everycall_hooks::syscall;

const O_RDONLY: usize = 0;
const O_WRONLY: usize = 1;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NOCTTY: usize = 0o400;
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2_000_000;
/// Refers to a file without opening it.
const O_PATH: usize = 0o10_000_000;
const O_TMPFILE: usize = 0o20_000_000 | O_DIRECTORY;
/// Makes a new file; never opens an existing one or follows a link.
const NEW: usize = O_CREAT | O_EXCL | O_NOFOLLOW;
/// Paths are relative to the working folder.
const AT_FDCWD: usize = -100_isize as usize;
/// New files are accessible only to their owner.
const OWNER_ONLY: usize = 0o600;

/// An open file. It is closed when dropped.
pub(crate) struct File(usize);

impl File {
    /// Opens a path relative to a folder. The path must end with NUL; otherwise EINVAL.
    fn open_at(folder: usize, path: &[u8], flags: usize) -> Result<File, isize> {
        if path.last() != Some(&0) {
            return Err(errno::EINVAL);
        }
        let arguments = [folder, path.as_ptr() as usize, flags | O_CLOEXEC, OWNER_ONLY, 0, 0];
        // SAFETY: the path ends with NUL.
        File::from_result(unsafe { syscall(number::OPENAT, arguments) })
    }

    /// Opens a path that ends with NUL.
    pub(crate) fn open(path: &[u8], write: bool) -> Option<File> {
        File::open_at(AT_FDCWD, path, if write { O_RDWR } else { O_RDONLY }).ok()
    }

    /// Refers to the file at a path without opening it, because opening a device may have side
    /// effects. The path ends with NUL.
    pub(crate) fn found(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_PATH)
    }

    /// Opens the file to which this refers, for reading and writing.
    pub(crate) fn reopened(&self) -> Result<File, isize> {
        File::open_at(AT_FDCWD, self.own_path().text(), O_RDWR)
    }

    /// The path of the descriptor. (The thread may have a descriptor table of its own.)
    fn own_path(&self) -> Name {
        let mut path = Name::empty();
        path.put(b"/proc/thread-self/fd/");
        path.put_number(self.0 as u32);
        path
    }

    /// Opens something that may not be a file, without waiting for it. The path ends with NUL.
    pub(crate) fn open_to_read(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
    }

    /// As [`File::open_to_read`], but fails if the path's last part is a symbolic link.
    pub(crate) fn open_no_link(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW)
    }

    /// Refers to the file or link at a path without opening it. The path ends with NUL.
    pub(crate) fn named(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW)
    }

    /// Opens a folder. The path ends with NUL, and its last part must not be a symbolic link.
    pub(crate) fn open_folder(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    }

    /// Opens a folder, also through a symbolic link.
    pub(crate) fn open_folder_or_link(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY)
    }

    /// Makes a new file for writing. The path ends with NUL.
    pub(crate) fn create(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_WRONLY | NEW)
    }

    /// Makes a new file in this folder. The name ends with NUL.
    pub(crate) fn create_in(&self, name: &[u8]) -> Result<File, isize> {
        File::open_at(self.0, name, O_RDWR | NEW)
    }

    /// Makes a new file without a name in this folder.
    pub(crate) fn create_unnamed_in(&self) -> Result<File, isize> {
        File::open_at(self.0, b".\0", O_RDWR | O_TMPFILE)
    }

    /// Gives an unnamed file a name in a folder.
    pub(crate) fn give_name(&self, folder: &File, name: &Name) -> Result<(), isize> {
        const AT_SYMLINK_FOLLOW: usize = 0x400;
        let path = self.own_path();
        let (from, to) = (path.text().as_ptr() as usize, name.text().as_ptr() as usize);
        // SAFETY: both end with NUL.
        done(unsafe { syscall(number::LINKAT, [AT_FDCWD, from, folder.0, to, AT_SYMLINK_FOLLOW, 0]) })
    }

    /// Refers to the file or link with this name in this folder without opening it. The name ends
    /// with NUL.
    pub(crate) fn named_in(&self, name: &[u8]) -> Result<File, isize> {
        File::open_at(self.0, name, O_PATH | O_NOFOLLOW)
    }

    /// Removes a file in this folder. The name ends with NUL.
    pub(crate) fn remove_in(&self, name: &[u8]) {
        remove_at(self.0, name);
    }

    /// The file of a descriptor, or the kernel's error.
    pub(crate) fn from_result(result: isize) -> Result<File, isize> {
        usize::try_from(result).map(File).map_err(|_| result)
    }

    pub(crate) fn number(&self) -> usize {
        self.0
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.0 as i32
    }

    /// Reads up to `buffer.len()` bytes. Returns 0 at the end and on errors.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> usize {
        // SAFETY: writes into the buffer only.
        let count =
            unsafe { syscall(number::READ, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Reads up to `buffer.len()` bytes at `offset`. Returns 0 at the end and on errors.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let place = buffer.as_mut_ptr() as usize;
        // SAFETY: writes into the buffer only.
        let count = unsafe { syscall(number::PREAD64, [self.0, place, buffer.len(), offset as usize, 0, 0]) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Writes `bytes` at `offset`. Returns whether all were written.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> bool {
        // SAFETY: only reads the bytes. The caller is responsible for the destination (the text of
        // a site).
        let count = unsafe {
            syscall(number::PWRITE64, [self.0, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0])
        };
        usize::try_from(count) == Ok(bytes.len())
    }

    /// Maps the file shared and writable.
    pub(crate) fn map_shared(&self, length: u64) -> Option<*mut u8> {
        system::map(length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, self.0.cast_signed())
    }

    /// As [`File::map_shared`], in place of a mapping of the same length, which it replaces.
    pub(crate) fn map_shared_at(&self, place: *mut u8, length: u64) -> Option<*mut u8> {
        let protection = PROT_READ | PROT_WRITE;
        let flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: replaces a mapping of the caller's own, to which the caller keeps no references.
        let address =
            unsafe { syscall(number::MMAP, [place as usize, length as usize, protection, flags, self.0, 0]) };
        (address == place as isize).then_some(place)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our own descriptor, not used afterwards.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Renames a file. The paths must end with NUL; otherwise EINVAL.
pub(crate) fn rename(from: &[u8], to: &[u8]) -> Result<(), isize> {
    if from.last() != Some(&0) || to.last() != Some(&0) {
        return Err(errno::EINVAL);
    }
    let arguments = [AT_FDCWD, from.as_ptr() as usize, AT_FDCWD, to.as_ptr() as usize, 0, 0];
    // SAFETY: both paths end with NUL.
    done(unsafe { syscall(number::RENAMEAT, arguments) })
}

/// Removes a file. Its path ends with NUL.
pub(crate) fn remove(path: &[u8]) {
    remove_at(AT_FDCWD, path);
}

fn remove_at(folder: usize, path: &[u8]) {
    if path.last() == Some(&0) {
        // SAFETY: the path ends with NUL.
        unsafe { syscall(number::UNLINKAT, [folder, path.as_ptr() as usize, 0, 0, 0, 0]) };
    }
}
