//! Finding the chunks of a file: one pass over their headers.

use everycall_format::Wire;
use everycall_format::ect::{CHUNK_ALIGN, CHUNK_MAGIC, ChunkHeader};

use crate::error::{Warning, warn};
use crate::source::ReadAt;

/// A chunk whose header is intact. Its payload is another matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// One of [`everycall_format::ect::chunk`].
    pub kind: u32,
    /// Place among the chunks.
    pub number: u32,
    /// Number of the process that it belongs to.
    pub process: u32,
    /// Where its header begins.
    pub at: u64,
    /// Bytes of the payload.
    pub length: u64,
    /// CRC-32 of the payload.
    pub checksum: u32,
}

impl Chunk {
    /// Where its payload begins.
    pub fn payload_at(&self) -> u64 {
        self.at + ChunkHeader::SIZE as u64
    }
}

/// Bytes that the search for the next chunk reads at once.
const SEARCH_BLOCK: usize = 64 << 10;

/// Goes from chunk to chunk.
pub(crate) struct Chunks<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    next: u64,
}

impl<'a> Chunks<'a> {
    /// The chunks of `source`, which has `size` bytes, from `first` on.
    pub fn new(source: &'a dyn ReadAt, size: u64, first: u64) -> Chunks<'a> {
        Chunks { source, size, next: first.next_multiple_of(CHUNK_ALIGN) }
    }

    /// Where the next chunk should begin.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next chunk; bytes that are not a chunk are skipped and reported.
    pub fn next_chunk(&mut self, warnings: &mut Vec<Warning>) -> Option<Chunk> {
        let begin = self.next;
        if begin >= self.size {
            return None;
        }
        let chunk = match self.header(begin) {
            Some(chunk) => Some(chunk),
            None => self.search(begin + CHUNK_ALIGN, warnings),
        };
        let skipped = chunk.map_or(self.size, |chunk| chunk.at) - begin;
        // A file that ends with less than a header is reported as truncated.
        if skipped > 0 && (chunk.is_some() || skipped >= ChunkHeader::SIZE as u64) {
            warn(warnings, Warning::Skipped { at: begin, bytes: skipped });
        }
        self.next = match chunk {
            Some(chunk) => chunk
                .payload_at()
                .checked_add(chunk.length)
                .and_then(|end| end.checked_next_multiple_of(CHUNK_ALIGN))
                .unwrap_or(self.size),
            None => self.size,
        };
        chunk
    }

    fn header(&self, at: u64) -> Option<Chunk> {
        let mut bytes = [0; ChunkHeader::SIZE];
        let count = self.source.read_full_at(at, &mut bytes).ok()?;
        parse(at, &bytes[..count])
    }

    fn search(&self, from: u64, warnings: &mut Vec<Warning>) -> Option<Chunk> {
        let mut block = vec![0; SEARCH_BLOCK];
        let mut at = from;
        while at < self.size {
            let count = match self.source.read_full_at(at, &mut block) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(error) => {
                    warn(warnings, Warning::Unreadable { at, kind: error.kind() });
                    return None;
                }
            };
            for offset in (0..count).step_by(CHUNK_ALIGN as usize) {
                if block[offset..count].starts_with(&CHUNK_MAGIC.to_le_bytes())
                    && let Some(chunk) = self.header(at + offset as u64)
                {
                    return Some(chunk);
                }
            }
            at += SEARCH_BLOCK as u64;
        }
        None
    }
}

fn parse(at: u64, bytes: &[u8]) -> Option<Chunk> {
    let header = ChunkHeader::read(bytes)?;
    let checked = &bytes[..ChunkHeader::SIZE - 4];
    (header.magic == CHUNK_MAGIC && header.header_checksum == crc32fast::hash(checked)).then_some(Chunk {
        kind: header.kind,
        number: header.number,
        process: header.process,
        at,
        length: header.length,
        checksum: header.payload_checksum,
    })
}
