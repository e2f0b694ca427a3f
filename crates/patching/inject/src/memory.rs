//! A process's memory through `/proc/PID/mem`.
//!
//! The kernel lets a tracer write there whatever a page's protection is: into a copy of the page
//! that is this process's own. So no page has to be writable and executable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The open file. It stays that of the process if the PID is used again.
pub(crate) struct Memory {
    file: File,
}

impl Memory {
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(Self { file })
    }

    pub(crate) fn read(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(crate) fn number(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}
