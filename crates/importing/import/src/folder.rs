//! A folder of files, on disk or in memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use everycall_io::infile;

use crate::input::BUFFER;

/// A folder of files.
pub trait Folder {
    /// Opens one of its files.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;

    /// The names of its files, sorted.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The bytes of one of its files, at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn bytes(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(name)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// A folder on disk.
pub(crate) struct DiskFolder(PathBuf);

impl DiskFolder {
    pub fn new(path: &Path) -> DiskFolder {
        DiskFolder(path.to_owned())
    }
}

impl Folder for DiskFolder {
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        // A file that waits for a writer, or is endless, isn't a part of a trace.
        Ok(Box::new(BufReader::with_capacity(BUFFER, infile::open(&self.0.join(name))?)))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.0)?.filter_map(Result::ok);
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}

/// A folder in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFolder(pub BTreeMap<String, Vec<u8>>);

impl Folder for MemoryFolder {
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let bytes = self.0.get(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Box::new(&bytes[..]))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.keys().cloned().collect())
    }
}
