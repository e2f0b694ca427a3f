//! Snapshots: what all threads' rings hold at the moment of the request.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, runtime};

/// The last calls of all threads. No thread is paused for it. At most 29 exist at a time; dropping
/// one frees it.
#[derive(Debug)]
pub struct Snapshot {
    number: u64,
}

impl Snapshot {
    /// Takes one of everything.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn take() -> Result<Snapshot, Error> {
        Snapshot::take_since(0)
    }

    /// Takes one of the time from `since` ([`crate::now`]) on. Only whole segments of 64 KiB are
    /// dropped, so it may contain some older events.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn take_since(since: u64) -> Result<Snapshot, Error> {
        runtime::take_snapshot(since).map(|number| Snapshot { number })
    }

    /// Writes it to a trace file (.ect), which appears under its name when it is complete, and
    /// replaces an existing file. Only its owner can read it.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = CString::new(path.as_ref().as_os_str().as_bytes()).map_err(|_| Error::ARGUMENT)?;
        runtime::write_snapshot(self.number, &path)
    }

    /// Writes it to an open file, pipe or socket.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn write_to(&self, descriptor: BorrowedFd<'_>) -> Result<(), Error> {
        runtime::write_snapshot_to(self.number, descriptor.as_raw_fd())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        runtime::free_snapshot(self.number);
    }
}
