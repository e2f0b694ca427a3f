//! A file whose chunks are known: what the small ones said, and where the large ones lie.

use std::collections::HashMap;
use std::io;

use crate::chunks::Chunk;
use crate::embedded::Embedded;
use crate::error::Warning;
use crate::model::{Recording, ThreadKey};
use crate::segments::Piece;
use crate::source::ReadAt;

/// Bytes of a chunk's payload that are read at once. A larger payload is damaged, or hostile.
/// (Modules' files are read piece by piece.)
const PAYLOAD_MAX: u64 = 64 << 20;

/// A file whose chunks are known.
pub(crate) struct Indexed<'a> {
    pub source: Box<dyn ReadAt + 'a>,
    /// Bytes of the file.
    pub size: u64,
    pub recording: Recording,
    pub threads: HashMap<ThreadKey, ThreadChunks>,
    /// By [`Module::same_file`](crate::Module::same_file).
    pub images: HashMap<usize, Chunk>,
    pub embedded: Embedded,
}

/// Offsets of a thread's parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadChunks {
    pub thread: Option<Chunk>,
    pub events: Vec<Piece>,
}

impl<'a> Indexed<'a> {
    /// Of no chunk yet.
    pub fn new(source: Box<dyn ReadAt + 'a>, size: u64, warnings: Vec<Warning>) -> Indexed<'a> {
        Indexed {
            source,
            size,
            recording: Recording { warnings, ..Recording::default() },
            threads: HashMap::new(),
            images: HashMap::new(),
            embedded: Embedded::default(),
        }
    }

    /// A chunk's payload, checked.
    pub fn payload(&self, chunk: &Chunk) -> Result<Vec<u8>, Warning> {
        let bytes = self.payload_unchecked(chunk)?;
        if crc32fast::hash(&bytes) != chunk.checksum {
            return Err(Warning::ChunkDamaged { at: chunk.at, kind: chunk.kind });
        }
        Ok(bytes)
    }

    /// The part of a chunk's payload that the file contains.
    pub fn payload_unchecked(&self, chunk: &Chunk) -> Result<Vec<u8>, Warning> {
        let unreadable = |error: io::Error| Warning::Unreadable { at: chunk.at, kind: error.kind() };
        let there = chunk.length.min(self.size.saturating_sub(chunk.payload_at()));
        if there > PAYLOAD_MAX {
            let problem = "it is larger than any such chunk";
            return Err(Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem });
        }
        let no_memory = |_| unreadable(io::ErrorKind::OutOfMemory.into());
        let there = usize::try_from(there).map_err(|_| unreadable(io::ErrorKind::OutOfMemory.into()))?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(there).map_err(no_memory)?;
        bytes.resize(there, 0);
        let count = self.source.read_full_at(chunk.payload_at(), &mut bytes).map_err(unreadable)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Whether the file ends within `chunk`.
    pub fn is_cut(&self, chunk: &Chunk) -> bool {
        chunk.length > self.size.saturating_sub(chunk.payload_at())
    }
}
