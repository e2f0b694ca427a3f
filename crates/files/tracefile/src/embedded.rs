//! Symbols and sources behind a complete recording.

use std::io::{self, Write};

use everycall_format::Wire as _;
use everycall_format::ect::{chunk, encoding};
use everycall_format::embedded::{PAYLOAD_MAX, SourceEntry, SourcesRecord, SymbolsRecord, source_flags};

use crate::chunk_writer::ChunkWriter;

/// They are compressed fast rather than tightly: the user waits.
const LEVEL: i32 = 3;
/// Decoded bytes of a chunk with sources, after which the next one begins.
const SOURCES_BYTES: usize = 8 << 20;

/// A source file that goes into a trace.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// Its path as the compiler recorded it.
    pub path: &'a [u8],
    /// Its text.
    pub text: &'a str,
    /// MD5 of the file.
    pub md5: [u8; 16],
    /// Whether bytes that are not UTF-8 became replacement characters in the text.
    pub is_lossy: bool,
    /// Whether it was changed after the program was built.
    pub is_newer: bool,
}

/// Packs a body; stored as it is if that is no larger.
fn pack(body: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut packed = Vec::new();
    packed.try_reserve_exact(zstd::zstd_safe::compress_bound(body.len()))?;
    zstd::bulk::Compressor::new(LEVEL)?.compress_to_buffer(body, &mut packed)?;
    if packed.len() < body.len() { Ok((encoding::ZSTD, packed)) } else { Ok((encoding::RAW, body.to_vec())) }
}

impl<W: Write> ChunkWriter<W> {
    /// Writes the symbols of the module that was recorded under `path`. Returns whether they fit
    /// into a chunk.
    ///
    /// # Errors
    ///
    /// The output's, or there is no memory.
    pub fn symbols(&mut self, path: &[u8], build_id: &[u8], body: &[u8]) -> io::Result<bool> {
        let (encoding, packed) = pack(body)?;
        let mut record = SymbolsRecord {
            record_size: SymbolsRecord::default().to_bytes().len() as u32,
            path_length: path.len() as u32,
            build_id_length: build_id.len() as u32,
            encoding,
            length: body.len() as u64,
            ..SymbolsRecord::default()
        };
        if build_id.len() > record.build_id.len() || body.len() as u64 > PAYLOAD_MAX {
            return Ok(false);
        }
        record.build_id.iter_mut().zip(build_id).for_each(|(place, byte)| *place = *byte);
        self.chunk(chunk::SYMBOLS, &[&record.to_bytes(), path, &packed])?;
        Ok(true)
    }

    /// Writes source files.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn sources<'s>(&mut self, files: impl IntoIterator<Item = SourceFile<'s>>) -> io::Result<()> {
        let (mut body, mut count) = (Vec::new(), 0);
        for file in files {
            let lossy = if file.is_lossy { source_flags::LOSSY } else { 0 };
            let newer = if file.is_newer { source_flags::NEWER } else { 0 };
            body.extend(
                SourceEntry {
                    path_length: file.path.len() as u32,
                    text_length: file.text.len() as u32,
                    flags: lossy | newer,
                    reserved: 0,
                    md5: file.md5,
                }
                .to_bytes(),
            );
            body.extend(file.path);
            body.extend(file.text.as_bytes());
            count += 1;
            if body.len() >= SOURCES_BYTES {
                self.sources_chunk(&body, count)?;
                (body, count) = (Vec::new(), 0);
            }
        }
        if count > 0 { self.sources_chunk(&body, count) } else { Ok(()) }
    }

    fn sources_chunk(&mut self, body: &[u8], files: u32) -> io::Result<()> {
        let (encoding, packed) = pack(body)?;
        let mut record =
            SourcesRecord { encoding, length: body.len() as u64, files, ..SourcesRecord::default() };
        record.record_size = record.to_bytes().len() as u32;
        self.chunk(chunk::SOURCES, &[&record.to_bytes(), &packed])
    }
}
