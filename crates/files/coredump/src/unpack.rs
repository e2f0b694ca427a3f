//! Packed cores, unpacked into a temporary file that has no name.
//!
//! Only the parts that a reader needs are stored: the headers, the notes, and memory that is or may
//! be everycall's. The rest of a core, most of it, is unpacked and discarded; its place in the file
//! is a hole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use everycall_format::Wire;
use everycall_format::arena::{ARENA_MAGIC, ArenaHeader};

use crate::arena;
use crate::elf::{self, FILE_HEADER, Load, PROGRAM_HEADER};
use crate::error::CoreError;

/// Limit on stored bytes of headers and notes.
const KEPT_MAX: u64 = 1 << 30;
/// Limit on stored bytes of everycall's memory.
const ARENA_MAX: u64 = 64 << 30;
/// Program headers must be within so many bytes from the file's beginning.
const HEADERS_MAX: u64 = 16 << 20;
/// Bytes that are copied at a time.
const BLOCK: usize = 64 << 10;

/// Unpacks `packed` into a temporary file. `format` is for messages.
///
/// # Errors
///
/// The result is no core, or a damaged one; it can't be stored.
pub fn unpack(packed: impl Read, format: &'static str) -> Result<File, CoreError> {
    let file = tempfile::tempfile().map_err(CoreError::Temporary)?;
    let mut sieve = Sieve { input: packed, output: file, position: 0, format };
    sieve.run()?;
    let Sieve { output, position, .. } = sieve;
    output.set_len(position).map_err(CoreError::Temporary)?;
    Ok(output)
}

struct Sieve<R> {
    input: R,
    output: File,
    /// Bytes that were taken from the input.
    position: u64,
    format: &'static str,
}

impl<R: Read> Sieve<R> {
    fn run(&mut self) -> Result<(), CoreError> {
        let head = self.take(FILE_HEADER)?;
        if head.starts_with(&ARENA_MAGIC.to_le_bytes()) {
            self.copy(ARENA_MAX)?;
            return Ok(());
        }
        let outline = match head.starts_with(&object::elf::ELFMAG) {
            true => elf::outline(&head)?,
            false => return Err(CoreError::NotACore("something else, packed")),
        };
        let Some(count) = outline.program_headers else {
            // Their number is behind everything else.
            let command = if self.format == "lz4" { "lz4 -d" } else { "zstd -d" };
            return Err(CoreError::Packed { format: self.format, command });
        };
        let until = outline.program_headers_at.saturating_add(count * PROGRAM_HEADER as u64);
        if count == 0 || outline.program_headers_at < FILE_HEADER as u64 || until > HEADERS_MAX {
            return Err(CoreError::Broken("it can't be read from its beginning to its end"));
        }
        self.copy(outline.program_headers_at - self.position)?;
        let headers = self.take(count as usize * PROGRAM_HEADER)?;
        let mut loads: Vec<Load> = headers
            .chunks_exact(PROGRAM_HEADER)
            .map(elf::program_header)
            .filter(|(kind, load)| *kind == elf::PT_LOAD && load.size > 0)
            .map(|(_, load)| load)
            .collect();
        loads.sort_by_key(|load| load.offset);
        self.memory(&loads)
    }

    /// Everything after the headers, `loads` by their places in the file. In a core, these are in
    /// the order of addresses, too.
    fn memory(&mut self, loads: &[Load]) -> Result<(), CoreError> {
        let mut ours: Vec<std::ops::Range<u64>> = Vec::new();
        let mut kept = 0;
        let mut kept_of_ours = 0;
        for load in loads {
            let Some(gap) = load.offset.checked_sub(self.position) else {
                return Err(CoreError::Broken("parts of its memory lie upon each other"));
            };
            kept += self.copy(gap.min(KEPT_MAX - kept))?;
            self.skip(load.offset - self.position)?;
            let begin = self.take(load.size.min(ArenaHeader::SIZE as u64) as usize)?;
            let end = load.address.saturating_add(load.size);
            if begin.starts_with(&ARENA_MAGIC.to_le_bytes()) {
                let size = arena::header(&begin).ok().flatten().map_or(0, |header| header.arena_size);
                ours.push(load.address..load.address.saturating_add(size));
            }
            let rest = load.size - begin.len() as u64;
            if ours.iter().any(|range| load.address < range.end && end > range.start) {
                kept_of_ours += self.copy(rest.min(ARENA_MAX - kept_of_ours))?;
            }
            self.skip(load.offset.saturating_add(load.size).saturating_sub(self.position))?;
        }
        // Section headers, where there are any.
        self.copy(KEPT_MAX - kept)?;
        Ok(())
    }

    /// The next `count` bytes, which are stored; fewer at the end.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, CoreError> {
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(count as u64).read_to_end(&mut bytes);
        match read {
            // As in `pass`.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(CoreError::Unpack { format: self.format, source: error })
            }
            _ => self.put(&bytes).map(|()| bytes),
        }
    }

    /// Stores the next `count` bytes, or as many as there are, and returns how many.
    fn copy(&mut self, count: u64) -> Result<u64, CoreError> {
        self.pass(count, true)
    }

    fn skip(&mut self, count: u64) -> Result<u64, CoreError> {
        self.pass(count, false)
    }

    fn pass(&mut self, count: u64, is_kept: bool) -> Result<u64, CoreError> {
        let mut block = vec![0; BLOCK.min(usize::try_from(count).unwrap_or(BLOCK))];
        let mut done = 0;
        while done < count {
            let wanted = block.len().min(usize::try_from(count - done).unwrap_or(BLOCK));
            let read = match self.input.read(&mut block[..wanted]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A frame that ends early: what came before is good.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(source) => return Err(CoreError::Unpack { format: self.format, source }),
            };
            if is_kept {
                self.put(&block[..read])?;
            } else {
                self.position += read as u64;
            }
            done += read as u64;
        }
        Ok(done)
    }

    /// Writes bytes in their place; zeros are holes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), CoreError> {
        if bytes.iter().any(|byte| *byte != 0) {
            let written =
                self.output.seek(SeekFrom::Start(self.position)).and_then(|_| self.output.write_all(bytes));
            written.map_err(CoreError::Temporary)?;
        }
        self.position += bytes.len() as u64;
        Ok(())
    }
}
