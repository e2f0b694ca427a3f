//! The bytes of a file: read while they are few, mapped where they are many.
//!
//! # Safety
//!
//! A mapping shows changes of the file. Linkers and package managers replace files instead of
//! rewriting them, and files up to [`READ_SIZE_MAX`] are read into memory. If a larger file is
//! truncated while it is read, this process ends with SIGBUS: the price for not reading gigabytes
//! of DWARF to name ten functions. `mmap` has no safe interface, because the contents may change at
//! any time; every parser above only sees `&[u8]` and checks what it reads.
#![allow(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Files up to this many bytes are read into memory.
const READ_SIZE_MAX: u64 = 32 << 20;

/// The contents of a file, or of an image stored elsewhere.
pub(crate) enum FileBytes {
    Shared(Arc<[u8]>),
    Read(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl FileBytes {
    /// Opens the regular file at `path`. Anything else is rejected without blocking on it.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Metadata)> {
        let (file, metadata) = open_regular(path)?;
        if metadata.len() <= READ_SIZE_MAX {
            let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
            file.take(READ_SIZE_MAX).read_to_end(&mut bytes)?;
            return Ok((Self::Read(bytes), metadata));
        }
        // SAFETY: the mapping is private and read-only; see the file's head for changes from
        // outside.
        let mapping = unsafe { memmap2::Mmap::map(&file)? };
        Ok((Self::Mapped(mapping), metadata))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Read(bytes) => bytes,
            Self::Mapped(mapping) => mapping,
        }
    }
}

/// Opens a regular file for reading. A FIFO doesn't block, a terminal isn't acquired.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = everycall_io::infile::open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Opens the regular file at `path`, which contains no symbolic links any more: a link that was put
/// there since is not followed.
pub(crate) fn open_resolved(path: &Path) -> io::Result<(File, Metadata)> {
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(not_regular());
    }
    // A folder of the path may have become a link meanwhile.
    use std::os::fd::AsRawFd;
    let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if opened.is_ok_and(|opened| opened != path) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it was moved while it was opened"));
    }
    Ok((file, metadata))
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}
