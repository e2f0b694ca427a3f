//! A trace of a dead process's arena: one snapshot of its last state.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::arena::{ChildEntry, ClockReading, ModuleEntry, OpenCall, ThreadHeader, module_flags};
use everycall_format::ect::{
    NO_PROCESS, ProcessEnd, ProcessRecord, SnapshotRecord, chunk, end, image_end, meta, reason,
};
use everycall_format::hub::origin;
use everycall_jit::Code;
use everycall_reader::event::Events;
use everycall_reader::{ArenaImage, Error, Source, ThreadKey, Warning};
use everycall_tracefile::{
    Child, ChunkWriter, Dropped, FrameNames, KeptStates, Ring, Runs, Segments, Summary, array, module_table,
    texts, write_calibration, write_code_names, write_stamps,
};

use crate::crash::CrashFacts;
use crate::elf::ProcessFacts;

/// The only snapshot of the file.
const SNAPSHOT: u32 = 0;
/// Warnings that are reported one by one.
const WARNINGS_MAX: usize = 8;

/// An arena with its tables, and further facts about its process.
pub struct Snapshot<'a> {
    image: &'a ArenaImage<'a>,
    modules: Vec<(ModuleEntry, Vec<u8>)>,
    children: Vec<ChildEntry>,
    clock: Vec<ClockReading>,
    facts: Option<&'a ProcessFacts>,
    crash: Option<CrashFacts>,
    states: Option<KeptStates>,
    /// Names of just-in-time compilers' code, and how many are missing.
    codes: Option<(Vec<Code>, u64)>,
    reached: Reached,
    is_incomplete: bool,
    warnings: Vec<String>,
}

/// The newest moment in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The newest event's, or the start of the runtime; in ticks.
    pub ticks: u64,
}

impl<'a> Snapshot<'a> {
    /// Reads the tables of `image`, and looks for the newest event.
    ///
    /// # Errors
    ///
    /// Reading fails.
    pub fn read(image: &'a ArenaImage<'a>, facts: Option<&'a ProcessFacts>) -> Result<Snapshot<'a>, Error> {
        let (entries, paths) = image.module_entries()?;
        // The paths together are no longer than the available bytes.
        let mut room = paths.len();
        let with_path = |module: ModuleEntry| {
            let (from, length) = (module.path_offset as usize, module.path_length as usize);
            let path = from.checked_add(length).and_then(|to| paths.get(from..to)).unwrap_or_default();
            let left = room.checked_sub(path.len());
            room = left.unwrap_or(room);
            (module, if left.is_some() { path.to_vec() } else { Vec::new() })
        };
        let recording = image.recording();
        let mut snapshot = Snapshot {
            image,
            modules: entries.into_iter().map(with_path).collect(),
            children: image.child_entries()?.into_iter().filter(|child| child.pid != 0).collect(),
            clock: recording.clock.clone(),
            facts,
            crash: None,
            states: KeptStates::read(image.header(), image.header().target_pid, |at, bytes| {
                image.read_bytes(at, bytes)
            }),
            codes: None,
            reached: Reached { ticks: image.header().start.ticks },
            is_incomplete: false,
            warnings: recording.warnings.iter().map(Warning::to_string).collect(),
        };
        // It gives the counter's rate without the clocks of this boot.
        let last = snapshot.states.as_ref().map(KeptStates::reading);
        let is_later = |last: &ClockReading| {
            let start = snapshot.image.header().start;
            last.ticks > start.ticks && last.monotonic_raw_ns > start.monotonic_raw_ns
        };
        let last = last.filter(is_later).filter(|_| !snapshot.clock.is_empty());
        snapshot.clock.extend(last);
        snapshot.look_for_the_end();
        Ok(snapshot)
    }

    /// Whether the counter's rate is known without further readings.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        self.clock.len() > 1
    }

    /// The runtime's clock reading at its start, if it made one.
    #[must_use]
    pub fn start(&self) -> Option<ClockReading> {
        self.clock.first().copied()
    }

    /// The newest moment in the arena.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.reached
    }

    /// Adds readings of the same clocks, which give the counter's rate.
    pub fn add_clock_readings(&mut self, readings: &[ClockReading]) {
        self.clock.extend_from_slice(readings);
    }

    /// The process has died and left this in a crash file.
    pub fn set_crash(&mut self, crash: CrashFacts) {
        // Readings that the events are older than are the start's, and strange ones.
        let start = self.start().unwrap_or_default();
        let is_later = |reading: &&ClockReading| {
            reading.ticks > start.ticks && reading.monotonic_raw_ns > start.monotonic_raw_ns
        };
        self.clock.extend(crash.latest.iter().filter(is_later));
        self.crash = Some(crash);
    }

    /// When the process wrote its newest event, in nanoseconds since 1970, as far as its clocks
    /// show it.
    #[must_use]
    pub fn reached_realtime_ns(&self) -> Option<u64> {
        let last = self.clock.last().filter(|last| last.realtime_ns != 0)?;
        let ticks = self.reached.ticks.abs_diff(last.ticks);
        let ns = if self.clock.len() > 1 { self.nanoseconds(ticks) } else { 0 };
        Some(if self.reached.ticks > last.ticks {
            last.realtime_ns.saturating_add(ns)
        } else {
            last.realtime_ns.saturating_sub(ns)
        })
    }

    /// All clock readings, in the order in which they were made.
    #[must_use]
    pub fn clock(&self) -> &[ClockReading] {
        &self.clock
    }

    /// Whether the process has frames by id.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.frame_names().is_some()
    }

    fn frame_names(&self) -> Option<FrameNames> {
        FrameNames::read(self.image.header(), |at, bytes| self.image.read_bytes(at, bytes))
    }

    /// Sets the names of code that the process's just-in-time compilers made. `lost` is how many
    /// there were beside these.
    pub fn set_code_names(&mut self, codes: Vec<Code>, lost: u64) {
        self.codes = Some((codes, lost));
    }

    /// Adds a warning to the report.
    pub fn add_warning(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Reports events as missing.
    pub fn add_missing(&mut self, warning: String) {
        self.is_incomplete = true;
        self.add_warning(warning);
    }

    /// Gives the program itself another path.
    pub fn set_executable(&mut self, new_path: &[u8]) {
        for (module, path) in &mut self.modules {
            if module.flags & module_flags::EXECUTABLE != 0 {
                *path = new_path.to_vec();
                // These describe the mapped file, not this one.
                (module.device, module.inode) = (0, 0);
            }
        }
    }

    fn threads(&self) -> impl Iterator<Item = (ThreadKey, &everycall_reader::Thread)> {
        let threads = self.image.recording().snapshots.first().map_or(&[][..], |snapshot| &snapshot.threads);
        let key = |thread| ThreadKey { snapshot: 0, thread };
        threads.iter().enumerate().map(move |(thread, known)| (key(thread), known))
    }

    fn look_for_the_end(&mut self) {
        let mut reached = self.reached.ticks;
        let mut missing = 0_u64;
        let mut words = Vec::new();
        for (key, _) in self.threads() {
            let mut cursor = self.image.segments(key);
            while let Some(segment) = cursor.next_segment(&mut words) {
                match segment {
                    Ok(_) => reached = Events::new(&words).map(|event| event.ticks).fold(reached, u64::max),
                    Err(_) => missing += 1,
                }
            }
        }
        self.reached.ticks = reached;
        if missing > 0 {
            self.add_missing(format!(
                "{missing} segments of events aren't there; the calls in them are missing"
            ));
        }
    }

    /// Writes the trace file. `tool_version` is everycall's. The output should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write(mut self, output: impl Write, tool_version: &str) -> io::Result<Summary> {
        let mut file = ChunkWriter::begin(output)?;
        let header = self.image.header();
        let mut summary = Summary {
            is_incomplete: self.is_incomplete,
            children: self.children.iter().map(Child::from).collect(),
            ..Summary::of(header)
        };
        file.chunk(chunk::META, &[&self.meta(tool_version)])?;
        file.chunk(chunk::CLOCK, &[&array(&self.clock)])?;
        let (process, command) = self.process();
        file.chunk(chunk::PROCESS, &[&process.to_bytes(), &command])?;
        write_stamps(&mut file, header.stamps, header.stamps)?;
        write_calibration(&mut file, None, |at, bytes| self.image.read_bytes(at, bytes))?;
        file.chunk(chunk::MODULES, &[&module_table(std::mem::take(&mut self.modules), &mut summary)])?;
        if let Some(end) = self.end() {
            file.chunk(chunk::PROCESS_END, &[&end.to_bytes()])?;
        }
        file.chunk(chunk::CHILDREN, &[&array(&self.children)])?;
        self.write_threads(&mut file, &mut summary)?;
        if let Some([record, text, events]) = self.states.as_ref().map(KeptStates::chunk) {
            file.chunk(chunk::SCHED, &[&record, &text, &events])?;
        }
        (summary.file_size, _) = file.end()?;
        let more = self.warnings.len().saturating_sub(WARNINGS_MAX);
        summary.warnings.extend(self.warnings.into_iter().take(WARNINGS_MAX));
        if more > 0 {
            summary.warnings.push(format!("{more} more warnings"));
        }
        Ok(summary)
    }

    /// Words of the command line, as far as they are known: the kernel stores its beginning, with
    /// blanks between the words.
    fn command(&self) -> Vec<&[u8]> {
        if let Some(crash) = self.crash.as_ref().filter(|crash| !crash.command.is_empty()) {
            return crash.command.iter().map(Vec::as_slice).collect();
        }
        let arguments = self.facts.map_or(&[][..], |facts| &facts.arguments);
        let words: Vec<_> = arguments.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        if !words.is_empty() {
            return words;
        }
        let program = self.modules.iter().find(|(module, _)| module.flags & module_flags::EXECUTABLE != 0);
        program.map(|(_, path)| path.as_slice()).filter(|path| !path.is_empty()).into_iter().collect()
    }

    fn meta(&self, tool_version: &str) -> Vec<u8> {
        let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes())];
        fields.extend(self.command().into_iter().map(|word| (meta::ARGUMENT, word)));
        let folder =
            self.crash.as_ref().map(|crash| crash.folder.as_slice()).filter(|folder| !folder.is_empty());
        fields.extend(folder.map(|folder| (meta::WORKING_FOLDER, folder)));
        texts(fields)
    }

    /// The process's record, and its command line.
    fn process(&self) -> (ProcessRecord, Vec<u8>) {
        let command: Vec<u8> = self.command().into_iter().flat_map(|word| [word, b"\0"].concat()).collect();
        let header = self.image.header();
        let (parent_pid, name) = match (&self.facts, &self.crash) {
            (Some(facts), _) => (facts.parent, facts.name.as_slice()),
            (None, Some(crash)) => (header.parent_pid, crash.name.as_slice()),
            (None, None) => (0, &[][..]),
        };
        let record = ProcessRecord {
            record_size: ProcessRecord::SIZE as u32,
            pid: header.target_pid,
            parent_pid,
            parent: NO_PROCESS,
            origin: origin::START,
            ending: if self.has_ended() { image_end::ENDED } else { image_end::RUNNING },
            start_ticks: header.start.ticks,
            end_ticks: self.reached.ticks,
            name: padded(name),
            command_length: command.len() as u32,
            machine: header.machine,
        };
        (record, command)
    }

    fn has_ended(&self) -> bool {
        self.crash.is_some() || self.facts.is_some_and(|facts| facts.has_ended)
    }

    /// How the process ended, if it did.
    fn end(&self) -> Option<ProcessEnd> {
        let facts = self.facts.filter(|facts| facts.has_ended)?;
        Some(ProcessEnd {
            pid: self.image.header().target_pid,
            how: end::SIGNALED,
            code: facts.signal?,
            core_dumped: 1,
            ticks: self.reached.ticks,
        })
    }

    fn write_threads<W: Write>(&self, file: &mut ChunkWriter<W>, summary: &mut Summary) -> io::Result<()> {
        let header = self.image.header();
        let record = SnapshotRecord {
            snapshot: SNAPSHOT,
            reason: if self.has_ended() { reason::PROCESS_END } else { reason::REQUEST },
            pid: header.target_pid,
            threads: self.threads().count() as u32,
            ticks: self.reached.ticks,
            ring_size: header.ring_size,
            segment_size: header.segment_size,
            counters: header.counters,
        };
        file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
        let dropped = Dropped::read(header, header.threads, |at, bytes| self.image.read_bytes(at, bytes));
        let mut runs = Runs::default();
        for (number, (key, thread)) in (0..).zip(self.threads()) {
            let segments = ImageSegments { image: self.image, key };
            let ring = Ring::survey(&segments, thread_header(thread), header.segment_size);
            let name = padded(&thread.name);
            let mut record = ring.thread_record(SNAPSHOT, number, thread.pid, thread.slot, name);
            record.dropped = dropped.of_slot(thread.slot);
            let open_calls: Vec<OpenCall> = self.image.open_call_entries(key);
            file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(&open_calls)])?;
            ring.write_events(file, &mut runs, &record)?;
            let nanoseconds = |ticks| self.nanoseconds(ticks);
            summary.threads.push(ring.summary(&record, self.reached.ticks, nanoseconds));
        }
        dropped.add_to(summary);
        if let Some(names) = self.frame_names() {
            names.write(file)?;
        }
        if let Some((codes, lost)) = &self.codes {
            write_code_names(file, codes, *lost)?;
        }
        for (kind, [record, functions]) in dropped.chunks(SNAPSHOT) {
            file.chunk(kind, &[&record, &functions])?;
        }
        Ok(())
    }

    /// Nanoseconds that `ticks` take, by the first and the last reading; as many as ticks where the
    /// rate isn't known.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let (Some(first), Some(last)) = (self.clock.first(), self.clock.last()) else { return ticks };
        let span = u128::from(last.ticks.saturating_sub(first.ticks));
        let time = u128::from(last.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns));
        if span == 0 {
            return ticks;
        }
        u64::try_from(u128::from(ticks) * time / span).unwrap_or(u64::MAX)
    }
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Snapshot").field("reached", &self.reached).finish_non_exhaustive()
    }
}

/// The beginning of a text, in a field.
fn padded(text: &[u8]) -> [u8; 16] {
    let mut field = [0; 16];
    field.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    field
}

fn thread_header(thread: &everycall_reader::Thread) -> ThreadHeader {
    ThreadHeader {
        tid: thread.tid,
        generation: thread.generation,
        start_ticks: thread.start_ticks,
        segment: thread.first_segment.saturating_add(thread.segments.saturating_sub(1)),
        unwound: thread.unwound,
        orphan_exits: thread.orphan_exits,
        lost_busy: thread.lost_busy,
        deep: thread.deep,
        fiber: thread.fiber.unwrap_or(0),
        ..ThreadHeader::default()
    }
}

/// The segments of a thread, as the reader gives them.
struct ImageSegments<'a> {
    image: &'a ArenaImage<'a>,
    key: ThreadKey,
}

impl Segments for ImageSegments<'_> {
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut cursor = self.image.segments(self.key);
        let mut words = Vec::new();
        let mut bytes = Vec::new();
        while let Some(segment) = cursor.next_segment(&mut words) {
            // Unreadable segments were counted before.
            let Ok(number) = segment else { continue };
            bytes.clear();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            take(number, &bytes)?;
        }
        Ok(())
    }
}
