//! The trace file that an import writes: processes, threads, functions and events, as they come.
//!
//! Each process is a stream ([`everycall_format::ect::reason::STREAM`]): its threads' events are
//! written while the source is read, so memory doesn't grow with its length.

use std::io::{self, Write};

use everycall_format::arena::{ClockReading, ModuleEntry, OpenCall, module_state};
use everycall_format::ect::{
    NO_PROCESS, ProcessRecord, SnapshotRecord, ThreadRecord, chunk, image_end, meta, reason,
};
use everycall_format::event::{
    EXIT, NO_PLACE_FIRST, OFFSET_FIRST, call_word, kind, payload_word, record_word,
};
use everycall_format::frame;
use everycall_format::hub::origin;
use everycall_format::{Wire, label, stamp};
use everycall_jit::Code as Generated;
use everycall_tracefile::{
    ChunkWriter, Place, Runs, Summary, array, module_image, module_table, texts, write_code_names,
    write_stamps,
};

use crate::image::{Symbol, image};

/// Words of a segment.
const SEGMENT_WORDS: usize = 8192;
/// Code offsets between two functions that only have names.
const NAME_STRIDE: u32 = 16;
/// Names of the first range of a table; each further range has twice as many.
const FIRST_NAMES: u32 = 1 << 10;
/// The most names of a range.
const RANGE_NAMES_MAX: u32 = 1 << 20;
/// Bytes of all names of a table.
const NAMES_MAX: usize = 1 << 30;
/// Bytes that a label's name may have.
const LABEL_BYTES: usize = 64;

/// A process of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(u32);

/// A thread of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadId(u32);

/// A function of the output: its code offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Code(pub u32);

/// Facts about a process, from the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessFacts {
    pub pid: u32,
    pub parent_pid: u32,
    /// The process that it was forked from, or whose program it replaced.
    pub parent: Option<ProcessId>,
    pub is_fork: bool,
    pub name: Vec<u8>,
    /// Words of its command line.
    pub command: Vec<Vec<u8>>,
}

/// A file that was mapped into a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleFacts {
    pub path: Vec<u8>,
    pub build_id: Vec<u8>,
    /// Load bias.
    pub base: u64,
    /// First address of its code in the process.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// When it was mapped, ticks.
    pub loaded: u64,
    /// The file's bytes, if nothing at its path has them.
    pub image: Option<Vec<u8>>,
}

struct Process {
    facts: ProcessFacts,
    modules: Vec<(ModuleEntry, Vec<u8>)>,
    images: Vec<(u32, Vec<u8>)>,
    codes: (Vec<Generated>, u64),
    threads: u32,
    reach: Option<(u64, u64)>,
}

struct Thread {
    process: ProcessId,
    record: ThreadRecord,
    words: Vec<u64>,
    /// The segment that is being filled.
    segment: u64,
    depth: u32,
    high: u32,
    /// Whether its THREAD chunk has been written.
    is_announced: bool,
    events: u64,
    first: Option<u64>,
}

/// Functions of one module that only have names.
struct Names {
    path: Vec<u8>,
    /// One after the other.
    text: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// Code offset and number of the first name of each range, and its names.
    ranges: Vec<(u32, u32, u32)>,
}

/// A table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamesId(usize);

/// Facts about the import.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Format and path of the source.
    pub from: String,
    /// The source's clock.
    pub clock: String,
    /// Notes on missing or unknown data.
    pub notes: Vec<String>,
    /// Words of the command line.
    pub command: Vec<Vec<u8>>,
    /// Clock readings, at least two where the clock's rate is known.
    pub readings: Vec<ClockReading>,
    /// Events with the time of another one of their thread happened between that and the next time.
    pub has_bounds: bool,
}

/// The trace file that is being written.
pub(crate) struct Output<W> {
    file: ChunkWriter<W>,
    runs: Runs,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    names: Vec<Names>,
    next_code: u32,
    /// Functions for which the code space had no room.
    without_room: u64,
    spare: Vec<u8>,
    /// The process whose chunks are being written.
    current: u32,
    pub facts: Facts,
}

impl<W: Write> Output<W> {
    pub fn begin(output: W) -> io::Result<Output<W>> {
        Ok(Output {
            file: ChunkWriter::begin(output)?,
            runs: Runs::default(),
            processes: Vec::new(),
            threads: Vec::new(),
            names: Vec::new(),
            next_code: OFFSET_FIRST,
            without_room: 0,
            spare: Vec::new(),
            current: 0,
            facts: Facts::default(),
        })
    }

    /// Adds a process.
    pub fn process(&mut self, facts: ProcessFacts) -> io::Result<ProcessId> {
        let id = ProcessId(self.processes.len() as u32);
        let process = Process {
            facts,
            modules: Vec::new(),
            images: Vec::new(),
            codes: (Vec::new(), 0),
            threads: 0,
            reach: None,
        };
        self.processes.push(process);
        self.write_process(id, image_end::RUNNING)?;
        self.write_snapshot(id, 0, 0)?;
        Ok(id)
    }

    /// Facts about a process: more may be added until the end.
    pub fn process_facts(&mut self, id: ProcessId) -> Option<&mut ProcessFacts> {
        self.processes.get_mut(id.0 as usize).map(|process| &mut process.facts)
    }

    /// Adds a thread. `older_missing`: the source may have had older events of it.
    pub fn thread(&mut self, process: ProcessId, tid: u32, name: &[u8], older_missing: bool) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        let Some(owner) = self.processes.get_mut(process.0 as usize) else { return id };
        let number = owner.threads;
        owner.threads += 1;
        let first_segment = u64::from(older_missing);
        let record = ThreadRecord {
            snapshot: process.0,
            thread: number,
            pid: owner.facts.pid,
            tid,
            slot: number,
            first_segment,
            name: padded(name),
            ..ThreadRecord::default()
        };
        self.threads.push(Thread {
            process,
            record,
            words: Vec::new(),
            segment: first_segment,
            depth: 0,
            high: 0,
            is_announced: false,
            events: 0,
            first: None,
        });
        id
    }

    /// A thread has no older events than those that follow.
    pub fn has_all(&mut self, id: ThreadId) {
        if let Some(thread) = self.threads.get_mut(id.0 as usize)
            && thread.words.is_empty()
            && !thread.is_announced
        {
            thread.record.first_segment = 0;
            thread.segment = 0;
        }
    }

    /// Calls that are open in a thread.
    pub fn depth(&self, id: ThreadId) -> u32 {
        self.threads.get(id.0 as usize).map_or(0, |thread| thread.depth)
    }

    /// Room for `length` code offsets; `None` if there is none.
    fn room(&mut self, length: u32) -> Option<u32> {
        let first = self.next_code;
        let next = first.checked_add(length)?;
        (next < frame::FIRST).then(|| self.next_code = next)?;
        Some(first)
    }

    /// Adds a module of a process, and returns the code offset of its first address. `None` if
    /// there is no room for it.
    pub fn module(&mut self, process: ProcessId, facts: ModuleFacts) -> Option<Code> {
        let length = u32::try_from(facts.end.checked_sub(facts.start)?).ok()?;
        let code_start = self.room(length)?;
        let process = self.processes.get_mut(process.0 as usize)?;
        let entry =
            module_entry(&facts.build_id, facts.base, (facts.start, facts.end), code_start, facts.loaded);
        if let Some(image) = facts.image {
            process.images.push((process.modules.len() as u32, image));
        }
        process.modules.push((entry, facts.path));
        Some(Code(code_start))
    }

    /// The names of code that a process generated, and how many more there were.
    pub fn code_names(&mut self, process: ProcessId, codes: Vec<Generated>, lost: u64) {
        if let Some(process) = self.processes.get_mut(process.0 as usize) {
            process.codes = (codes, lost);
        }
    }

    /// Adds a table of functions that only have names, of the module with this path.
    pub fn names(&mut self, path: &[u8]) -> NamesId {
        self.names.push(Names {
            path: path.to_vec(),
            text: Vec::new(),
            ends: Vec::new(),
            ranges: Vec::new(),
        });
        NamesId(self.names.len() - 1)
    }

    /// Adds a function with this name.
    pub fn name(&mut self, id: NamesId, name: &[u8]) -> Code {
        let full = |names: &Names| {
            names.ranges.last().is_none_or(|(_, first, room)| names.ends.len() as u32 - first >= *room)
        };
        let Some(names) = self.names.get(id.0) else { return Code(NO_PLACE_FIRST) };
        if names.text.len().saturating_add(name.len()) > NAMES_MAX {
            self.without_room += 1;
            return Code(NO_PLACE_FIRST);
        }
        if full(names) {
            let before = names.ranges.last().map_or(FIRST_NAMES / 2, |(_, _, room)| *room);
            let wanted = before.saturating_mul(2).min(RANGE_NAMES_MAX);
            let first = names.ends.len() as u32;
            let Some(code) = self.room(wanted * NAME_STRIDE) else {
                self.without_room += 1;
                return Code(NO_PLACE_FIRST);
            };
            if let Some(names) = self.names.get_mut(id.0) {
                names.ranges.push((code, first, wanted));
            }
        }
        let Some(names) = self.names.get_mut(id.0) else { return Code(NO_PLACE_FIRST) };
        let number = names.ends.len() as u32;
        names.text.extend(name);
        names.ends.push(names.text.len());
        let (code, first, _) = names.ranges.last().copied().unwrap_or_default();
        Code(code + (number - first) * NAME_STRIDE)
    }

    /// A function was entered.
    #[inline]
    pub fn entry(&mut self, thread: ThreadId, ticks: u64, code: Code) -> io::Result<()> {
        if let Some(thread) = self.threads.get_mut(thread.0 as usize)
            && thread.has_room(ticks)
        {
            thread.words.push(call_word(ticks, code.0));
            thread.depth = thread.depth.saturating_add(1);
            thread.events += 1;
            return Ok(());
        }
        self.prepare(thread, ticks, 1)?;
        let Some(thread) = self.threads.get_mut(thread.0 as usize) else { return Ok(()) };
        thread.words.push(call_word(ticks, code.0));
        thread.depth = thread.depth.saturating_add(1);
        thread.events += 1;
        Ok(())
    }

    /// A function was left.
    #[inline]
    pub fn exit(&mut self, thread: ThreadId, ticks: u64, code: Code) -> io::Result<()> {
        let fits = self.threads.get(thread.0 as usize).is_some_and(|thread| thread.has_room(ticks));
        if !fits {
            self.prepare(thread, ticks, 1)?;
        }
        let Some(thread) = self.threads.get_mut(thread.0 as usize) else { return Ok(()) };
        thread.words.push(call_word(ticks, code.0 | EXIT));
        thread.depth = thread.depth.saturating_sub(1);
        thread.events += 1;
        Ok(())
    }

    /// Code outside all modules was entered, or left.
    pub fn unknown(&mut self, thread: ThreadId, ticks: u64, address: u64, is_exit: bool) -> io::Result<()> {
        let payloads = [address as u32, (address >> 32) as u32];
        self.record(thread, ticks, kind::UNKNOWN_CODE, u8::from(is_exit), &payloads)?;
        if let Some(thread) = self.threads.get_mut(thread.0 as usize) {
            thread.depth =
                if is_exit { thread.depth.saturating_sub(1) } else { thread.depth.saturating_add(1) };
            thread.events += 1;
        }
        Ok(())
    }

    /// The innermost `left` calls ended without an exit, at this time or before.
    pub fn unwound_late(&mut self, thread: ThreadId, ticks: u64, left: u32) -> io::Result<()> {
        self.unwound_as(thread, ticks, left, everycall_format::event::unwound::NOTICED)
    }

    /// The innermost `left` calls ended without an exit, at this time: an exception, `longjmp`, or
    /// the end of the thread.
    pub fn unwound(&mut self, thread: ThreadId, ticks: u64, left: u32) -> io::Result<()> {
        self.unwound_as(thread, ticks, left, everycall_format::event::unwound::KNOWN)
    }

    fn unwound_as(&mut self, thread: ThreadId, ticks: u64, left: u32, how: u8) -> io::Result<()> {
        let depth = self.depth(thread).saturating_sub(left);
        self.record(thread, ticks, kind::UNWOUND, how, &[depth, left])?;
        if let Some(thread) = self.threads.get_mut(thread.0 as usize) {
            thread.depth = depth;
        }
        Ok(())
    }

    /// A label, instant, span or counter, of this class ([`label`]).
    pub fn label(
        &mut self,
        thread: ThreadId,
        ticks: u64,
        class: u8,
        name: &[u8],
        value: Option<u64>,
    ) -> io::Result<()> {
        let name = truncated(name);
        let detail = if value.is_some() { class } else { class | label::NO_VALUE };
        let value = value.unwrap_or(0);
        let mut payloads = [0; 2 + LABEL_BYTES / 4];
        payloads[0] = value as u32;
        payloads[1] = (value >> 32) as u32;
        for (payload, bytes) in payloads[2..].iter_mut().zip(name.chunks(4)) {
            let mut word = [0; 4];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *payload = u32::from_le_bytes(word);
        }
        let count = 2 + name.len().div_ceil(4).max(1);
        self.record(thread, ticks, kind::LABEL, detail, payloads.get(..count).unwrap_or_default())
    }

    /// What follows in a thread happened at this time or later, if it has no later time: none of it
    /// has this time for its own.
    pub fn no_earlier(&mut self, thread: ThreadId, ticks: u64) -> io::Result<()> {
        let depth = self.depth(thread);
        // Nothing is unwound: only the time is of interest.
        self.record(thread, ticks, kind::UNWOUND, everycall_format::event::unwound::KNOWN, &[depth, 0])
    }

    /// A process has lasted until then.
    pub fn lasted(&mut self, process: ProcessId, ticks: u64) {
        let first = self.processes.get(process.0 as usize).and_then(|process| process.reach);
        if let Some((first, _)) = first {
            self.reached(process, first, ticks);
        }
    }

    /// Events of a thread are missing here; how many, if that is known.
    pub fn lose(&mut self, id: ThreadId, count: Option<u64>) -> io::Result<()> {
        self.end_segment(id, false)?;
        self.announce(id)?;
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        if thread.segment == thread.record.first_segment && !thread.is_first_written() {
            // Nothing came before it.
            thread.record.first_segment = 1;
        }
        thread.segment += 1;
        thread.depth = 0;
        let place =
            Place { snapshot: thread.process.0, thread: thread.record.thread, segment: thread.segment };
        self.of(place.snapshot)?;
        self.runs.lose(&mut self.file, place, count.unwrap_or(0))?;
        self.runs.write(&mut self.file)
    }

    fn record(&mut self, id: ThreadId, ticks: u64, kind: u8, detail: u8, payloads: &[u32]) -> io::Result<()> {
        self.prepare(id, ticks, 1 + payloads.len())?;
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        thread.words.push(record_word(ticks, kind, payloads.len() as u8, detail));
        let following = payloads.iter().zip(1..);
        thread.words.extend(following.map(|(payload, index)| payload_word(*payload, kind, index)));
        Ok(())
    }

    /// Makes room for `count` words, and says the upper half of the ticks.
    #[cold]
    fn prepare(&mut self, id: ThreadId, ticks: u64, count: usize) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        if !thread.words.is_empty() && thread.words.len() + count + 2 > SEGMENT_WORDS {
            self.end_segment(id, false)?;
        }
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        let high = (ticks >> 32) as u32;
        if thread.words.is_empty() {
            thread.words.reserve_exact(SEGMENT_WORDS);
            thread.words.push(record_word(ticks, kind::SEGMENT, 3, 0));
            let payloads = [high, thread.depth, thread.segment as u32];
            let following = payloads.iter().zip(1..);
            thread
                .words
                .extend(following.map(|(payload, index)| payload_word(*payload, kind::SEGMENT, index)));
        } else if thread.high != high {
            thread.words.push(record_word(ticks, kind::EPOCH, 1, 0));
            thread.words.push(payload_word(high, kind::EPOCH, 1));
        }
        thread.high = high;
        thread.first.get_or_insert(ticks);
        let (process, first) = (thread.process, thread.first);
        self.reached(process, first.unwrap_or(ticks), ticks);
        Ok(())
    }

    fn reached(&mut self, id: ProcessId, first: u64, last: u64) {
        let Some(process) = self.processes.get_mut(id.0 as usize) else { return };
        let (from, to) = process.reach.unwrap_or((first, last));
        process.reach = Some((from.min(first), to.max(last)));
    }

    /// Earliest and latest time of all events so far.
    pub fn reach(&self) -> Option<(u64, u64)> {
        let reaches = self.processes.iter().filter_map(|process| process.reach);
        reaches.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// The chunks that follow belong to this process: pending ones are written before.
    fn of(&mut self, process: u32) -> io::Result<()> {
        if self.current != process {
            self.runs.write(&mut self.file)?;
            self.file.set_process(process);
            self.current = process;
        }
        Ok(())
    }

    /// Writes the segment that is being filled; only a thread's last one may be shorter than
    /// others.
    fn end_segment(&mut self, id: ThreadId, is_last: bool) -> io::Result<()> {
        let Some(thread) = self.threads.get(id.0 as usize) else { return Ok(()) };
        if thread.words.is_empty() {
            return Ok(());
        }
        self.announce(id)?;
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        let last = thread.last_ticks();
        if !is_last {
            thread.words.resize(SEGMENT_WORDS, record_word(last, kind::FILLER, 0, 0));
        }
        let place =
            Place { snapshot: thread.process.0, thread: thread.record.thread, segment: thread.segment };
        self.spare.clear();
        self.spare.extend(thread.words.iter().flat_map(|word| word.to_le_bytes()));
        thread.words.clear();
        thread.segment += 1;
        thread.record.segments += 1;
        let process = thread.process;
        self.reached(process, last, last);
        self.of(place.snapshot)?;
        self.runs.add(&mut self.file, place, &self.spare)
    }

    fn announce(&mut self, id: ThreadId) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return Ok(()) };
        if thread.is_announced {
            return Ok(());
        }
        thread.is_announced = true;
        thread.record.start_ticks = thread.first.unwrap_or(0);
        let record = ThreadRecord { segments: 0, ..thread.record };
        self.of(record.snapshot)?;
        self.runs.write(&mut self.file)?;
        self.file.chunk(chunk::THREAD, &[&record.to_bytes(), &array::<OpenCall>(&[])])
    }

    fn write_process(&mut self, id: ProcessId, ending: u32) -> io::Result<()> {
        let Some(process) = self.processes.get(id.0 as usize) else { return Ok(()) };
        let command: Vec<u8> =
            process.facts.command.iter().flat_map(|word| [&word[..], b"\0"].concat()).collect();
        let reach = process.reach.unwrap_or_default();
        let record = ProcessRecord {
            record_size: ProcessRecord::SIZE as u32,
            pid: process.facts.pid,
            parent_pid: process.facts.parent_pid,
            parent: process.facts.parent.map_or(NO_PROCESS, |parent| parent.0),
            origin: match (process.facts.parent, process.facts.is_fork) {
                (None, _) => origin::START,
                (_, true) => origin::FORK,
                (_, false) => origin::EXEC,
            },
            ending,
            start_ticks: reach.0,
            end_ticks: reach.1,
            name: padded(&process.facts.name),
            command_length: command.len() as u32,
            machine: 0,
        };
        self.of(id.0)?;
        self.runs.write(&mut self.file)?;
        self.file.chunk(chunk::PROCESS, &[&record.to_bytes(), &command])
    }

    fn write_snapshot(&mut self, id: ProcessId, ticks: u64, threads: u32) -> io::Result<()> {
        let record = SnapshotRecord {
            snapshot: id.0,
            reason: reason::STREAM,
            pid: self.processes.get(id.0 as usize).map_or(0, |process| process.facts.pid),
            threads,
            ticks,
            segment_size: (SEGMENT_WORDS * 8) as u64,
            ..SnapshotRecord::default()
        };
        self.file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])
    }

    /// Ends the file. Returns what is in it, and the output.
    pub fn end(mut self, tool_version: &str) -> io::Result<(Summary, W)> {
        let mut summary = Summary { traced: true, streamed: true, ..Summary::default() };
        for index in 0..self.threads.len() {
            let id = ThreadId(index as u32);
            self.end_segment(id, true)?;
            self.announce(id)?;
        }
        self.runs.write(&mut self.file)?;
        if self.without_room > 0 {
            self.facts
                .notes
                .push(format!("{} functions have no names: there are too many", self.without_room));
        }
        let names = std::mem::take(&mut self.names);
        for number in 0..self.processes.len() {
            let id = ProcessId(number as u32);
            self.write_process(id, image_end::UNKNOWN)?;
            self.write_modules(id, &names, &mut summary)?;
            let Some(process) = self.processes.get(number) else { continue };
            let (ticks, threads) = (process.reach.unwrap_or_default().1, process.threads);
            self.write_snapshot(id, ticks, threads)?;
            for thread in self.threads.iter().filter(|thread| thread.process == id) {
                self.file.chunk(chunk::THREAD, &[&thread.record.to_bytes(), &array::<OpenCall>(&[])])?;
                summary.threads.push(everycall_tracefile::ThreadSummary {
                    tid: thread.record.tid,
                    events: thread.events,
                    ..everycall_tracefile::ThreadSummary::default()
                });
            }
        }
        summary.processes = self.processes.len() as u32;
        self.of(0)?;
        let facts = &self.facts;
        let mut fields = vec![
            (meta::TOOL_VERSION, tool_version.as_bytes()),
            (meta::IMPORTED_FROM, facts.from.as_bytes()),
            (meta::IMPORTED_CLOCK, facts.clock.as_bytes()),
        ];
        fields.extend(facts.command.iter().map(|word| (meta::ARGUMENT, &word[..])));
        fields.extend(facts.notes.iter().map(|note| (meta::IMPORT_NOTE, note.as_bytes())));
        self.file.chunk(chunk::META, &[&texts(fields)])?;
        self.file.chunk(chunk::CLOCK, &[&array(&facts.readings)])?;
        summary.warnings.clone_from(&facts.notes);
        let (size, output) = self.file.end()?;
        summary.file_size = size;
        Ok((summary, output))
    }

    fn write_modules(&mut self, id: ProcessId, names: &[Names], summary: &mut Summary) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(id.0 as usize) else { return Ok(()) };
        for table in names {
            let symbols: Vec<Symbol<'_>> = table.symbols().collect();
            let (bytes, build_id) = image(&symbols, &[]);
            let first = process.modules.len() as u32;
            for (code, first, room) in &table.ranges {
                let start = u64::from(*first) * u64::from(NAME_STRIDE);
                let reach = (start, start + u64::from(room * NAME_STRIDE));
                process.modules.push((module_entry(&build_id, 0, reach, *code, 0), table.path.clone()));
            }
            if id.0 == 0 && !table.ranges.is_empty() {
                process.images.push((first, bytes));
            }
        }
        let (modules, images) = (std::mem::take(&mut process.modules), std::mem::take(&mut process.images));
        self.file.chunk(chunk::MODULES, &[&module_table(modules, summary)])?;
        for (module, bytes) in images {
            let [record, packed] = module_image(module, &bytes)?;
            self.file.chunk(chunk::MODULE_IMAGE, &[&record, &packed])?;
        }
        if self.facts.has_bounds {
            write_stamps(&mut self.file, stamp::BOUNDED, stamp::BOUNDED)?;
        }
        match self.processes.get(id.0 as usize).map(|process| &process.codes) {
            Some((codes, lost)) if !codes.is_empty() => write_code_names(&mut self.file, codes, *lost),
            _ => Ok(()),
        }
    }
}

impl Thread {
    #[inline]
    fn has_room(&self, ticks: u64) -> bool {
        !self.words.is_empty() && self.words.len() + 3 <= SEGMENT_WORDS && self.high == (ticks >> 32) as u32
    }

    fn is_first_written(&self) -> bool {
        self.record.segments > 0
    }

    /// Ticks of the last event in the segment that is being filled.
    fn last_ticks(&self) -> u64 {
        let with_ticks = |word: &&u64| (**word as u32) < 0xff00_0000;
        let low = self.words.iter().rev().find(with_ticks).map_or(0, |word| word >> 32);
        u64::from(self.high) << 32 | low
    }
}

impl Names {
    fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).zip(0_u64..).map(|((start, end), number)| Symbol {
            address: number * u64::from(NAME_STRIDE),
            size: NAME_STRIDE.into(),
            name: self.text.get(start..*end).unwrap_or_default(),
        })
    }
}

fn module_entry(build_id: &[u8], base: u64, reach: (u64, u64), code_start: u32, loaded: u64) -> ModuleEntry {
    let mut entry = ModuleEntry {
        state: module_state::COMPLETE,
        base,
        start: reach.0,
        end: reach.1,
        code_start,
        build_id_length: build_id.len().min(32) as u32,
        loaded_ticks: loaded,
        ..ModuleEntry::default()
    };
    entry.build_id.iter_mut().zip(build_id).for_each(|(to, from)| *to = *from);
    entry
}

fn padded(text: &[u8]) -> [u8; 16] {
    let mut field = [0; 16];
    field.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    field
}

/// As much of a label's name as a record holds, up to its first zero byte.
fn truncated(name: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, name).unwrap_or(name.len());
    let mut end = end.min(LABEL_BYTES);
    // Not within a character.
    while end > 0 && end < name.len() && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}
