//! Symbols and sources that a trace file holds.

use std::io::Read;

use everycall_format::Wire;
use everycall_format::ect::encoding;
use everycall_format::embedded::{SourceEntry, SourcesRecord, SymbolsRecord, source_flags};

use crate::chunks::Chunk;
use crate::embedded::End;
use crate::error::Warning;
use crate::file::TraceFile;
use crate::words;

/// Largest decoded body that is read, in bytes.
pub const BODY_MAX: u64 = 64 << 20;

/// A source file in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedSource {
    /// Its path as the compiler recorded it.
    pub path: Vec<u8>,
    /// Its text.
    pub text: String,
    /// MD5 of the file.
    pub md5: [u8; 16],
    /// Whether bytes that are not UTF-8 became replacement characters in the text.
    pub is_lossy: bool,
    /// Whether it was changed after the program was built.
    pub is_newer: bool,
}

/// A body, decoded.
fn body(bytes: &[u8], encoding: u32, length: u64, budget: &mut u64) -> Result<Vec<u8>, &'static str> {
    if length > BODY_MAX || length > *budget {
        return Err("it would take more memory than such a trace's may");
    }
    *budget -= length;
    let wanted = usize::try_from(length).map_err(|_| "it doesn't fit into memory")?;
    let mut body = Vec::new();
    match encoding {
        encoding::RAW => body.extend(bytes.iter().take(wanted)),
        encoding::ZSTD => {
            let decoder = words::unpacker(bytes).map_err(|_| "there is no memory to unpack it")?;
            decoder.take(length).read_to_end(&mut body).map_err(|_| "it can't be unpacked")?;
        }
        _ => return Err("it is stored in a way that this everycall doesn't know"),
    }
    if body.len() == wanted { Ok(body) } else { Err("it is shorter than it says") }
}

/// Adds the files of a decoded SOURCES chunk. `Err` says what is wrong with it; the files before
/// that are added.
fn read_sources(mut bytes: &[u8], files: u32, sources: &mut Vec<EmbeddedSource>) -> Result<(), &'static str> {
    for _ in 0..files {
        let entry = SourceEntry::read(bytes).ok_or("it has fewer files than it says")?;
        let rest = bytes.get(SourceEntry::SIZE..).unwrap_or_default();
        let (path, text) = (entry.path_length as usize, entry.text_length as usize);
        let end = path.checked_add(text).ok_or("a file is longer than the chunk")?;
        let (path, text) = rest.get(..end).ok_or("a file is longer than the chunk")?.split_at(path);
        let text = str::from_utf8(text).map_err(|_| "a file's text isn't UTF-8")?;
        sources.push(EmbeddedSource {
            path: path.to_vec(),
            text: text.to_owned(),
            md5: entry.md5,
            is_lossy: entry.flags & source_flags::LOSSY != 0,
            is_newer: entry.flags & source_flags::NEWER != 0,
        });
        bytes = rest.get(end..).unwrap_or_default();
    }
    Ok(())
}

impl TraceFile<'_> {
    /// Whether the trace holds symbols of a module, by its build id and its path.
    #[must_use]
    pub fn has_symbols(&self, module: u32) -> bool {
        self.symbols_of(module).is_some()
    }

    fn symbols_of(&self, module: u32) -> Option<&Chunk> {
        let module = self.recording_modules().get(module as usize)?;
        self.embedded().symbols.get(&module.same_file)
    }

    /// The symbols of a module, as `everycall_symbols::KeptSymbols` reads them; none if the trace
    /// holds none. Their bytes are taken from `budget`.
    ///
    /// # Errors
    /// They are damaged, or larger than `budget`.
    pub fn symbols(&self, module: u32, budget: &mut u64) -> Result<Option<Vec<u8>>, Warning> {
        let Some(chunk) = self.symbols_of(module) else { return Ok(None) };
        let malformed = |problem| Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem };
        let bytes = self.indexed.payload(chunk)?;
        let record = SymbolsRecord::read(&bytes).ok_or(malformed("its record is cut"))?;
        let behind = (record.record_size as usize).saturating_add(record.path_length as usize);
        let packed = bytes.get(behind..).ok_or(malformed("its record is cut"))?;
        body(packed, record.encoding, record.length, budget).map(Some).map_err(malformed)
    }

    /// Whether the trace holds source files.
    #[must_use]
    pub fn has_sources(&self) -> bool {
        !self.embedded().sources.is_empty()
    }

    /// The source files that the trace holds, and what is damaged among them. Their bytes are taken
    /// from `budget`.
    #[must_use]
    pub fn sources(&self, budget: &mut u64) -> (Vec<EmbeddedSource>, Vec<Warning>) {
        let (mut sources, mut warnings) = (Vec::new(), Vec::new());
        for chunk in &self.embedded().sources {
            let malformed = |problem| Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem };
            let read = self.indexed.payload(chunk).and_then(|bytes| {
                let record = SourcesRecord::read(&bytes).ok_or(malformed("its record is cut"))?;
                let packed = bytes.get(record.record_size as usize..).unwrap_or_default();
                let body = body(packed, record.encoding, record.length, budget).map_err(malformed)?;
                read_sources(&body, record.files, &mut sources).map_err(malformed)
            });
            warnings.extend(read.err());
        }
        (sources, warnings)
    }

    /// Where symbols and sources can be added, in place of those that are there.
    ///
    /// # Errors
    /// The file is cut or damaged, or a newer everycall has added something else, as a sentence.
    pub fn end(&self) -> Result<End, &'static str> {
        match self.embedded().end {
            None => Err("its end is missing, so nothing can be added to it"),
            Some(_) if self.embedded().is_followed => {
                Err("a newer everycall has added something to it that would be lost")
            }
            Some(end) if end.size > self.size() => Err("it is cut, so nothing can be added to it"),
            Some(end) => Ok(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_up_to_what_is_damaged() {
        let mut bytes = Vec::new();
        for (path, text) in [("/a.c", "int a;\n"), ("/b.c", "")] {
            let (path_length, text_length) = (path.len() as u32, text.len() as u32);
            bytes.extend(
                SourceEntry { path_length, text_length, flags: 1, ..SourceEntry::default() }.to_bytes(),
            );
            bytes.extend(path.bytes().chain(text.bytes()));
        }
        let mut all = Vec::new();
        read_sources(&bytes, 2, &mut all).unwrap();
        assert_eq!(
            (all[0].text.as_str(), all[0].is_lossy, all[1].path.as_slice()),
            ("int a;\n", true, &b"/b.c"[..])
        );
        for end in 0..bytes.len() {
            let mut some = Vec::new();
            assert!(read_sources(&bytes[..end], 2, &mut some).is_err(), "{end}");
            assert!(some.iter().zip(&all).all(|(some, all)| some == all));
        }
    }

    #[test]
    fn bodies_are_bounded() {
        let packed = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        let mut budget = 1 << 20;
        assert_eq!(body(&packed, encoding::ZSTD, 1 << 20, &mut budget).unwrap().len(), 1 << 20);
        assert!(body(&packed, encoding::ZSTD, 1, &mut budget).is_err(), "the budget is used up");
        let mut budget = u64::MAX;
        assert!(body(&packed, encoding::ZSTD, BODY_MAX + 1, &mut budget).is_err());
        assert!(body(&packed, encoding::ZSTD, (1 << 20) + 1, &mut budget).is_err(), "it is shorter");
        assert!(body(&packed, 7, 1, &mut budget).is_err());
        assert_eq!(body(b"abc", encoding::RAW, 3, &mut budget).unwrap(), b"abc");
    }
}
