//! One pass over a file's chunks: what they say goes into the recording, and where the large ones
//! lie is noted.

use std::collections::HashMap;

use everycall_format::Wire;
use everycall_format::arena::{self, ChildEntry, ClockReading, ModuleEntry};
use everycall_format::ect::{self, EventsRecord, ModuleImage, SnapshotRecord, ThreadRecord, reason};

use crate::chunks::{Chunk, Chunks};
use crate::embedded;
use crate::error::{Warning, warn};
use crate::frames;
use crate::indexed::Indexed;
use crate::kinds::Kind;
use crate::model::{Reason, Recording, Snapshot, Thread, ThreadKey};
use crate::payload::{self, Array, NO_ARRAY, SHORT, TABLE_MAX};
use crate::processes::Processes;
use crate::segments::Piece;
use crate::{calibration, dropped, memory, sched, session, stacks, trigger_chunks};

/// Threads and snapshots that events may name without a record of their own.
const PLACEHOLDERS_MAX: usize = 4096;
/// Kinds of unknown chunks that are counted.
const UNKNOWN_MAX: usize = 16;
const PROCESSES: &str = "too many processes are in no chunk of their own";

/// Nothing, or what is wrong with the chunk.
type Outcome = Result<(), &'static str>;

/// Sorts the chunks of a file into its recording.
#[derive(Default)]
pub(crate) struct Indexer {
    /// Snapshots by their number.
    snapshots: HashMap<u32, usize>,
    /// Threads by snapshot and thread number.
    keys: HashMap<(u32, u32), ThreadKey>,
    /// Threads that each snapshot should have, by its number.
    announced: HashMap<u32, u32>,
    unknown: HashMap<u32, u64>,
    placeholders: usize,
    processes: Processes,
    /// Files of modules, by the number of the process and the place in its module table.
    images: HashMap<(u32, u32), Chunk>,
    embedded: embedded::Index,
    code_files: frames::CodeFiles,
    next_number: u32,
    end: Option<ect::EndRecord>,
}

impl Indexer {
    /// Reads everything but events, open calls and module files.
    pub fn run(mut self, file: &mut Indexed<'_>, first: u64) {
        let mut warnings = std::mem::take(&mut file.recording.warnings);
        let mut at = first;
        let mut cut = false;
        loop {
            let source = file.source.as_ref();
            let mut chunks = Chunks::new(source, file.size, at);
            let Some(chunk) = chunks.next_chunk(&mut warnings) else { break };
            at = chunks.position();
            if chunk.number > self.next_number {
                let count = chunk.number - self.next_number;
                warn(&mut warnings, Warning::ChunksMissing { first: self.next_number, count });
            }
            self.next_number = self.next_number.max(chunk.number.saturating_add(1));
            cut = file.is_cut(&chunk);
            if !cut {
                self.embedded.note(file.source.as_ref(), &chunk, at, &mut warnings);
            }
            if !cut || chunk.kind == ect::chunk::EVENTS {
                self.chunk(file, chunk, &mut warnings);
            }
        }
        match self.end {
            None => warn(&mut warnings, Warning::Cut { at: file.size }),
            Some(end) if end.file_length != file.size => {
                warn(&mut warnings, Warning::Length { expected: end.file_length, found: file.size });
            }
            Some(_) if cut => warn(&mut warnings, Warning::Cut { at: file.size }),
            Some(_) => {}
        }
        self.finish(file, warnings);
    }

    fn chunk(&mut self, file: &mut Indexed<'_>, chunk: Chunk, warnings: &mut Vec<Warning>) {
        let Some(kind) = Kind::of(chunk.kind) else {
            if self.unknown.len() < UNKNOWN_MAX || self.unknown.contains_key(&chunk.kind) {
                *self.unknown.entry(chunk.kind).or_default() += 1;
            }
            return;
        };
        // Payloads of the first are read when they are wanted; the index of embedded files has
        // noted the last.
        match kind {
            Kind::Events => return self.events(file, chunk, warnings),
            Kind::ModuleImage => return self.image(file, chunk, warnings),
            Kind::Symbols | Kind::Sources => return,
            _ => {}
        }
        match file.payload(&chunk) {
            Ok(bytes) => {
                std::mem::swap(&mut file.recording.warnings, warnings);
                let result = self.facts(kind, file, chunk, &bytes);
                std::mem::swap(&mut file.recording.warnings, warnings);
                if let Err(problem) = result {
                    warn(warnings, Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem });
                }
            }
            Err(warning) => warn(warnings, warning),
        }
    }

    /// Reads a chunk that is small.
    fn facts(&mut self, kind: Kind, file: &mut Indexed<'_>, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let recording = &mut file.recording;
        match kind {
            Kind::Meta => payload::read_meta(bytes, &mut recording.meta),
            Kind::Clock => read_clock(bytes, recording),
            Kind::Modules => self.modules(chunk, bytes),
            Kind::Snapshot => self.snapshot(file, chunk, bytes),
            Kind::Thread => self.thread(file, chunk, bytes),
            Kind::Children => read_children(bytes, recording),
            Kind::ProcessEnd => read_process_end(bytes, recording),
            Kind::Process => self.process(chunk, bytes),
            Kind::Triggers => trigger_chunks::read_triggers(bytes, recording),
            Kind::Kept => trigger_chunks::read_kept(bytes, self.process_of(&chunk)?, recording),
            Kind::Dropped => dropped::read_dropped(bytes, self.process_of(&chunk)?, recording),
            Kind::Counts => dropped::read_counts(bytes, self.process_of(&chunk)?, recording),
            Kind::AllCalls => dropped::read_all_calls(bytes, self.process_of(&chunk)?, recording),
            Kind::ValueCounts => dropped::read_value_counts(bytes, self.process_of(&chunk)?, recording),
            Kind::Times => dropped::read_times(bytes, self.process_of(&chunk)?, recording),
            Kind::Memory => memory::read_memory(bytes, self.process_of(&chunk)?, recording),
            Kind::FrameNames => frames::read_names(bytes, self.process_of(&chunk)?, recording),
            Kind::CodeNames => frames::read_codes(bytes, self.process_of(&chunk)?, recording),
            Kind::CodeFile => self.code_file(chunk, bytes),
            Kind::Stamps => self.stamps(chunk, bytes),
            Kind::Calibration => calibration::read_calibration(bytes, self.process_of(&chunk)?, recording),
            Kind::Sched => sched::read_sched(bytes, recording),
            Kind::Stacks => stacks::read_stacks(bytes, recording),
            Kind::Session => session::read_session(bytes, self.process_of(&chunk)?, recording),
            Kind::End => self.read_end(bytes),
            Kind::Events | Kind::ModuleImage | Kind::Symbols | Kind::Sources => Ok(()),
        }
    }

    /// The place in the recording of the process that a chunk is about.
    fn process_of(&mut self, chunk: &Chunk) -> Result<usize, &'static str> {
        self.processes.index(chunk.process).ok_or(PROCESSES)
    }

    fn modules(&mut self, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let array = Array::parse::<ModuleEntry>(bytes).ok_or(NO_ARRAY)?;
        if !self.processes.set_modules(chunk.process, payload::modules(&array)) {
            return Err(PROCESSES);
        }
        array.is_whole()
    }

    fn snapshot(&mut self, file: &mut Indexed<'_>, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let recording = &mut file.recording;
        let record = SnapshotRecord::read(bytes).ok_or(SHORT)?;
        if let Some(known) = self.snapshots.get(&record.snapshot).copied()
            && let Some(known) = recording.snapshots.get_mut(known)
            && known.reason == Reason::Stream
            && record.reason == reason::STREAM
        {
            // Written again at the end: the last one counts.
            self.announced.insert(record.snapshot, record.threads);
            let (process, threads) = (known.process, std::mem::take(&mut known.threads));
            *known = Snapshot { process, threads, ..payload::snapshot(&record) };
            return Ok(());
        }
        let index = recording.snapshots.len();
        if *self.snapshots.entry(record.snapshot).or_insert(index) != index {
            return Err("its number was there before");
        }
        let process = self.process_of(&chunk)?;
        recording.snapshots.push(Snapshot { process, ..payload::snapshot(&record) });
        self.announced.insert(record.snapshot, record.threads);
        Ok(())
    }

    fn thread(&mut self, file: &mut Indexed<'_>, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let recording = &mut file.recording;
        let record = ThreadRecord::read(bytes).ok_or(SHORT)?;
        let snapshot = self.numbered(recording, record.snapshot).ok_or("its snapshot isn't there")?;
        let is_stream = recording.snapshots[snapshot].reason == Reason::Stream;
        let threads = &mut recording.snapshots[snapshot].threads;
        let key = match self.keys.get(&(record.snapshot, record.thread)) {
            Some(key) if is_stream => *key,
            Some(_) => return Err("its number was there before"),
            None => ThreadKey { snapshot, thread: threads.len() },
        };
        match threads.get_mut(key.thread) {
            Some(known) => *known = payload::thread(&record),
            None => threads.push(payload::thread(&record)),
        }
        self.keys.insert((record.snapshot, record.thread), key);
        file.threads.entry(key).or_default().thread = Some(chunk);
        let array = bytes.get(ThreadRecord::SIZE..).and_then(Array::parse::<arena::OpenCall>);
        array.ok_or(NO_ARRAY)?.is_whole()
    }

    fn process(&mut self, chunk: Chunk, bytes: &[u8]) -> Outcome {
        self.processes.add(chunk.process, bytes)
    }

    fn code_file(&mut self, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let process = self.process_of(&chunk)?;
        self.code_files.add(bytes, process)
    }

    fn stamps(&mut self, chunk: Chunk, bytes: &[u8]) -> Outcome {
        let record = ect::StampsRecord::read(bytes).ok_or(SHORT)?;
        let is_known = self.processes.set_stamps(chunk.process, payload::stamps(&record));
        if is_known { Ok(()) } else { Err(PROCESSES) }
    }

    fn read_end(&mut self, bytes: &[u8]) -> Outcome {
        self.end = Some(ect::EndRecord::read(bytes).ok_or(SHORT)?);
        Ok(())
    }

    /// The snapshot with a number; one without facts if its own chunk is lost.
    fn numbered(&mut self, recording: &mut Recording, number: u32) -> Option<usize> {
        if let Some(index) = self.snapshots.get(&number) {
            return Some(*index);
        }
        if self.placeholders == PLACEHOLDERS_MAX {
            return None;
        }
        self.placeholders += 1;
        let index = recording.snapshots.len();
        recording.snapshots.push(Snapshot {
            number,
            reason: Reason::Other(0),
            process: 0,
            pid: 0,
            ticks: None,
            ring_size: 0,
            segment_size: 0,
            counters: [0; arena::COUNTERS],
            threads: Vec::new(),
        });
        self.snapshots.insert(number, index);
        Some(index)
    }

    /// Notes which thread's events a chunk contains. Its checksum is compared when it is read.
    fn events(&mut self, file: &mut Indexed<'_>, chunk: Chunk, warnings: &mut Vec<Warning>) {
        let mut bytes = [0; EventsRecord::SIZE];
        let there = file.source.read_full_at(chunk.payload_at(), &mut bytes).unwrap_or(0);
        let there = there.min(usize::try_from(chunk.length).unwrap_or(usize::MAX));
        let Some(record) = EventsRecord::read(&bytes[..there]) else {
            let problem = "its record is cut";
            return warn(warnings, Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem });
        };
        let key = match self.keys.get(&(record.snapshot, record.thread)) {
            Some(key) => Some(*key),
            // A damaged record would name a thread that never was.
            None if file.is_cut(&chunk) || file.payload(&chunk).is_err() => None,
            None => self.thread_placeholder(&mut file.recording, &record),
        };
        match key {
            Some(key) => {
                let piece = Piece::new(chunk, record.first_segment, record.words);
                file.threads.entry(key).or_default().events.push(piece);
            }
            None => warn(warnings, Warning::ChunkDamaged { at: chunk.at, kind: chunk.kind }),
        }
    }

    /// A thread without facts, for events whose thread's own chunk is lost.
    fn thread_placeholder(&mut self, recording: &mut Recording, record: &EventsRecord) -> Option<ThreadKey> {
        let snapshot = self.numbered(recording, record.snapshot)?;
        if self.placeholders == PLACEHOLDERS_MAX {
            return None;
        }
        self.placeholders += 1;
        let pid = recording.snapshots[snapshot].pid;
        let threads = &mut recording.snapshots[snapshot].threads;
        let key = ThreadKey { snapshot, thread: threads.len() };
        threads.push(Thread {
            pid,
            tid: 0,
            slot: 0,
            generation: 0,
            name: Vec::new(),
            start_ticks: 0,
            first_segment: record.first_segment,
            segments: 0,
            unwound: 0,
            orphan_exits: 0,
            lost_busy: 0,
            deep: 0,
            fiber: None,
            dropped: 0,
            is_sampled: false,
        });
        self.keys.insert((record.snapshot, record.thread), key);
        Some(key)
    }

    fn image(&mut self, file: &Indexed<'_>, chunk: Chunk, warnings: &mut Vec<Warning>) {
        let mut bytes = [0; ModuleImage::SIZE];
        let there = file.source.read_full_at(chunk.payload_at(), &mut bytes).unwrap_or(0);
        let there = there.min(usize::try_from(chunk.length).unwrap_or(usize::MAX));
        match ModuleImage::read(&bytes[..there]) {
            Some(record) if self.images.len() < TABLE_MAX => {
                self.images.insert((chunk.process, record.module), chunk);
            }
            _ => {
                let problem = "its record is cut";
                warn(warnings, Warning::ChunkMalformed { at: chunk.at, kind: chunk.kind, problem });
            }
        }
    }

    fn finish(self, file: &mut Indexed<'_>, mut warnings: Vec<Warning>) {
        for snapshot in &file.recording.snapshots {
            let Some(expected) = self.announced.get(&snapshot.number).copied() else { continue };
            let found = u32::try_from(snapshot.threads.len()).unwrap_or(u32::MAX);
            if found < expected {
                warn(&mut warnings, Warning::ThreadsMissing { snapshot: snapshot.number, expected, found });
            }
        }
        let mut unknown: Vec<(u32, u64)> = self.unknown.into_iter().collect();
        unknown.sort_unstable();
        for (kind, count) in unknown {
            warn(&mut warnings, Warning::UnknownChunks { kind, count });
        }
        file.recording.warnings = warnings;
        file.recording.kept.sort_by_key(|kept| (kept.end_ticks, kept.snapshot));
        self.code_files.finish(&mut file.recording);
        let places = self.processes.numbers();
        self.processes.finish(&mut file.recording);
        file.embedded = self.embedded.finish(&file.recording.modules);
        for ((process, place), chunk) in self.images {
            let process = places.get(&process).and_then(|index| file.recording.processes.get(*index));
            let module = process.and_then(|process| process.modules.clone().nth(place as usize));
            let module = module.and_then(|index| file.recording.modules.get(index));
            if let Some(module) = module {
                file.images.insert(module.same_file, chunk);
            }
        }
    }
}

fn read_clock(bytes: &[u8], recording: &mut Recording) -> Outcome {
    let array = Array::parse::<ClockReading>(bytes).ok_or(NO_ARRAY)?;
    payload::add_clock(array.iter(), recording);
    array.is_whole()
}

fn read_children(bytes: &[u8], recording: &mut Recording) -> Outcome {
    let array = Array::parse::<ChildEntry>(bytes).ok_or(NO_ARRAY)?;
    payload::add_children(array.iter(), recording);
    array.is_whole()
}

fn read_process_end(bytes: &[u8], recording: &mut Recording) -> Outcome {
    let record = ect::ProcessEnd::read(bytes).ok_or(SHORT)?;
    recording.process_end = Some(payload::process_end(&record));
    Ok(())
}
