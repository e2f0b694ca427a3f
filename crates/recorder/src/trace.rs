//! Writes the `.ect` file: chunk by chunk, straight from the arena, in bounded memory.
//!
//! What a reader needs first comes first, so that a file that was cut still has its modules and clocks.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use everycall_format::Wire;
use everycall_format::arena::{
    ArenaHeader, ChildEntry, ClockReading, ModuleEntry, OpenCall, ThreadHeader, module_state, process_state,
    thread_state,
};
use everycall_format::ect::{
    ArrayHeader, CHUNK_ALIGN, CHUNK_MAGIC, ChunkHeader, EVENTS_PAYLOAD_MAX, EndRecord, EventsRecord,
    FileHeader, MAGIC, MetaField, ModuleImage, SnapshotRecord, ThreadRecord, VERSION_MAJOR, VERSION_MINOR,
    chunk, encoding, meta, reason,
};
use everycall_format::event::{WORD_SIZE, Word, kind};

use crate::arena::Arena;
use crate::host;
use crate::program::Ended;
use crate::summary::{Child, Summary, ThreadSummary};

/// Module images are packed quickly rather than tightly: the program's user is waiting.
const IMAGE_COMPRESSION: i32 = 1;
/// The only snapshot of a file made at the program's end.
const SNAPSHOT: u32 = 0;

/// Writes chunks, each with its checksums.
struct ChunkWriter<W> {
    output: W,
    position: u64,
    chunks: u32,
}

impl<W: Write> ChunkWriter<W> {
    fn begin(output: W) -> io::Result<ChunkWriter<W>> {
        let mut writer = ChunkWriter { output, position: 0, chunks: 0 };
        let mut header = FileHeader {
            magic: MAGIC,
            version_major: VERSION_MAJOR,
            version_minor: VERSION_MINOR,
            header_size: FileHeader::SIZE as u32,
            flags: 0,
            checksum: 0,
        };
        header.checksum = crc32fast::hash(&bytes_of(&header)[..FileHeader::SIZE - size_of::<u32>()]);
        writer.put(&bytes_of(&header))?;
        Ok(writer)
    }

    /// Writes a chunk whose payload is `parts`, one after the other.
    fn chunk(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let mut payload = crc32fast::Hasher::new();
        parts.iter().for_each(|part| payload.update(part));
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let mut header = ChunkHeader {
            magic: CHUNK_MAGIC,
            kind,
            number: self.chunks,
            flags: 0,
            length,
            payload_checksum: payload.finalize(),
            header_checksum: 0,
        };
        header.header_checksum = crc32fast::hash(&bytes_of(&header)[..ChunkHeader::SIZE - size_of::<u32>()]);
        self.put(&bytes_of(&header))?;
        parts.iter().try_for_each(|part| self.put(part))?;
        let padding = length.next_multiple_of(CHUNK_ALIGN) - length;
        self.put(&[0; CHUNK_ALIGN as usize][..padding as usize])?;
        self.chunks += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    /// Writes the last chunk, and returns the file's bytes.
    fn end(mut self) -> io::Result<u64> {
        let size = (ChunkHeader::SIZE + EndRecord::SIZE) as u64;
        let end = EndRecord { chunks: self.chunks, reserved: 0, file_length: self.position + size };
        self.chunk(chunk::END, &[&bytes_of(&end)])?;
        self.output.flush()?;
        Ok(self.position)
    }
}

fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::SIZE];
    value.write(&mut bytes);
    bytes
}

fn array<T: Wire>(entries: &[T]) -> Vec<u8> {
    let header = ArrayHeader { entry_size: T::SIZE as u32, count: entries.len() as u32 };
    let mut bytes = bytes_of(&header);
    bytes.extend(entries.iter().flat_map(bytes_of));
    bytes
}

impl Ended {
    /// Writes the trace file, of everything that the arena holds. `tool_version` is everycall's. The output
    /// should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write(&mut self, output: impl Write, tool_version: &str) -> io::Result<Summary> {
        let mut file = ChunkWriter::begin(output)?;
        let header = self.arena.header();
        let mut summary = Summary {
            traced: self.was_traced(),
            off: header.state == process_state::OFF,
            ring_size: self.arena.layout().ring_size,
            thread_capacity: self.arena.layout().thread_capacity,
            counters: header.counters,
            ..Summary::default()
        };
        file.chunk(chunk::META, &[&self.meta(tool_version)])?;
        file.chunk(chunk::CLOCK, &[&array(&self.clock_readings(&header))])?;
        file.chunk(chunk::MODULES, &[&self.module_table(&mut summary)])?;
        file.chunk(chunk::PROCESS_END, &[&bytes_of(&self.end)])?;
        self.write_children(&mut file, &mut summary)?;
        self.write_module_images(&mut file, &mut summary)?;
        self.write_snapshot(&mut file, &header, &mut summary)?;
        summary.file_size = file.end()?;
        Ok(summary)
    }

    fn meta(&self, tool_version: &str) -> Vec<u8> {
        let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes().to_vec())];
        let words = std::iter::once(&self.launch.program).chain(&self.launch.arguments);
        fields.extend(words.map(|word| (meta::ARGUMENT, word.as_bytes().to_vec())));
        if let Ok(folder) = std::env::current_dir() {
            fields.push((meta::WORKING_FOLDER, folder.as_os_str().as_bytes().to_vec()));
        }
        fields.extend(host::describe());
        let mut payload = Vec::new();
        for (key, text) in fields {
            payload.extend(bytes_of(&MetaField { key, length: text.len() as u32 }));
            payload.extend(text);
            payload.resize(payload.len().next_multiple_of(4), 0);
        }
        payload
    }

    fn clock_readings(&self, header: &ArenaHeader) -> Vec<ClockReading> {
        let ours = self.readings.all();
        let mut all = ours.to_vec();
        let first = ours.first().map_or(0, |reading| reading.ticks);
        // The runtime's reading lies within ours, unless somebody wrote over it.
        if header.start.monotonic_raw_ns != 0 && (first..=self.end.ticks).contains(&header.start.ticks) {
            let place = all.partition_point(|reading| reading.ticks < header.start.ticks);
            let in_order = |index: Option<usize>, order: fn(u64, u64) -> bool| {
                index
                    .and_then(|index| ours.get(index))
                    .is_none_or(|reading| order(reading.monotonic_raw_ns, header.start.monotonic_raw_ns))
            };
            if in_order(place.checked_sub(1), |before, ours| before <= ours)
                && in_order(Some(place), |after, ours| after >= ours)
            {
                all.insert(place, header.start);
            }
        }
        all
    }

    fn module_table(&self, summary: &mut Summary) -> Vec<u8> {
        let mut entries = Vec::new();
        let mut paths = Vec::new();
        for index in 0..self.arena.module_count() {
            let mut module = self.arena.module(index);
            let sane = module.build_id_length as usize <= module.build_id.len() && module.start <= module.end;
            if module.state == module_state::COMPLETE && sane {
                let path = self.arena.module_path(&module).unwrap_or_default();
                module.path_offset = paths.len() as u32;
                module.path_length = path.len() as u32;
                paths.extend(path);
                summary.modules += 1;
            } else {
                summary.warnings.push(format!(
                    "entry {index} of the module table is not complete; its calls will be shown without names"
                ));
                module = ModuleEntry::default();
            }
            entries.push(module);
        }
        [array(&entries), paths].concat()
    }

    fn write_children<W: Write>(&self, file: &mut ChunkWriter<W>, summary: &mut Summary) -> io::Result<()> {
        let children = self.arena.children();
        summary.children = children.iter().map(child).collect();
        file.chunk(chunk::CHILDREN, &[&array(&children)])
    }

    fn write_module_images<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        summary: &mut Summary,
    ) -> io::Result<()> {
        self.modules.moved(&self.arena, |module, bytes| {
            let length = bytes.len() as u64;
            let packed = zstd::bulk::compress(&bytes, IMAGE_COMPRESSION)?;
            let record = ModuleImage { module, encoding: encoding::ZSTD, length };
            file.chunk(chunk::MODULE_IMAGE, &[&bytes_of(&record), &packed])
        })?;
        summary.warnings.extend_from_slice(self.modules.warnings());
        Ok(())
    }

    fn write_snapshot<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        header: &ArenaHeader,
        summary: &mut Summary,
    ) -> io::Result<()> {
        let layout = self.arena.layout();
        let pid = if header.target_pid == 0 { self.end.pid } else { header.target_pid };
        let used = |slot: &u32| self.arena.thread(*slot).state == thread_state::USED;
        let slots: Vec<u32> = (0..self.arena.thread_count()).filter(used).collect();
        let snapshot = SnapshotRecord {
            snapshot: SNAPSHOT,
            reason: reason::PROCESS_END,
            pid,
            threads: slots.len() as u32,
            ticks: self.end.ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters: header.counters,
        };
        file.chunk(chunk::SNAPSHOT, &[&bytes_of(&snapshot)])?;
        for (thread, slot) in (0..).zip(slots) {
            let ring = Ring::survey(&self.arena, slot);
            let header = self.arena.thread(slot);
            let name = self.names.newest(slot, &header);
            let record = ring.thread_record(thread, pid, name);
            let open_calls: Vec<OpenCall> = self.arena.open_calls(slot);
            file.chunk(chunk::THREAD, &[&bytes_of(&record), &array(&open_calls)])?;
            ring.write_events(file, thread)?;
            summary.threads.push(self.thread_summary(&ring, &record));
        }
        Ok(())
    }

    fn thread_summary(&self, ring: &Ring<'_>, record: &ThreadRecord) -> ThreadSummary {
        let first = ring.first_ticks.unwrap_or(self.end.ticks);
        ThreadSummary {
            tid: record.tid,
            name: text_of(&record.name),
            events: ring.events,
            lost: ring.holes.saturating_add(record.lost_busy),
            written: ring.written(),
            overwritten: record.first_segment > 0,
            reach_ns: self.readings.nanoseconds(self.end.ticks.saturating_sub(first)),
        }
    }
}

fn child(entry: &ChildEntry) -> Child {
    Child { pid: entry.pid, kind: entry.kind, name: text_of(&entry.name) }
}

/// The text before the first NUL.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A segment that holds what its number promises.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    /// Words, without the unwritten ones at the end of the newest.
    words: u64,
}

/// One thread's ring, looked through once before it is copied: the thread's record comes before its events and
/// says what they are.
struct Ring<'a> {
    arena: &'a Arena,
    slot: u32,
    thread: ThreadHeader,
    segments: Vec<Segment>,
    first_ticks: Option<u64>,
    events: u64,
    holes: u64,
}

impl<'a> Ring<'a> {
    fn survey(arena: &'a Arena, slot: u32) -> Ring<'a> {
        let thread = arena.thread(slot);
        let mut ring = Ring { arena, slot, thread, segments: vec![], first_ticks: None, events: 0, holes: 0 };
        let newest = thread.segment;
        let oldest = newest.saturating_sub(arena.segments_per_ring() - 1);
        let mut bytes = vec![0; arena.layout().segment_size as usize];
        for number in oldest..=newest {
            arena.read_segment(slot, number, &mut bytes);
            let Some(start_ticks) = segment_start(&bytes, number) else { continue };
            ring.first_ticks.get_or_insert(start_ticks);
            ring.survey_segment(&bytes, number, number == newest);
        }
        ring
    }

    fn survey_segment(&mut self, bytes: &[u8], number: u64, newest: bool) {
        let mut written = bytes;
        if newest {
            // What the writer had not reached; before that, a zero word is a hole.
            while let Some(rest) = written.strip_suffix(&[0; WORD_SIZE]) {
                written = rest;
            }
        }
        for word in words(written) {
            match Word::decode(word) {
                Word::Entry { .. }
                | Word::Exit { .. }
                | Word::Record { kind: kind::LATE | kind::ORPHAN_EXIT | kind::UNKNOWN_CODE, .. } => {
                    self.events += 1
                }
                Word::Empty => self.holes += 1,
                Word::Record { .. } | Word::Payload { .. } => {}
            }
        }
        self.segments.push(Segment { number, words: (written.len() / WORD_SIZE) as u64 });
    }

    /// Bytes that the thread ever wrote.
    fn written(&self) -> u64 {
        let size = self.arena.layout().segment_size;
        let newest = self.segments.last().map_or(0, |segment| segment.words * WORD_SIZE as u64);
        self.thread.segment.saturating_mul(size).saturating_add(newest)
    }

    fn thread_record(&self, thread: u32, pid: u32, name: [u8; 16]) -> ThreadRecord {
        ThreadRecord {
            snapshot: SNAPSHOT,
            thread,
            pid,
            tid: self.thread.tid,
            slot: self.slot,
            generation: self.thread.generation,
            start_ticks: self.thread.start_ticks,
            first_segment: self.segments.first().map_or(self.thread.segment, |segment| segment.number),
            segments: self.segments.len() as u64,
            holes: self.holes,
            name,
            unwound: self.thread.unwound,
            orphan_exits: self.thread.orphan_exits,
            lost_busy: self.thread.lost_busy,
            deep: self.thread.deep,
            reserved: [0; 3],
        }
    }

    /// Writes the segments in runs of as many as an events chunk holds.
    fn write_events<W: Write>(&self, file: &mut ChunkWriter<W>, thread: u32) -> io::Result<()> {
        let segment_size = self.arena.layout().segment_size as usize;
        let run_max = ((EVENTS_PAYLOAD_MAX - EventsRecord::BYTES) as usize / segment_size).max(1);
        let mut bytes = vec![0; segment_size];
        let follow = |one: &Segment, next: &Segment| one.number + 1 == next.number;
        for run in self.segments.chunk_by(follow).flat_map(|run| run.chunks(run_max)) {
            let mut payload = Vec::with_capacity(run.len() * segment_size);
            let mut first_segment = None;
            for segment in run {
                self.arena.read_segment(self.slot, segment.number, &mut bytes);
                // A program that our child left behind may still write.
                if segment_start(&bytes, segment.number).is_none() {
                    payload.clear();
                    first_segment = None;
                    continue;
                }
                first_segment.get_or_insert(segment.number);
                payload.extend_from_slice(&bytes[..segment.words as usize * WORD_SIZE]);
            }
            let Some(first_segment) = first_segment else { continue };
            let record = EventsRecord {
                snapshot: SNAPSHOT,
                thread,
                first_segment,
                words: (payload.len() / WORD_SIZE) as u64,
                encoding: encoding::RAW,
                reserved: 0,
            };
            file.chunk(chunk::EVENTS, &[&bytes_of(&record), &payload])?;
        }
        Ok(())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD_SIZE>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The ticks with which segment `number` begins; `None` where another one is, or is being made, in its place.
fn segment_start(bytes: &[u8], number: u64) -> Option<u64> {
    let mut words = words(bytes).map(Word::decode);
    let Word::Record { ticks_low, kind: kind::SEGMENT, count: 3, .. } = words.next()? else { return None };
    let mut payloads = [0; 3];
    for (payload, expected) in payloads.iter_mut().zip(1..) {
        match words.next()? {
            Word::Payload { payload: value, kind: kind::SEGMENT, index } if index == expected => {
                *payload = value
            }
            _ => return None,
        }
    }
    let [ticks_high, _, segment] = payloads;
    (segment == number as u32).then_some(u64::from(ticks_high) << 32 | u64::from(ticks_low))
}
