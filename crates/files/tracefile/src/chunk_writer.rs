//! Chunks, one after the other, each with its checksums.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::ect::{
    ArrayHeader, CHUNK_ALIGN, ChunkHeader, ChunkPlace, EndRecord, FileHeader, chunk,
};

/// Takes a chunk of a process: its number, the chunk's kind and payload.
pub type WriteChunk<'a> = dyn FnMut(u32, u32, &[u8]) -> io::Result<()> + 'a;

/// Writes chunks, each with its checksums.
#[derive(Debug)]
pub struct ChunkWriter<W> {
    output: W,
    position: u64,
    chunks: u32,
    process: u32,
}

impl<W: Write> ChunkWriter<W> {
    /// Writes the file's header. The output should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn begin(output: W) -> io::Result<ChunkWriter<W>> {
        let mut writer = ChunkWriter { output, position: 0, chunks: 0, process: 0 };
        writer.header()?;
        Ok(writer)
    }

    /// Continues behind the end of a complete file, which has `chunks` chunks in `position` bytes;
    /// the output is at that place. The last END of a file counts.
    pub fn behind(output: W, position: u64, chunks: u32) -> ChunkWriter<W> {
        ChunkWriter { output, position, chunks, process: 0 }
    }

    /// Ends the file and begins another one: `next` replaces the output, which is flushed. Returns
    /// the bytes of the file that ended.
    ///
    /// # Errors
    ///
    /// The errors of the output and of `next`.
    pub fn go_on(&mut self, next: impl FnOnce(&mut W) -> io::Result<()>) -> io::Result<u64> {
        self.write_end()?;
        let size = self.position;
        next(&mut self.output)?;
        (self.position, self.chunks, self.process) = (0, 0, 0);
        self.header()?;
        Ok(size)
    }

    fn header(&mut self) -> io::Result<()> {
        self.put(&FileHeader::new(crc32fast::hash).to_bytes())
    }

    /// The chunks that follow belong to process number `process`; without that, to the first one.
    pub fn set_process(&mut self, process: u32) {
        self.process = process;
    }

    /// Bytes written so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes a chunk whose payload is `parts`, one after the other.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn chunk(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let mut payload = crc32fast::Hasher::new();
        parts.iter().for_each(|part| payload.update(part));
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let place = ChunkPlace { kind, number: self.chunks, process: self.process };
        let header = ChunkHeader::new(place, length, payload.finalize(), crc32fast::hash);
        self.put(&header.to_bytes())?;
        parts.iter().try_for_each(|part| self.put(part))?;
        let padding = length.next_multiple_of(CHUNK_ALIGN) - length;
        self.put(&[0; CHUNK_ALIGN as usize][..padding as usize])?;
        self.chunks += 1;
        Ok(())
    }

    /// The output, for operations other than writing.
    pub fn output(&mut self) -> &mut W {
        &mut self.output
    }

    /// Flushes buffers, so that the data survives this process.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    /// Writes the last chunk, and returns the file's size in bytes and the output, flushed.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn end(mut self) -> io::Result<(u64, W)> {
        self.write_end()?;
        Ok((self.position, self.output))
    }

    fn write_end(&mut self) -> io::Result<()> {
        let size = (ChunkHeader::SIZE + EndRecord::SIZE) as u64;
        self.process = 0;
        let end = EndRecord { chunks: self.chunks, reserved: 0, file_length: self.position + size };
        self.chunk(chunk::END, &[&end.to_bytes()])?;
        self.output.flush()
    }
}

/// An array with its header.
pub fn array<T: Wire>(entries: &[T]) -> Vec<u8> {
    let header = ArrayHeader { entry_size: T::SIZE as u32, count: entries.len() as u32 };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(entries.iter().flat_map(Wire::to_bytes));
    bytes
}
