//! A session's events, written to a file while the process runs: more than its rings hold.
//!
//! Each pass copies the segments that threads have finished since the one before. A segment is
//! pinned only while it is copied, so the process needs no memory beyond its rings. Segments that a
//! thread overwrites before a pass finds them are missing, with the number of their events.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::arena::{ClockReading, OpenCall, ThreadHeader, thread_state};
use everycall_format::ect::{SnapshotRecord, ThreadRecord, chunk, image_end, reason};
use everycall_format::event::WORD_SIZE;
use everycall_machine::clock;
use everycall_tracefile::{
    Child, ChunkWriter, Dropped, Place, Progress, Runs, StreamedThread, Summary, array, is_segment,
    module_table, tally, write_stamps,
};

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::follow::RingOwner;
use crate::images;
use crate::names;
use crate::pinner::Pinner;
use crate::process::ThreadNames;
use crate::take::{PinnedSegment, SessionFacts, nanoseconds_since, session_record, take};
use crate::write::{Frame, copy};

/// The only snapshot of the file.
const SNAPSHOT: u32 = 0;
/// Time between two clock readings in the file.
const CLOCK_PAUSE: Duration = Duration::from_secs(1);
/// Time between two passes.
const PAUSES: RangeInclusive<Duration> = Duration::from_micros(250)..=Duration::from_millis(4);
/// Segments that are copied before they are compressed and written.
const SEGMENTS_AT_ONCE: usize = 64;

/// A thread of the process.
struct SessionThread {
    streamed: StreamedThread,
    /// Whether the session has it; decided with its first segment.
    is_wanted: Option<bool>,
}

/// Why a stream can't begin or go on.
#[derive(Debug)]
pub enum StreamError {
    /// The process's rings can't be read.
    Rings(LiveError),
    /// The output can't be written.
    Output(io::Error),
}

impl From<LiveError> for StreamError {
    fn from(error: LiveError) -> StreamError {
        StreamError::Rings(error)
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> StreamError {
        StreamError::Output(error)
    }
}

/// The stream of a session.
pub struct SessionStream<'a, W: Write> {
    arena: &'a LiveArena,
    pinner: Pinner<'a>,
    file: ChunkWriter<W>,
    runs: Runs,
    is_wanted: Box<dyn Fn(&ThreadHeader) -> bool + 'a>,
    threads: HashMap<RingOwner, SessionThread>,
    next_index: u32,
    /// Threads that had segments and no slot in the last pass.
    unseen: HashSet<RingOwner>,
    /// How many modules were loaded when their table was last written.
    modules: u64,
    before: ClockReading,
    clock_due: Instant,
    pause: Duration,
    progress: Progress,
}

impl<'a, W: Write> SessionStream<'a, W> {
    /// Begins with the segments that threads are writing now. `is_wanted` chooses threads;
    /// `tool_version` is everycall's. The output should be buffered.
    ///
    /// # Errors
    ///
    /// Too many other processes read this process's rings; or the output's.
    pub fn begin(
        arena: &'a LiveArena,
        output: W,
        tool_version: &str,
        facts: &SessionFacts,
        is_wanted: impl Fn(&ThreadHeader) -> bool + 'a,
    ) -> Result<SessionStream<'a, W>, StreamError> {
        let pinner = Pinner::join(arena)?;
        let before = clock::read();
        let mut stream = SessionStream {
            arena,
            pinner,
            file: ChunkWriter::begin(output)?,
            runs: Runs::default(),
            is_wanted: Box::new(is_wanted),
            threads: HashMap::new(),
            next_index: 0,
            unseen: HashSet::new(),
            modules: 0,
            before,
            clock_due: Instant::now() + CLOCK_PAUSE,
            pause: *PAUSES.start(),
            progress: Progress::default(),
        };
        let current = arena.current_threads();
        let found = stream.segments(&mut |_, _| true);
        for (owner, header) in current {
            let last = found.iter().find(|found| (found.owner, found.number) == (owner, header.segment));
            let mut known = stream.new_thread();
            known.streamed.begin_at(header.segment, last.map(|last| last.before));
            stream.threads.insert(owner, known);
        }
        // Events that ended threads have left are no part of the session.
        for found in
            found.iter().filter(|found| !stream.threads.contains_key(&found.owner)).collect::<Vec<_>>()
        {
            let mut known = stream.new_thread();
            known.is_wanted = Some(false);
            stream.threads.insert(found.owner, known);
        }
        let frame = stream.frame(before);
        stream.file.chunk(chunk::META, &[&frame.meta(tool_version)])?;
        let mut readings = frame.clock_readings();
        // The end is the beginning: it is there twice.
        readings.pop();
        stream.file.chunk(chunk::CLOCK, &[&array(&readings)])?;
        let (process, command) = frame.process();
        stream.file.chunk(chunk::PROCESS, &[&process.to_bytes(), &command])?;
        let stamps = arena.header().stamps;
        write_stamps(&mut stream.file, stamps, stamps)?;
        arena.write_calibration(&mut stream.file)?;
        stream.snapshot(0, 0)?;
        // A file whose writing was cut short shows the session, too.
        stream.session(facts, u64::MAX)?;
        stream.write_modules()?;
        stream.file.flush()?;
        Ok(stream)
    }

    /// The output, for example to give a file its name.
    pub fn output(&mut self) -> &mut W {
        self.file.output()
    }

    /// The progress until now.
    pub fn progress(&self) -> Progress {
        Progress { bytes: self.file.position(), ..self.progress }
    }

    /// Writes what threads have finished since the last pass. Returns how long the next one has
    /// time: less, the more of a ring was written.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn pass(&mut self) -> io::Result<Duration> {
        if self.arena.loaded_modules() != self.modules {
            self.write_modules()?;
        }
        // Read first: what is finished by then is found, or was overwritten.
        let current: HashMap<RingOwner, ThreadHeader> = self.arena.current_threads().into_iter().collect();
        for (owner, header) in &current {
            if let Some(known) = self.threads.get_mut(owner) {
                known.streamed.header = *header;
            }
        }
        // A thread without a slot has ended, or has just begun: then it has one at the next pass.
        let unseen = std::mem::take(&mut self.unseen);
        let mut without_slot = HashSet::new();
        let mut is_finished = |owner: RingOwner, number: u64| match current.get(&owner) {
            None => {
                without_slot.insert(owner);
                unseen.contains(&owner) || self.threads.contains_key(&owner)
            }
            Some(header) if header.state == thread_state::ENDED => number <= header.segment,
            Some(header) => number < header.segment,
        };
        let found = self.segments(&mut is_finished);
        self.unseen = without_slot;
        let count = found.len();
        let of_rings = found.chunk_by(|one, next| one.owner == next.owner).map(|own| {
            let ring = own.first().and_then(|own| current.get(&own.owner)).map_or(0, |now| now.ring_segments);
            (own.len() as u32, ring.max(1))
        });
        let is_more = |(count, ring): (u32, u32), share: u32| count > ring / share;
        let (is_much, is_some) = of_rings
            .fold((false, false), |(much, some), own| (much || is_more(own, 3), some || is_more(own, 12)));
        self.pause = match (is_much, is_some) {
            (true, _) => self.pause / 2,
            (false, true) => self.pause,
            (false, false) => self.pause * 2,
        }
        .clamp(*PAUSES.start(), *PAUSES.end());
        for part in found.chunks(SEGMENTS_AT_ONCE) {
            for found in part {
                if let Some(bytes) = self.copy(found) {
                    self.keep(found, current.get(&found.owner), &bytes)?;
                }
            }
            self.runs.write(&mut self.file)?;
        }
        if self.clock_due <= Instant::now() {
            self.file.chunk(chunk::CLOCK, &[&array(&[clock::read()])])?;
            self.clock_due = Instant::now() + CLOCK_PAUSE;
        }
        if count > 0 {
            self.file.flush()?;
        }
        self.forget(&current);
        Ok(self.pause)
    }

    /// Writes what is left, and everything about the session. `has_ended`: the process has.
    ///
    /// # Errors
    ///
    /// Too many other processes read this process's rings; or the output's.
    pub fn finish(mut self, facts: &SessionFacts, has_ended: bool) -> Result<(Summary, W), StreamError> {
        self.pass()?;
        let last = take(self.arena, None)?;
        let after = last.after;
        let names = ThreadNames::of(self.arena.process());
        let dropped = self.arena.dropped();
        let mut written = HashSet::new();
        for thread in &last.threads {
            let owner = (thread.slot, thread.header.generation);
            let newest = thread.newest.as_ref().map(|(number, _)| *number);
            for segment in thread.segments.iter().filter(|segment| Some(segment.number) != newest) {
                let found = self.found(owner, segment.number, segment.index);
                if let Some(bytes) = copy(self.arena, &last.pinner, segment, Vec::new()) {
                    self.keep(&found, Some(&thread.header), &bytes)?;
                }
            }
            if let (Some((number, words)), Some(segment)) = (&thread.newest, thread.segments.last()) {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let found = self.found(owner, *number, segment.index);
                self.keep(&found, Some(&thread.header), &bytes)?;
            }
            self.runs.write(&mut self.file)?;
            if let Some(known) = self.threads.get_mut(&owner) {
                known.streamed.header = thread.header;
            }
            self.thread(owner, &thread.open_calls, &dropped, None)?;
            written.insert(owner);
        }
        drop(last);
        self.runs.write(&mut self.file)?;
        let mut others: Vec<RingOwner> = self.threads.keys().copied().collect();
        others.retain(|owner| !written.contains(owner));
        others.sort_unstable();
        for owner in others {
            self.thread(owner, &[], &dropped, Some((&names, &after)))?;
        }
        self.end(facts, &after, dropped, has_ended)
    }

    fn end(
        mut self,
        facts: &SessionFacts,
        after: &ClockReading,
        dropped: Dropped,
        has_ended: bool,
    ) -> Result<(Summary, W), StreamError> {
        let layout = self.arena.layout();
        let (ring_size, thread_capacity) = (layout.ring_size, layout.thread_capacity);
        let mut summary = Summary { ring_size, thread_capacity, ..Summary::of(&self.arena.header()) };
        let mut threads: Vec<&StreamedThread> =
            self.threads.values().map(|known| &known.streamed).filter(|thread| thread.is_announced).collect();
        threads.sort_by_key(|thread| thread.index);
        summary.threads = threads.into_iter().map(StreamedThread::summary).collect();
        let count = summary.threads.len() as u32;
        self.file.chunk(chunk::CLOCK, &[&array(&[*after])])?;
        let (mut process, command) = self.frame(*after).process();
        process.ending = if has_ended { image_end::ENDED } else { image_end::RUNNING };
        self.file.chunk(chunk::PROCESS, &[&process.to_bytes(), &command])?;
        self.snapshot(after.ticks, count)?;
        let modules = self.arena.modules();
        self.file.chunk(chunk::MODULES, &[&module_table(modules.clone(), &mut summary)])?;
        let children = self.arena.children();
        summary.children = children.iter().map(Child::from).collect();
        self.file.chunk(chunk::CHILDREN, &[&array(&children)])?;
        self.session(facts, after.ticks)?;
        let is_wanted = |slot| self.arena.thread(slot).is_some_and(|header| (self.is_wanted)(&header));
        let dropped = dropped.since(facts.before.as_ref(), is_wanted);
        dropped.add_to(&mut summary);
        names::write(self.arena, after, &mut self.file, &mut summary)?;
        for (kind, [record, functions]) in dropped.chunks(SNAPSHOT) {
            self.file.chunk(kind, &[&record, &functions])?;
        }
        images::write_deleted(&mut self.file, self.arena.process().pid, &modules, &mut summary.warnings)?;
        let (size, output) = self.file.end()?;
        summary.file_size = size;
        Ok((summary, output))
    }

    fn frame(&self, after: ClockReading) -> Frame<'a> {
        Frame { arena: self.arena, before: self.before, after }
    }

    fn snapshot(&mut self, ticks: u64, threads: u32) -> io::Result<()> {
        let layout = self.arena.layout();
        let record = SnapshotRecord {
            snapshot: SNAPSHOT,
            reason: reason::STREAM,
            pid: self.arena.process().pid,
            threads,
            ticks,
            ring_size: layout.ring_size,
            segment_size: layout.segment_size,
            counters: if ticks == 0 { Default::default() } else { self.arena.header().counters },
        };
        self.file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])
    }

    fn session(&mut self, facts: &SessionFacts, end_ticks: u64) -> io::Result<()> {
        self.file.chunk(chunk::SESSION, &[&session_record(facts, end_ticks)])
    }

    fn write_modules(&mut self) -> io::Result<()> {
        self.modules = self.arena.loaded_modules();
        let table = module_table(self.arena.modules(), &mut Summary::default());
        self.file.chunk(chunk::MODULES, &[&table])
    }

    fn new_thread(&mut self) -> SessionThread {
        self.next_index += 1;
        SessionThread { streamed: StreamedThread::new(self.next_index - 1), is_wanted: None }
    }

    /// The segments that aren't written yet and for which `is_finished` returns true, each thread's
    /// in order.
    fn segments(&self, is_finished: &mut dyn FnMut(RingOwner, u64) -> bool) -> Vec<PoolSegment> {
        let pool = self.arena.pool();
        let mut all = Vec::new();
        for index in 0..self.arena.segments_taken() {
            let Some(entry) = pool.entries.get(index as usize).filter(|entry| entry.pins.load(Acquire) != 0)
            else {
                continue;
            };
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            let number = entry.number.load(Relaxed);
            let known = self.threads.get(&owner);
            let is_new = known.is_none_or(|known| number >= known.streamed.next)
                && known.is_none_or(|known| known.is_wanted != Some(false));
            if is_new && is_finished(owner, number) {
                all.push(PoolSegment { owner, number, index, before: entry.events_before.load(Relaxed) });
            }
        }
        all.sort_unstable_by_key(|found| (found.owner, found.number));
        all
    }

    fn found(&self, owner: RingOwner, number: u64, index: u32) -> PoolSegment {
        let pool = self.arena.pool();
        let before = pool.entries.get(index as usize).map_or(0, |entry| entry.events_before.load(Relaxed));
        PoolSegment { owner, number, index, before }
    }

    /// Copies a segment, unless it is overwritten meanwhile.
    fn copy(&self, found: &PoolSegment) -> Option<Vec<u8>> {
        if !self.pinner.pin(found.index) {
            return None;
        }
        let pool = self.arena.pool();
        let is_it = pool.entries.get(found.index as usize).is_some_and(|entry| {
            let owner = (entry.slot.load(Relaxed), entry.generation.load(Relaxed));
            (owner, entry.number.load(Relaxed)) == (found.owner, found.number)
        });
        let segment = PinnedSegment { index: found.index, number: found.number, copy: None };
        let bytes = if is_it { copy(self.arena, &self.pinner, &segment, Vec::new()) } else { None };
        self.pinner.release(found.index);
        bytes
    }

    /// Writes a segment. Others of its thread that come before it, and weren't written, are lost.
    fn keep(&mut self, found: &PoolSegment, header: Option<&ThreadHeader>, bytes: &[u8]) -> io::Result<()> {
        let PoolSegment { owner, number, before, .. } = *found;
        if !is_segment(bytes, number) {
            return Ok(());
        }
        if !self.threads.contains_key(&owner) {
            let new = self.new_thread();
            self.threads.insert(owner, new);
        }
        let Some(known) = self.threads.get_mut(&owner) else { return Ok(()) };
        if number < known.streamed.next {
            return Ok(());
        }
        if let Some(header) = header {
            known.streamed.header = *header;
        }
        let is_wanted = *known.is_wanted.get_or_insert_with(|| (self.is_wanted)(&known.streamed.header));
        if !is_wanted {
            return Ok(());
        }
        if !known.streamed.is_announced {
            known.streamed.announce();
            let pid = self.arena.process().pid;
            let record =
                ThreadRecord { first_segment: number, ..known.streamed.record(SNAPSHOT, pid, owner) };
            self.file.chunk(chunk::THREAD, &[&record.to_bytes(), &array::<OpenCall>(&[])])?;
        }
        let place = Place { snapshot: SNAPSHOT, thread: known.streamed.index, segment: number };
        if let Some(lost) = known.streamed.lose(number, before, u64::MAX) {
            self.runs.lose(&mut self.file, place, lost)?;
            self.progress.lost = self.progress.lost.saturating_add(lost);
        }
        let mut written = bytes;
        while let Some(rest) = written.strip_suffix(&[0; WORD_SIZE]) {
            written = rest;
        }
        let tally = tally(written);
        known.streamed.take(number, before, &tally);
        self.progress.events += tally.events;
        self.runs.add(&mut self.file, place, written)
    }

    /// Writes a thread's last chunk. `name`: where its newest name is found, unless its header has
    /// it.
    fn thread(
        &mut self,
        owner: RingOwner,
        open_calls: &[OpenCall],
        dropped: &Dropped,
        name: Option<(&ThreadNames, &ClockReading)>,
    ) -> io::Result<()> {
        let Some(known) = self.threads.get(&owner).filter(|known| known.streamed.is_announced) else {
            return Ok(());
        };
        let header = &known.streamed.header;
        let mut record = known.streamed.record(SNAPSHOT, self.arena.process().pid, owner);
        if let Some((names, now)) = name.filter(|_| header.state == thread_state::USED && header.fiber == 0) {
            let age_ns = nanoseconds_since(&self.arena.layout().start, now, header.start_ticks);
            record.name = names.new_name(header.tid, age_ns, &header.name).unwrap_or(record.name);
        }
        let is_there = self.arena.thread(owner.0).is_some_and(|now| now.generation == owner.1);
        record.dropped = if is_there { dropped.of_slot(owner.0) } else { 0 };
        self.file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(open_calls)])
    }

    /// Forgets unwanted threads that are gone, so that programs with many threads don't fill the
    /// memory.
    fn forget(&mut self, current: &HashMap<RingOwner, ThreadHeader>) {
        let pool = self.arena.pool();
        let used = pool.entries.iter().filter(|entry| entry.pins.load(Relaxed) != 0);
        let there: HashSet<RingOwner> =
            used.map(|entry| (entry.slot.load(Relaxed), entry.generation.load(Relaxed))).collect();
        self.threads.retain(|owner, known| {
            known.is_wanted != Some(false) || current.contains_key(owner) || there.contains(owner)
        });
    }
}

/// A segment of the pool: whose it is, its number in that thread's ring, its place, and how many
/// events came before it.
#[derive(Clone, Copy, Debug)]
struct PoolSegment {
    owner: RingOwner,
    number: u64,
    index: u32,
    before: u64,
}

impl<W: Write> std::fmt::Debug for SessionStream<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionStream").field("progress", &self.progress).finish_non_exhaustive()
    }
}
