//! Where a trace file holds symbols and sources, so that it needs no other file.

use std::collections::HashMap;

use everycall_format::Wire;
use everycall_format::ect::chunk;
use everycall_format::embedded::SymbolsRecord;

use crate::chunks::Chunk;
use crate::error::{Warning, warn};
use crate::model::Module;
use crate::payload::TABLE_MAX;
use crate::source::ReadAt;

/// Longest path that is read, in bytes.
const PATH_MAX: u32 = 4096;
/// Where more chunks can be added to a complete file: behind its first END.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Bytes of the file up to there.
    pub size: u64,
    /// Chunks up to there, the END included.
    pub chunks: u32,
}

/// The chunks with symbols and sources.
#[derive(Debug, Default)]
pub(crate) struct Embedded {
    /// By [`Module::same_file`].
    pub symbols: HashMap<usize, Chunk>,
    pub sources: Vec<Chunk>,
    pub end: Option<End>,
    /// Whether chunks of other kinds follow the first END.
    pub is_followed: bool,
}

/// The chunks with symbols and sources, while a file is being indexed.
#[derive(Default)]
pub(crate) struct Index {
    /// By path and build id.
    symbols: HashMap<(Vec<u8>, Vec<u8>), Chunk>,
    embedded: Embedded,
}

impl Index {
    /// Notes a chunk of any kind, which ends at `end`.
    pub fn note(&mut self, source: &dyn ReadAt, chunk: &Chunk, end: u64, warnings: &mut Vec<Warning>) {
        let embedded = &mut self.embedded;
        let malformed = |problem| Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem };
        match chunk.kind {
            chunk::END if embedded.end.is_none() => {
                embedded.end = Some(End { size: end, chunks: chunk.number.saturating_add(1) });
            }
            chunk::SYMBOLS if self.symbols.len() < TABLE_MAX => match identity(source, chunk) {
                Some(identity) => drop(self.symbols.insert(identity, *chunk)),
                None => warn(warnings, malformed("its record is cut")),
            },
            chunk::SOURCES if embedded.sources.len() < TABLE_MAX => embedded.sources.push(*chunk),
            chunk::SYMBOLS | chunk::SOURCES => warn(warnings, malformed("there are too many of them")),
            chunk::END => {}
            _ => embedded.is_followed |= embedded.end.is_some(),
        }
    }

    /// Assigns symbols to their modules.
    pub fn finish(mut self, modules: &[Module]) -> Embedded {
        for (index, module) in modules.iter().enumerate().filter(|(index, module)| module.same_file == *index)
        {
            if let Some(chunk) = self.symbols.get(&(module.path.clone(), module.build_id.clone())) {
                self.embedded.symbols.insert(index, *chunk);
            }
        }
        self.embedded
    }
}

/// The path and the build id of the module that a chunk is about.
fn identity(source: &dyn ReadAt, chunk: &Chunk) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut bytes = [0; SymbolsRecord::SIZE];
    let there = source.read_full_at(chunk.payload_at(), &mut bytes).ok()?;
    let record = SymbolsRecord::read(&bytes[..there])?;
    let build_id = record.build_id.get(..record.build_id_length as usize)?.to_vec();
    let behind = u64::from(record.record_size).checked_add(record.path_length.into())?;
    if record.path_length > PATH_MAX || behind > chunk.length {
        return None;
    }
    let mut path = vec![0; record.path_length as usize];
    let at = chunk.payload_at().checked_add(record.record_size.into())?;
    (source.read_full_at(at, &mut path).ok()? == path.len()).then_some((path, build_id))
}
