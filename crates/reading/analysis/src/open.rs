//! Trace files and crash files, opened.

use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use everycall_reader::TraceFile;
use rustix::fs::OFlags;

use crate::crash_files;

/// An opened trace.
pub struct Opened {
    /// The trace.
    pub file: TraceFile<'static>,
    /// Unreadable parts of a crash file, as sentences. Damage of a trace file is part of
    /// its recording.
    pub warnings: Vec<String>,
}

/// Why a path can't be opened as a trace. `Display` describes the problem; the caller adds the
/// path.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file can't be read.
    Unreadable(io::Error),
    /// It is a folder, a device or a pipe.
    NotRegular,
    /// It is a crash file that can't be read as a trace.
    CrashFile(Box<dyn Error + Send + Sync>),
    /// It isn't a trace file, has a newer version, or can't be read at all.
    Trace(everycall_reader::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Unreadable(error) => write!(out, "can't be read: {error}"),
            OpenError::NotRegular => out.write_str("is not a regular file"),
            OpenError::CrashFile(error) => write!(out, "{error}"),
            OpenError::Trace(error) => write!(out, "{error}"),
        }
    }
}

impl Error for OpenError {}

/// Opens a trace file, or a crash file as if it were one. If the process that writes the crash file
/// still runs, takes a snapshot of it.
///
/// # Errors
///
/// See [`OpenError`]. Damage within a trace gives warnings instead.
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    let mut file = open_for_reading(path).map_err(OpenError::Unreadable)?;
    if !file.metadata().map_err(OpenError::Unreadable)?.is_file() {
        return Err(OpenError::NotRegular);
    }
    let mut warnings = Vec::new();
    if let Some((trace, more)) = crash_files::trace_of(&mut file).map_err(OpenError::CrashFile)? {
        (file, warnings) = (trace, more);
    }
    Ok(Opened { file: TraceFile::open(file).map_err(OpenError::Trace)?, warnings })
}

/// Opens a file for reading without waiting: a FIFO without writers is opened at once.
///
/// # Errors
///
/// Those of the system.
pub fn open_for_reading(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Which part of a trace is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything: the recording, and what kept calls have beyond it, each event once.
    Recording,
    /// The events that were saved for one kept call, counted from 1.
    KeptCall(usize),
}

/// Reduces an opened trace to `selection`.
///
/// # Errors
///
/// There is no kept call with that number; the error is the number of kept calls.
pub fn select(file: &mut TraceFile<'static>, selection: Selection) -> Result<(), usize> {
    use everycall_reader::Source as _;

    let recording = file.recording();
    let number = match selection {
        Selection::Recording => {
            file.merge_kept();
            return Ok(());
        }
        Selection::KeptCall(number) => number,
    };
    let wanted = number.checked_sub(1).and_then(|index| recording.kept.get(index)).map(|kept| kept.snapshot);
    let wanted = wanted.ok_or(recording.kept.len())?;
    file.select_snapshots(|snapshot| snapshot.number == wanted);
    Ok(())
}
