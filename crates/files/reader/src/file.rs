//! Trace files, `.ect`.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use everycall_format::Wire;
use everycall_format::arena;
use everycall_format::ect::{self, EventsRecord, FileHeader, ModuleImage, ThreadRecord, encoding};

use crate::chunks::Chunk;
use crate::embedded::Embedded;
use crate::error::{Error, Found, Warning, warn};
use crate::event::{self, Events};
use crate::indexed::Indexed;
use crate::indexer::Indexer;
use crate::model::{Module, OpenCall, Recording, SegmentCursor, SegmentPlace, Snapshot, Source, ThreadKey};
use crate::payload::{self, Array};
use crate::segments::{EventWords, FileSegments, Piece};
use crate::source::ReadAt;
use crate::words;

/// A module's file may unpack to so many bytes, ...
const IMAGE_BASE: u64 = 64 << 20;
/// ... and as a multiple of its packed ones. Programs' files become a quarter of their size.
const IMAGE_RATIO: u64 = 16;
/// Bytes of an events chunk in which its first words lie, packed or not.
const BEGINNING: u64 = 160 << 10;

/// A trace file whose chunks are known. Events are read when they are wanted.
pub struct TraceFile<'a> {
    pub(crate) indexed: Indexed<'a>,
}

impl<'a> TraceFile<'a> {
    /// Reads everything but events, open calls and module files.
    ///
    /// # Errors
    /// Where `source` is no trace file, or a newer one, or can't be read at all. Damage within it
    /// gives warnings in the recording.
    pub fn open(source: impl ReadAt + 'a) -> Result<TraceFile<'a>, Error> {
        let source: Box<dyn ReadAt + 'a> = Box::new(source);
        let size = source.size()?;
        let mut warnings = Vec::new();
        let first = read_header(source.as_ref(), &mut warnings)?;
        let mut indexed = Indexed::new(source, size, warnings);
        Indexer::default().run(&mut indexed, first);
        Ok(TraceFile { indexed })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.indexed.size
    }

    pub(crate) fn embedded(&self) -> &Embedded {
        &self.indexed.embedded
    }

    pub(crate) fn recording_modules(&self) -> &[Module] {
        &self.indexed.recording.modules
    }

    /// Leaves out all snapshots except those for which `is_wanted` returns true; the rest stays,
    /// including [`Recording::kept`].
    pub fn select_snapshots(&mut self, is_wanted: impl Fn(&Snapshot) -> bool) {
        let mut places = HashMap::new();
        let mut index = 0;
        self.indexed.recording.snapshots.retain(|snapshot| {
            let stays = is_wanted(snapshot);
            if stays {
                places.insert(index, places.len());
            }
            index += 1;
            stays
        });
        let threads = std::mem::take(&mut self.indexed.threads).into_iter();
        let moved = |key: ThreadKey| Some(ThreadKey { snapshot: *places.get(&key.snapshot)?, ..key });
        self.indexed.threads = threads.filter_map(|(key, chunks)| Some((moved(key)?, chunks))).collect();
    }

    /// Whether the trace contains a module's file, because another file has its path now.
    #[must_use]
    pub fn has_module_image(&self, module: u32) -> bool {
        self.image_of(module).is_some()
    }

    fn image_of(&self, module: u32) -> Option<&Chunk> {
        self.indexed.images.get(&self.indexed.recording.modules.get(module as usize)?.same_file)
    }

    /// Writes the stored file of a module to `out`, as it was when it was mapped, and returns its
    /// size in bytes.
    ///
    /// # Errors
    /// Where there is none, it is damaged, or `out` fails. What was written before is worthless then.
    pub fn copy_module_image(&self, module: u32, out: &mut dyn Write) -> Result<u64, Error> {
        let problem = |problem| Error::ModuleImage { module, problem };
        let chunk = *self.image_of(module).ok_or(problem("the trace holds none"))?;
        let mut payload = Payload::new(self.indexed.source.as_ref(), &chunk);
        let mut record = [0; ModuleImage::SIZE];
        payload.read_exact(&mut record)?;
        let record = ModuleImage::read(&record).ok_or(problem("its record is cut"))?;
        if record.length > IMAGE_BASE.saturating_add(chunk.length.saturating_mul(IMAGE_RATIO)) {
            return Err(problem("it would unpack to far more than a program's file does"));
        }
        let copied = match record.encoding {
            encoding::RAW => copy(&mut (&mut payload).take(record.length), out)?,
            encoding::ZSTD => {
                let decoder = words::unpacker(io::BufReader::new(&mut payload));
                let decoder = decoder.map_err(|_| problem("there is no memory to unpack it"))?;
                copy(&mut decoder.take(record.length), out)?
            }
            _ => return Err(problem("it is stored in a way that this everycall doesn't know")),
        };
        io::copy(&mut payload, &mut io::sink())?;
        if copied != record.length {
            return Err(problem("it is shorter than it should be"));
        }
        if payload.hasher.finalize() != chunk.checksum {
            return Err(problem("it is damaged"));
        }
        Ok(copied)
    }

    /// A thread's chunks of events, its kernel id, and the size of its segments in bytes.
    fn events_of(&self, key: ThreadKey) -> (&[Piece], u32, u64) {
        let chunks = self.indexed.threads.get(&key).map_or(&[][..], |chunks| &chunks.events);
        let snapshot = self.indexed.recording.snapshots.get(key.snapshot);
        let thread = snapshot.and_then(|snapshot| snapshot.threads.get(key.thread));
        (chunks, thread.map_or(0, |thread| thread.tid), snapshot.map_or(0, |snapshot| snapshot.segment_size))
    }
}

/// Copies; errors of reading and of writing are returned separately.
fn copy(from: &mut impl Read, out: &mut dyn Write) -> Result<u64, Error> {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::Io(error)),
        };
        out.write_all(&buffer[..count]).map_err(Error::Write)?;
        total += count as u64;
    }
}

/// Reads a chunk's payload front to back and sums it up.
struct Payload<'a> {
    source: &'a dyn ReadAt,
    at: u64,
    left: u64,
    hasher: crc32fast::Hasher,
}

impl<'a> Payload<'a> {
    fn new(source: &'a dyn ReadAt, chunk: &Chunk) -> Payload<'a> {
        Payload { source, at: chunk.payload_at(), left: chunk.length, hasher: crc32fast::Hasher::new() }
    }
}

impl Read for Payload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = self.source.read_at(self.at, &mut buffer[..wanted])?;
        self.hasher.update(&buffer[..count]);
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

impl EventWords for TraceFile<'_> {
    fn event_words(&self, chunk: &Chunk) -> Result<(u64, Vec<u64>, u32), Warning> {
        let malformed = |problem| Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem };
        if chunk.length > ect::EVENTS_PAYLOAD_MAX {
            return Err(malformed("it is larger than any such chunk"));
        }
        let is_cut = self.indexed.is_cut(chunk);
        let bytes =
            if is_cut { self.indexed.payload_unchecked(chunk)? } else { self.indexed.payload(chunk)? };
        let record = EventsRecord::read(&bytes).ok_or(malformed("its record is cut"))?;
        let words = words::decode(&record, bytes.get(EventsRecord::SIZE..).unwrap_or_default(), is_cut);
        Ok((record.first_segment, words.map_err(malformed)?, record.lost))
    }
}

impl Source for TraceFile<'_> {
    fn recording(&self) -> &Recording {
        &self.indexed.recording
    }

    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        let process = self.indexed.recording.snapshots.get(key.snapshot).map(|snapshot| snapshot.process);
        if self
            .indexed
            .recording
            .counts
            .iter()
            .any(|counts| counts.is_timed && Some(counts.process) == process)
        {
            // They are among the counts, as calls that haven't ended.
            return Vec::new();
        }
        let Some(chunk) = self.indexed.threads.get(&key).and_then(|chunks| chunks.thread) else {
            return Vec::new();
        };
        let Ok(bytes) = self.indexed.payload(&chunk) else { return Vec::new() };
        let array = bytes.get(ThreadRecord::SIZE..).and_then(Array::parse::<arena::OpenCall>);
        array.map_or_else(Vec::new, |array| payload::open_calls(array.iter::<arena::OpenCall>()))
    }

    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        let (chunks, tid, segment_size) = self.events_of(key);
        Box::new(FileSegments::new(self, chunks, tid, segment_size))
    }

    fn segments_from(&self, key: ThreadKey, first: SegmentPlace) -> Option<Box<dyn SegmentCursor + '_>> {
        let (chunks, tid, segment_size) = self.events_of(key);
        Some(Box::new(FileSegments::from(self, chunks, tid, segment_size, first)?))
    }

    fn parts(&self, key: ThreadKey) -> usize {
        self.events_of(key).0.len()
    }

    fn part(&self, key: ThreadKey, part: usize) -> Option<Box<dyn SegmentCursor + '_>> {
        let (chunks, tid, segment_size) = self.events_of(key);
        let chunk = std::slice::from_ref(chunks.get(part)?);
        Some(Box::new(FileSegments::new(self, chunk, tid, segment_size)))
    }

    fn part_begin(&self, key: ThreadKey, part: usize) -> Option<u64> {
        let piece = self.events_of(key).0.get(part)?;
        if piece.from > piece.first {
            let words = self.part(key, part).and_then(|mut segments| {
                let mut words = Vec::new();
                segments.next_segment(&mut words)?.ok().map(|_| words)
            });
            return Some(Events::new(&words?).next()?.ticks);
        }
        let chunk = &piece.chunk;
        let length = chunk.length.min(BEGINNING).min(self.indexed.size.saturating_sub(chunk.payload_at()));
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let count = self.indexed.source.read_full_at(chunk.payload_at(), &mut bytes).ok()?;
        let bytes = bytes.get(..count)?;
        let record = EventsRecord::read(bytes)?;
        let words = words::first(&record, bytes.get(EventsRecord::SIZE..)?).ok()?;
        if !event::begins_segment(&words, record.first_segment) {
            return None;
        }
        Some(Events::new(&words).next()?.ticks)
    }
}

impl std::fmt::Debug for TraceFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceFile").field("size", &self.indexed.size).finish_non_exhaustive()
    }
}

/// Checks the file's header and returns the offset of the first chunk.
fn read_header(source: &dyn ReadAt, warnings: &mut Vec<Warning>) -> Result<u64, Error> {
    let mut bytes = [0; FileHeader::SIZE];
    let count = source.read_full_at(0, &mut bytes)?;
    let bytes = &bytes[..count];
    let Some(header) = FileHeader::read(bytes).filter(|header| header.magic == ect::MAGIC) else {
        return Err(Error::NotATrace(recognise(bytes)));
    };
    let intact = header.checksum == crc32fast::hash(&bytes[..FileHeader::SIZE - 4]);
    if !intact {
        warn(warnings, Warning::HeaderDamaged);
        return Ok(FileHeader::SIZE as u64);
    }
    if header.version_major > ect::VERSION_MAJOR {
        return Err(Error::Newer { major: header.version_major, minor: header.version_minor });
    }
    Ok(u64::from(header.header_size).max(FileHeader::SIZE as u64))
}

/// The kind of a file that isn't a trace, from its first bytes.
fn recognise(bytes: &[u8]) -> Found {
    let known: [(&[u8], Found); 8] = [
        (b"\x7fELF", Found::Elf),
        (b"\x1f\x8b", Found::Gzip),
        (b"\x28\xb5\x2f\xfd", Found::Zstd),
        (b"\xfd7zXZ\0", Found::Xz),
        (b"PK\x03\x04", Found::Zip),
        (&arena::ARENA_MAGIC.to_le_bytes(), Found::Arena),
        (b"PERFILE2", Found::Perf),
        (b"perf", Found::Perf),
    ];
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
    let first_visible = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if bytes.is_empty() {
        Found::Empty
    } else if bytes.starts_with(&ect::MAGIC[..bytes.len().min(ect::MAGIC.len())]) {
        Found::CutHeader(bytes.len() as u64)
    } else if let Some((_, found)) = known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        *found
    } else if bytes.iter().all(|byte| *byte == 0) {
        Found::Zeros
    } else if matches!(first_visible, Some(b'{' | b'[')) && bytes.iter().all(is_text) {
        Found::Json
    } else if bytes.iter().all(is_text) {
        Found::Text
    } else {
        Found::Unknown
    }
}
