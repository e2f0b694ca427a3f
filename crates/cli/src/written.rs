//! Traces that a verb takes and writes.

use std::io::{self, BufWriter};
use std::path::Path;

use everycall_outfile::{MODE_PRIVATE, OutFile};
use everycall_recorder::Summary;

use crate::failure::Failure;

/// Bytes gathered before they are written.
pub const BUFFER: usize = 256 << 10;

/// An output to be: nothing is under its name until all of it is written.
pub struct Output<'a> {
    path: &'a Path,
    file: OutFile,
}

impl Output<'_> {
    /// Makes the file, for its owner alone.
    pub fn create(path: &Path) -> Result<Output<'_>, Failure> {
        Ok(Output { path, file: OutFile::create(path, MODE_PRIVATE)? })
    }

    /// Lets `write` write it, and gives it its name.
    pub fn write(
        self,
        write: impl FnOnce(&mut BufWriter<OutFile>) -> io::Result<Summary>,
    ) -> Result<Summary, Failure> {
        let failed = |error| Failure::writing(self.path, error);
        let mut buffered = BufWriter::with_capacity(BUFFER, self.file);
        let summary = write(&mut buffered).map_err(failed)?;
        buffered.into_inner().map_err(|error| failed(error.into_error()))?.finish()?;
        Ok(summary)
    }
}
