//! Writes a snapshot's trace file. A thread's segments are copied and released when it is its turn;
//! where the program takes the memory up faster than that, all that is left is copied at once, the
//! oldest segments first.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};

use everycall_format::Wire;
use everycall_format::arena::{COUNTERS, ClockReading, OpenCall, ThreadHeader};
use everycall_format::ect::{
    NO_PROCESS, ProcessRecord, SnapshotRecord, ThreadRecord, chunk, image_end, meta, reason,
};
use everycall_format::event::WORD_SIZE;
use everycall_format::hub::origin;
use everycall_machine::{clock, host};
use everycall_tracefile::{
    AllCalls, Child, ChunkWriter, Ring, Runs, Segments, Summary, ThreadSummary, WriteChunk, array,
    is_segment, module_table, text_of, texts, write_stamps,
};

use crate::arena::LiveArena;
use crate::images;
use crate::names;
use crate::pinner::Pinner;
use crate::process::ThreadNames;
use crate::states;
use crate::take::{PinnedSegment, PinnedThread, SessionFacts, Snapshot, nanoseconds_since, session_record};

/// The only snapshot of the file.
const SNAPSHOT: u32 = 0;
/// Bytes of a thread that are copied before they are written; of larger rings, each segment is
/// copied twice.
const THREAD_COPY_MAX: u64 = 64 << 20;
/// Copies of segments whose memory is used again.
const SPARE_MAX: usize = 256;
/// Bytes that are copied at once where the program runs out of segments.
const RESCUE_MAX: u64 = 256 << 20;

/// The parts of a file beside the threads' events.
pub(crate) struct Frame<'a> {
    pub arena: &'a LiveArena,
    pub before: ClockReading,
    pub after: ClockReading,
}

impl Frame<'_> {
    fn command(&self) -> Vec<Vec<u8>> {
        let process = self.arena.process();
        if process.command.is_empty() { vec![process.name.clone()] } else { process.command.clone() }
    }

    pub fn meta(&self, tool_version: &str) -> Vec<u8> {
        let mut fields = vec![(meta::TOOL_VERSION, tool_version.as_bytes().to_vec())];
        fields.extend(self.command().into_iter().map(|word| (meta::ARGUMENT, word)));
        fields.extend(
            Some((meta::WORKING_FOLDER, self.arena.process().folder.clone()))
                .filter(|(_, folder)| !folder.is_empty()),
        );
        fields.extend(host::describe());
        texts(fields.iter().map(|(key, text)| (*key, text.as_slice())))
    }

    /// The readings of this snapshot, and the runtime's at its start, unless it was overwritten.
    pub fn clock_readings(&self) -> Vec<ClockReading> {
        let start = self.arena.layout().start;
        let is_sane = start.monotonic_raw_ns != 0
            && start.ticks < self.before.ticks
            && start.monotonic_raw_ns < self.before.monotonic_raw_ns;
        let mut all = if is_sane { vec![start] } else { vec![] };
        all.extend([self.before, self.after]);
        all
    }

    pub fn process(&self) -> (ProcessRecord, Vec<u8>) {
        let process = self.arena.process();
        // Servers that fork write over it what each process does.
        let is_forked = self.arena.layout().origin == origin::FORK;
        let title = if is_forked { process.newest_title() } else { None };
        let shown = title.map_or_else(|| self.command(), |title| vec![title]);
        let command: Vec<u8> = shown.into_iter().flat_map(|word| [&word[..], b"\0"].concat()).collect();
        let mut name = [0; 16];
        name.iter_mut().zip(&process.name).for_each(|(to, from)| *to = *from);
        let record = ProcessRecord {
            record_size: ProcessRecord::SIZE as u32,
            pid: process.pid,
            parent_pid: process.parent,
            parent: NO_PROCESS,
            origin: origin::START,
            ending: image_end::RUNNING,
            start_ticks: self.arena.layout().start.ticks,
            end_ticks: self.after.ticks,
            name,
            command_length: command.len() as u32,
            machine: self.arena.header().machine,
        };
        (record, command)
    }

    /// Writes what a file begins with. `ending` is the process's, one of [`image_end`].
    pub fn begin<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        tool_version: &str,
        ending: u32,
    ) -> io::Result<()> {
        file.chunk(chunk::META, &[&self.meta(tool_version)])?;
        file.chunk(chunk::CLOCK, &[&array(&self.clock_readings())])?;
        let (process, command) = self.process();
        file.chunk(chunk::PROCESS, &[&ProcessRecord { ending, ..process }.to_bytes(), &command])?;
        let stamps = self.arena.header().stamps;
        write_stamps(file, stamps, stamps)?;
        self.arena.write_calibration(file)
    }

    /// A snapshot with so many threads.
    pub fn snapshot(
        &self,
        snapshot: u32,
        reason: u32,
        threads: usize,
        counters: [u64; COUNTERS],
    ) -> SnapshotRecord {
        let layout = self.arena.layout();
        SnapshotRecord {
            snapshot,
            reason,
            pid: self.arena.process().pid,
            threads: threads as u32,
            ticks: self.after.ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters,
        }
    }
}

/// Writes a file of calls that were kept of a running process since a clock reading: `kept` writes
/// their chunks. `tool_version` is everycall's; `has_ended`: the process has. The output should be
/// buffered.
///
/// # Errors
///
/// The output's.
pub fn write_kept(
    arena: &LiveArena,
    since: &ClockReading,
    output: impl Write,
    tool_version: &str,
    has_ended: bool,
    kept: &mut dyn FnMut(&mut WriteChunk<'_>) -> io::Result<()>,
) -> io::Result<Summary> {
    let mut file = ChunkWriter::begin(output)?;
    let frame = Frame { arena, before: *since, after: clock::read() };
    let mut summary = Summary { ring_size: arena.layout().ring_size, ..Summary::of(&arena.header()) };
    frame.begin(&mut file, tool_version, if has_ended { image_end::ENDED } else { image_end::RUNNING })?;
    let modules = arena.modules();
    file.chunk(chunk::MODULES, &[&module_table(modules.clone(), &mut summary)])?;
    kept(&mut |_, kind, payload| file.chunk(kind, &[payload]))?;
    names::write(arena, &frame.after, &mut file, &mut summary)?;
    images::write_deleted(&mut file, arena.process().pid, &modules, &mut summary.warnings)?;
    (summary.file_size, _) = file.end()?;
    Ok(summary)
}

/// Writes a file with the numbers of all calls that a process has recorded so far, without the
/// calls themselves; of a session, with its facts, those of its functions since it became active,
/// by threads that are `wanted`. `tool_version` is everycall's. The output should be buffered.
///
/// # Errors
///
/// The output's.
pub fn write_counts(
    arena: &LiveArena,
    session: Option<&SessionFacts>,
    wanted: impl Fn(&ThreadHeader) -> bool,
    output: impl Write,
    tool_version: &str,
) -> io::Result<Summary> {
    let mut file = ChunkWriter::begin(output)?;
    let before = clock::read();
    let mut threads = arena.current_threads();
    threads.retain(|(_, header)| wanted(header));
    let is_there = |slot: u32| threads.iter().any(|((of, _), _)| *of == slot);
    let counts = match session {
        None => arena.dropped(),
        Some(facts) => arena.dropped().since(facts.before.as_ref(), is_there),
    };
    let frame = Frame { arena, before, after: clock::read() };
    let header = arena.header();
    let mut summary = Summary { ring_size: arena.layout().ring_size, ..Summary::of(&header) };
    frame.begin(&mut file, tool_version, image_end::RUNNING)?;
    let modules = arena.modules();
    file.chunk(chunk::MODULES, &[&module_table(modules.clone(), &mut summary)])?;
    if let Some(facts) = session {
        file.chunk(chunk::SESSION, &[&session_record(facts, frame.after.ticks)])?;
    }
    let pid = arena.process().pid;
    let record = frame.snapshot(SNAPSHOT, reason::REQUEST, threads.len(), header.counters);
    file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
    let names = ThreadNames::of(arena.process());
    for (thread, ((slot, generation), header)) in (0..).zip(&threads) {
        let ThreadHeader { tid, start_ticks, fiber, .. } = *header;
        let age_ns = nanoseconds_since(&arena.layout().start, &frame.after, start_ticks);
        let record = ThreadRecord {
            snapshot: SNAPSHOT,
            thread,
            pid,
            tid,
            slot: *slot,
            generation: *generation,
            start_ticks,
            name: names.name_now(header, age_ns),
            fiber,
            ..ThreadRecord::default()
        };
        file.chunk(chunk::THREAD, &[&record.to_bytes(), &array::<OpenCall>(&[])])?;
        let name = text_of(&record.name);
        summary.threads.push(ThreadSummary { tid, name, ..ThreadSummary::default() });
    }
    names::write(arena, &frame.after, &mut file, &mut summary)?;
    if let Some((kind, [record, functions])) = counts.all_calls().map(|all| all.chunk_alone(SNAPSHOT)) {
        file.chunk(kind, &[&record, &functions])?;
    }
    images::write_deleted(&mut file, pid, &modules, &mut summary.warnings)?;
    (summary.file_size, _) = file.end()?;
    summary.counted = Some(counts.all_calls().map_or(0, AllCalls::calls));
    Ok(summary)
}

impl Snapshot<'_> {
    fn frame(&self) -> Frame<'_> {
        Frame { arena: self.arena, before: self.before, after: self.after }
    }

    /// Writes the trace file and releases everything. `tool_version` is everycall's. The output
    /// should be buffered.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write(mut self, output: impl Write, tool_version: &str) -> io::Result<Summary> {
        let mut file = ChunkWriter::begin(output)?;
        let layout = *self.arena.layout();
        let header = self.arena.header();
        // The layout was looked at when it was attached; what the header says now may be scribbled
        // over.
        let (ring_size, thread_capacity) = (layout.ring_size, layout.thread_capacity);
        let mut summary = Summary { ring_size, thread_capacity, ..Summary::of(&header) };
        // Data that threads still overwrite comes first; tables stay.
        self.rescue_where_needed();
        let states = states::of(&self);
        self.frame().begin(&mut file, tool_version, image_end::RUNNING)?;
        let modules = self.arena.modules();
        file.chunk(chunk::MODULES, &[&module_table(modules.clone(), &mut summary)])?;
        let children = self.arena.children();
        summary.children = children.iter().map(Child::from).collect();
        file.chunk(chunk::CHILDREN, &[&array(&children)])?;
        let mut dropped = self.arena.dropped();
        if let Some((session, before)) = &self.session {
            file.chunk(chunk::SESSION, &[session])?;
            let slots: HashSet<u32> = self.threads.iter().map(|thread| thread.slot).collect();
            dropped = dropped.since(before.as_ref(), |slot| slots.contains(&slot));
        }
        self.write_threads(&mut file, &mut summary, SNAPSHOT, reason::REQUEST)?;
        dropped.add_to(&mut summary);
        names::write(self.arena, &self.after, &mut file, &mut summary)?;
        for (kind, [record, functions]) in dropped.chunks(SNAPSHOT) {
            file.chunk(kind, &[&record, &functions])?;
        }
        match states {
            Ok(Some(payload)) => file.chunk(chunk::SCHED, &[&payload])?,
            Ok(None) => {}
            Err(sentence) => summary.warnings.push(sentence),
        }
        images::write_deleted(&mut file, self.arena.process().pid, &modules, &mut summary.warnings)?;
        (summary.file_size, _) = file.end()?;
        Ok(summary)
    }

    /// Writes the snapshot's threads alone, as chunks of a trace file that has the rest, and
    /// releases everything. `number` and `reason` are the snapshot's.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write_into<W: Write>(
        mut self,
        file: &mut ChunkWriter<W>,
        number: u32,
        reason: u32,
    ) -> io::Result<()> {
        self.rescue_where_needed();
        let mut summary = Summary { counters: self.arena.header().counters, ..Summary::default() };
        self.write_threads(file, &mut summary, number, reason)
    }

    fn write_threads<W: Write>(
        &mut self,
        file: &mut ChunkWriter<W>,
        summary: &mut Summary,
        snapshot: u32,
        reason: u32,
    ) -> io::Result<()> {
        let layout = *self.arena.layout();
        let pid = self.arena.process().pid;
        let record = self.frame().snapshot(snapshot, reason, self.threads.len(), summary.counters);
        file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
        let dropped = self.arena.dropped();
        let (mut missing, mut runs, mut spare) = (0, Runs::default(), Spare::default());
        let mut pending = std::mem::take(&mut self.threads).into_iter();
        let mut number = 0;
        while let Some(mut thread) = pending.next() {
            let source = ThreadSegments::copy(self.arena, &self.pinner, &mut thread, &mut spare);
            missing += source.missing;
            let ring = Ring::survey(&source, thread.header, layout.segment_size);
            let mut record = ring.thread_record(snapshot, number, pid, thread.slot, thread.header.name);
            record.dropped = dropped.of_slot(thread.slot);
            file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(&thread.open_calls)])?;
            ring.write_events(file, &mut runs, &record)?;
            summary.threads.push(ring.summary(&record, self.after.ticks, |ticks| self.nanoseconds(ticks)));
            spare.segments.extend(source.segments.into_iter().filter_map(|segment| segment.copy));
            spare.segments.truncate(SPARE_MAX);
            thread.segments.iter().for_each(|segment| self.pinner.release(segment.index));
            number += 1;
            if self.is_short() {
                let mut rest: Vec<PinnedThread> = pending.collect();
                rescue(self.arena, &self.pinner, &mut rest);
                pending = rest.into_iter();
            }
        }
        if self.too_late > 0 {
            summary.warnings.push(format!(
                "{} segments were overwritten before they could be pinned: everycall had to wait for a CPU; try \
                again with a higher priority (`nice -n -5`) or larger rings",
                self.too_late
            ));
        }
        if missing > 0 {
            summary.warnings.push(format!(
                "{missing} segments were overwritten before they could be copied: the program wrote more than \
                {} meanwhile; use --last to copy less",
                u64::from(layout.extra_segments) * layout.segment_size
            ));
        }
        Ok(())
    }

    /// Whether the program has taken a good part of the segments that it may have beyond its rings.
    fn is_short(&self) -> bool {
        let pool = self.arena.pool();
        let beyond = pool.in_use.load(Relaxed).saturating_sub(pool.ring_segments.load(Relaxed));
        beyond > pool.extra / 4
    }

    fn rescue_where_needed(&mut self) {
        if self.is_short() {
            let mut threads = std::mem::take(&mut self.threads);
            rescue(self.arena, &self.pinner, &mut threads);
            self.threads = threads;
        }
    }

    /// Nanoseconds that `ticks` take.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let readings = self.frame().clock_readings();
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else { return ticks };
        let span = u128::from(last.ticks.saturating_sub(first.ticks)).max(1);
        let time = u128::from(last.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns));
        u64::try_from(u128::from(ticks) * time / span).unwrap_or(u64::MAX)
    }
}

/// Copies and releases the segments of all threads, those first that are taken first from us.
fn rescue(arena: &LiveArena, pinner: &Pinner<'_>, threads: &mut [PinnedThread]) {
    let (mut left, mut words) = (RESCUE_MAX, Vec::new());
    threads.iter_mut().for_each(|thread| thread.end(arena, pinner, &mut words));
    let longest = threads.iter().map(|thread| thread.segments.len()).max().unwrap_or(0);
    for place in 0..longest {
        for segment in threads.iter_mut().filter_map(|thread| thread.segments.get_mut(place)) {
            if segment.copy.is_some() {
                continue;
            }
            let Some(rest) = left.checked_sub(arena.layout().segment_size) else { return };
            left = rest;
            // A file that no longer exists is tried once more, and counted, when its thread is
            // written.
            if let Some(bytes) = copy(arena, pinner, segment, Vec::new()) {
                segment.copy = Some(bytes);
                pinner.release(segment.index);
            }
        }
    }
}

/// The bytes of a pinned segment, in memory that may have been used before: fresh pages take longer
/// than copying into them.
pub(crate) fn copy(
    arena: &LiveArena,
    pinner: &Pinner<'_>,
    segment: &PinnedSegment,
    mut bytes: Vec<u8>,
) -> Option<Vec<u8>> {
    let words = arena.pool().segment(segment.index);
    arena.populate(segment.index);
    bytes.resize(words.len() * WORD_SIZE, 0);
    for (place, word) in bytes.as_chunks_mut::<WORD_SIZE>().0.iter_mut().zip(words) {
        *place = word.load(Relaxed).to_le_bytes();
    }
    fence(Acquire);
    (pinner.is_pinned(segment.index) && is_segment(&bytes, segment.number)).then_some(bytes)
}

/// Memory that is used again.
#[derive(Default)]
struct Spare {
    segments: Vec<Vec<u8>>,
    words: Vec<u64>,
}

/// A thread's segments.
struct ThreadSegments<'a> {
    arena: &'a LiveArena,
    pinner: &'a Pinner<'a>,
    segments: Vec<PinnedSegment>,
    /// The last one, whole or as far as it was written.
    newest: Option<(u64, Vec<u8>)>,
    /// Segments that were taken from us before they were copied.
    missing: u64,
}

impl<'a> ThreadSegments<'a> {
    /// Takes over what a thread has; copies and releases it unless it is too much.
    fn copy(
        arena: &'a LiveArena,
        pinner: &'a Pinner<'a>,
        thread: &mut PinnedThread,
        spare: &mut Spare,
    ) -> ThreadSegments<'a> {
        let segment_size = arena.layout().segment_size as usize;
        thread.end(arena, pinner, &mut spare.words);
        let newest = thread.newest.take().map(|(number, words)| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.resize(bytes.len().min(segment_size), 0);
            (number, bytes)
        });
        let segments = std::mem::take(&mut thread.segments);
        let mut all = ThreadSegments { arena, pinner, segments: Vec::new(), newest, missing: 0 };
        if segments.len() as u64 * arena.layout().segment_size > THREAD_COPY_MAX {
            thread.segments = segments.clone();
            all.segments = segments;
            return all;
        }
        for mut segment in segments {
            if segment.copy.is_none() {
                segment.copy = copy(arena, pinner, &segment, spare.segments.pop().unwrap_or_default());
                pinner.release(segment.index);
            }
            if segment.copy.is_some() {
                all.segments.push(segment);
            } else {
                all.missing += 1;
            }
        }
        all
    }
}

impl Segments for ThreadSegments<'_> {
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        for segment in &self.segments {
            match &segment.copy {
                Some(bytes) => take(segment.number, bytes)?,
                None => {
                    if let Some(bytes) = copy(self.arena, self.pinner, segment, Vec::new()) {
                        take(segment.number, &bytes)?;
                    }
                }
            }
        }
        match &self.newest {
            Some((number, bytes)) if is_segment(bytes, *number) => take(*number, bytes),
            _ => Ok(()),
        }
    }
}
