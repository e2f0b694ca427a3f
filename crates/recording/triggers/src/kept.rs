//! A snapshot that waits for the end of the recording in an unnamed file. Dropping it frees its
//! space at once, and no file remains if this process is killed.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom};
use std::path::Path;

use everycall_format::Wire;
use everycall_format::ect::{CHUNK_ALIGN, ChunkHeader, FileHeader, chunk};
use everycall_tracefile::{ChunkWriter, WriteChunk};

/// The chunks of one process.
#[derive(Debug)]
pub(crate) struct Kept {
    process: u32,
    file: File,
    /// Its size.
    pub(crate) bytes: u64,
}

impl Kept {
    /// Creates one in `folder`; `write` writes its chunks.
    pub fn new(
        folder: &Path,
        process: u32,
        write: impl FnOnce(&mut ChunkWriter<BufWriter<File>>) -> io::Result<()>,
    ) -> io::Result<Kept> {
        let mut chunks = ChunkWriter::begin(BufWriter::new(tempfile::tempfile_in(folder)?))?;
        write(&mut chunks)?;
        let (_, buffered) = chunks.end()?;
        let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        let bytes = file.metadata()?.len();
        Ok(Kept { process, file, bytes })
    }

    /// Copies its chunks into the trace.
    pub fn copy(&mut self, write: &mut WriteChunk<'_>) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(FileHeader::SIZE as u64))?;
        let mut file = BufReader::new(&self.file);
        loop {
            let mut header = [0; ChunkHeader::SIZE];
            file.read_exact(&mut header)?;
            let header = ChunkHeader::read(&header).ok_or(io::ErrorKind::InvalidData)?;
            if header.kind == chunk::END {
                return Ok(());
            }
            let mut payload = vec![0; usize::try_from(header.length).map_err(io::Error::other)?];
            file.read_exact(&mut payload)?;
            file.seek_relative((header.length.next_multiple_of(CHUNK_ALIGN) - header.length) as i64)?;
            write(self.process, header.kind, &payload)?;
        }
    }
}
