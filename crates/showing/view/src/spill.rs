//! A temporary file for summary levels that memory is too small for. It has no name, so that it is
//! gone when the process is.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, fstatfs, open};

/// The type that `fstatfs` gives a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// A file that is only added to.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    end: AtomicU64,
    most: u64,
}

impl Spill {
    /// For so many bytes, in `TMPDIR` or `/var/tmp`; `None` if that is no folder of a disk with
    /// twice as much room.
    pub fn new(most: u64) -> Option<Spill> {
        let folder = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&folder, flags, Mode::RUSR | Mode::WUSR).ok()?;
        let system = fstatfs(&file).ok()?;
        let room = (system.f_bavail as u64).saturating_mul(system.f_bsize as u64);
        if system.f_type as u64 == TMPFS || room < 2 * most {
            return None;
        }
        Some(Spill { file: file.into(), end: AtomicU64::new(0), most })
    }

    /// Writes something; where it lies, unless there is no room.
    pub fn write(&self, bytes: &[u8]) -> Option<u64> {
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if at + bytes.len() as u64 > self.most || self.file.write_all_at(bytes, at).is_err() {
            self.end.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
            return None;
        }
        Some(at)
    }

    /// Reads what was written; nothing if that fails.
    pub fn read(&self, at: u64, length: usize, into: &mut Vec<u8>) {
        into.resize(length, 0);
        if self.file.read_exact_at(into, at).is_err() {
            into.clear();
        }
    }

    /// How much was written.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}
