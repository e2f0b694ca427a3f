//! System calls about files and folders, by path or beside an open folder.

use crate::api::error;
use crate::disk;
use crate::folder::Name;
use crate::system::{self, MAP_FIXED, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE, done, number};
use everycall_hooks::syscall;

const O_RDONLY: usize = 0;
const O_WRONLY: usize = 1;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NOCTTY: usize = 0o400;
const O_NONBLOCK: usize = 0o4000;
const O_DIRECTORY: usize = 0o200_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
/// Names a file without opening it.
const O_PATH: usize = 0o10_000_000;
const O_TMPFILE: usize = 0o20_000_000 | O_DIRECTORY;
/// A new file, never one that is there, nor through a link.
const NEW: usize = O_CREAT | O_EXCL | O_NOFOLLOW;
/// Paths begin at the working folder.
const AT_FDCWD: usize = -100_isize as usize;
/// Files that are made are for their owner alone.
const OWNER_ONLY: usize = 0o600;

/// Errors of the kernel.
pub(crate) mod errno {
    pub const EPERM: isize = -1;
    pub const ENOENT: isize = -2;
    pub const ESRCH: isize = -3;
    pub const EINTR: isize = -4;
    pub const ENOMEM: isize = -12;
    pub const EACCES: isize = -13;
    pub const EFAULT: isize = -14;
    pub const EEXIST: isize = -17;
    pub const ENOTDIR: isize = -20;
    pub const EINVAL: isize = -22;
    pub const EFBIG: isize = -27;
    pub const ENOSPC: isize = -28;
    pub const EROFS: isize = -30;
    pub const ELOOP: isize = -40;
    pub const EDQUOT: isize = -122;
}

/// What the header calls an error of files.
pub(crate) fn told(result: isize) -> i32 {
    match result {
        errno::EINVAL => error::ARGUMENT,
        errno::ENOENT | errno::ENOTDIR => error::NO_FOLDER,
        errno::EPERM | errno::EACCES | errno::EROFS => error::NOT_ALLOWED,
        errno::EFBIG | errno::ENOSPC | errno::EDQUOT => error::DISK_FULL,
        _ => error::WRITE,
    }
}

/// Seals of memory whose size nobody can change any more: `F_SEAL_SEAL`, `F_SEAL_SHRINK`, `F_SEAL_GROW`.
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

/// An open file; closed when dropped.
pub(crate) struct File(usize);

impl File {
    /// Opens a path that ends with NUL, from a folder on; else EINVAL.
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

    /// Opens a recorder's memory under `/proc/PID/fd` to be mapped; its path ends with NUL. What else lies there isn't even opened:
    /// to open a device may do something.
    pub(crate) fn open_memory(path: &[u8]) -> Result<File, NotMemory> {
        let named = File::open_at(AT_FDCWD, path, O_PATH).map_err(|_| NotMemory::NotThere)?;
        if !disk::is_recorders(&named) {
            return Err(NotMemory::NotTrusted);
        }
        let own = named.own_path();
        let file = File::open_at(AT_FDCWD, own.text(), O_RDWR).map_err(|_| NotMemory::NotThere)?;
        if file.seals() & FIXED_SIZE == FIXED_SIZE { Ok(file) } else { Err(NotMemory::OtherVersion) }
    }

    /// What the kernel keeps from being done with a memory file; other files can't have [`FIXED_SIZE`].
    fn seals(&self) -> usize {
        const GET_SEALS: usize = 1034;
        // SAFETY: only returns a number.
        let seals = unsafe { syscall(number::FCNTL, [self.0, GET_SEALS, 0, 0, 0, 0]) };
        usize::try_from(seals).unwrap_or(0)
    }

    /// The path of the descriptor. (The thread may have a table of descriptors of its own.)
    fn own_path(&self) -> Name {
        let mut path = Name::empty();
        path.put(b"/proc/thread-self/fd/");
        path.put_number(self.0 as u32);
        path
    }

    /// Opens what may be no file, without waiting for it; its path ends with NUL.
    pub(crate) fn open_to_read(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
    }

    /// What has this name, be it a link, and without doing anything with it. The path ends with NUL.
    pub(crate) fn named(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW)
    }

    /// Opens a folder, whose path ends with NUL; its last part is no symbolic link.
    pub(crate) fn open_folder(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    }

    /// The same, also through a link.
    pub(crate) fn open_folder_or_link(path: &[u8]) -> Result<File, isize> {
        File::open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY)
    }

    /// Makes a new file that is written. The path ends with NUL.
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

    /// Gives such a file a name in a folder.
    pub(crate) fn give_name(&self, folder: &File, name: &Name) -> Result<(), isize> {
        const AT_SYMLINK_FOLLOW: usize = 0x400;
        let path = self.own_path();
        let (from, to) = (path.text().as_ptr() as usize, name.text().as_ptr() as usize);
        // SAFETY: both end with NUL.
        done(unsafe { syscall(number::LINKAT, [AT_FDCWD, from, folder.0, to, AT_SYMLINK_FOLLOW, 0]) })
    }

    /// What has this name in this folder, be it a link. The name ends with NUL.
    pub(crate) fn named_in(&self, name: &[u8]) -> Result<File, isize> {
        File::open_at(self.0, name, O_PATH | O_NOFOLLOW)
    }

    /// Removes a file in this folder. The name ends with NUL.
    pub(crate) fn remove_in(&self, name: &[u8]) {
        remove_at(self.0, name);
    }

    /// The file of a descriptor, or an error of the kernel.
    pub(crate) fn from_result(result: isize) -> Result<File, isize> {
        usize::try_from(result).map(File).map_err(|_| result)
    }

    pub(crate) fn number(&self) -> usize {
        self.0
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.0 as i32
    }

    /// Reads up to `buffer.len()` bytes; 0 at the end and on errors.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> usize {
        // SAFETY: writes into the buffer only.
        let count =
            unsafe { syscall(number::READ, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Writes `bytes` at `offset`; whether all of them were.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> bool {
        // SAFETY: reads the bytes only. What it writes to is the caller's matter (text of a site).
        let count = unsafe {
            syscall(number::PWRITE64, [self.0, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0])
        };
        usize::try_from(count) == Ok(bytes.len())
    }

    /// Maps the file shared and writable.
    pub(crate) fn map_shared(&self, length: u64) -> Option<*mut u8> {
        system::map(length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, self.0.cast_signed())
    }

    /// As [`File::map_shared`], over a mapping of the same length, which is gone then.
    pub(crate) fn map_shared_at(&self, place: *mut u8, length: u64) -> Option<*mut u8> {
        let protection = PROT_READ | PROT_WRITE;
        let flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
        // SAFETY: replaces a mapping of the caller's own, of which it keeps no reference into.
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

/// The beginning of the process's command line, each word with a NUL behind it: as much of it as fits; empty where it can't be read.
pub(crate) fn command_line(buffer: &mut [u8]) -> &[u8] {
    let Some(file) = File::open(b"/proc/self/cmdline\0", false) else { return &[] };
    let mut length = 0;
    while let Some(free) = buffer.get_mut(length..).filter(|free| !free.is_empty()) {
        match file.read(free) {
            0 => break,
            count => length += count,
        }
    }
    buffer.get(..length).unwrap_or(&[])
}

/// The name of thread `tid` of this process, NUL padded; `None` where it is gone, or can't be asked for.
pub(crate) fn name_of_thread(tid: u32) -> Option<[u8; 16]> {
    const HEAD: &[u8] = b"/proc/self/task/";
    const TAIL: &[u8] = b"/comm\0";
    let mut path = [0; HEAD.len() + 10 + TAIL.len()];
    let mut unit = 1_u32;
    while tid / 10 >= unit {
        unit *= 10;
    }
    let digits = core::iter::successors(Some(unit), |unit| Some(unit / 10)).take_while(|unit| *unit > 0);
    let digits = digits.map(|unit| b'0' + (tid.checked_div(unit).unwrap_or(0) % 10) as u8);
    let text = HEAD.iter().copied().chain(digits).chain(TAIL.iter().copied());
    path.iter_mut().zip(text).for_each(|(to, from)| *to = from);
    let mut name = [0; 16];
    let count = File::open(&path, false)?.read(&mut name);
    // The line's end.
    let end = name.get_mut(count.checked_sub(1)?).filter(|end| **end == b'\n')?;
    *end = 0;
    Some(name)
}

/// Gives a file another name. Paths end with NUL; else EINVAL.
pub(crate) fn rename(from: &[u8], to: &[u8]) -> Result<(), isize> {
    if from.last() != Some(&0) || to.last() != Some(&0) {
        return Err(errno::EINVAL);
    }
    let arguments = [AT_FDCWD, from.as_ptr() as usize, AT_FDCWD, to.as_ptr() as usize, 0, 0];
    // SAFETY: both paths end with NUL.
    done(unsafe { syscall(number::RENAMEAT, arguments) })
}

/// Removes a file, whose path ends with NUL.
pub(crate) fn remove(path: &[u8]) {
    remove_at(AT_FDCWD, path);
}

fn remove_at(folder: usize, path: &[u8]) {
    if path.last() == Some(&0) {
        // SAFETY: the path ends with NUL.
        unsafe { syscall(number::UNLINKAT, [folder, path.as_ptr() as usize, 0, 0, 0, 0]) };
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
