//! The inputs of an import, and its options.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::time::SystemTime;

/// Bytes that are read from a file at once.
pub(crate) const BUFFER: usize = 256 << 10;

/// How something is imported.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The program that wrote an XRay log: its tables say which function a number is.
    pub binary: Option<PathBuf>,
    /// The source's name in the trace: its path.
    pub name: String,
    /// Threads that decode a trace of Intel PT; 0: as many as there are CPUs.
    pub threads: usize,
    /// Where other files of the recording may lie; [`crate::import`] says the source's folder.
    pub folder: Option<PathBuf>,
    /// When the source was written; [`crate::import`] says it.
    pub written: Option<SystemTime>,
}

/// Bytes that can be read from anywhere in them.
pub trait Input: Read + Seek {}

impl<T: Read + Seek> Input for T {}
