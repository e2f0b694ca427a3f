//! The newest events of a process in bounded memory, read while it runs: for a viewer, which wants
//! to see the last seconds again and again.
//!
//! Segments that were read are kept until newer ones need their room; those that were written last
//! stay longest. Threads that have ended go with their last segment.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::arena::{ClockReading, OpenCall, ThreadHeader};
use everycall_format::ect::{ThreadRecord, chunk, image_end, reason};
use everycall_format::event::WORD_SIZE;
use everycall_machine::clock;
use everycall_tracefile::{
    Child, ChunkWriter, Place, Runs, Summary, ThreadSummary, array, module_table, segment_head, tally,
    text_of,
};

use crate::arena::LiveArena;
use crate::error::LiveError;
use crate::follow::{Follower, RingOwner, Settled, Written};
use crate::images;
use crate::names;
use crate::process::ThreadNames;
use crate::take::nanoseconds_since;
use crate::write::Frame;

/// The only snapshot of the file.
const SNAPSHOT: u32 = 0;
/// Bytes that a segment takes beside its words, about.
const SEGMENT_EXTRA: usize = 256;
/// Time between two looks: while threads fill segments, and while nothing is written.
const PAUSES: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(20));
/// Looking takes at most this share of the time of one CPU: one of so many parts.
const SHARE: u32 = 16;
/// Time between two clock readings.
const CLOCK_PAUSE: Duration = Duration::from_millis(250);
/// Clock readings that are kept.
const READINGS_MAX: usize = 240;

/// The newest events of a process.
#[derive(Debug)]
pub struct Recent<'a> {
    follower: Follower<'a>,
    /// Bytes that may be kept, and those that are.
    most: usize,
    bytes: usize,
    threads: HashMap<RingOwner, Thread>,
    /// By the number of the look that changed it last, and a number of its own: a segment.
    order: BTreeMap<u64, (RingOwner, u64)>,
    next_change: u64,
    /// From here on, everything that was read is kept, in ticks.
    since: u64,
    readings: VecDeque<ClockReading>,
    read_clock: Instant,
    lost: u64,
    missed: u64,
    /// Whether nothing was read yet: what was overwritten before isn't lost to us.
    is_first: bool,
}

/// A thread, with what is kept of it.
#[derive(Clone, Debug, Default)]
struct Thread {
    header: ThreadHeader,
    open_calls: Vec<OpenCall>,
    segments: VecDeque<Segment>,
    /// Number of the segment behind the last one.
    next: u64,
    is_over: bool,
}

/// A segment, as far as it was written when it was read.
#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    words: Arc<Vec<u64>>,
    /// Lost events before it; `None` if it follows the one before.
    lost: Option<u64>,
    /// Its place in the order of changes, and when it was read, in ticks.
    change: u64,
    read_ticks: u64,
}

impl Segment {
    fn bytes(&self) -> usize {
        self.words.len() * WORD_SIZE + SEGMENT_EXTRA
    }
}

impl<'a> Recent<'a> {
    /// Begins with the oldest events in the rings. `most`: bytes of events that are kept.
    /// `settled` as for [`Follower::begin`].
    ///
    /// # Errors
    ///
    /// Too many other processes read this process's rings.
    pub fn begin(arena: &'a LiveArena, most: usize, settled: Settled) -> Result<Recent<'a>, LiveError> {
        Ok(Recent {
            follower: Follower::begin(arena, true, settled)?,
            most,
            bytes: 0,
            threads: HashMap::new(),
            order: BTreeMap::new(),
            next_change: 0,
            since: 0,
            readings: VecDeque::from([clock::read()]),
            read_clock: Instant::now(),
            lost: 0,
            missed: 0,
            is_first: true,
        })
    }

    /// Reads what was written since the last look. Returns how long the next one has time.
    pub fn look(&mut self) -> Duration {
        let begin = Instant::now();
        let now = clock::read();
        if self.read_clock.elapsed() >= CLOCK_PAUSE {
            self.read_clock = begin;
            self.keep_reading(now);
        }
        let mut is_much = false;
        let Recent { follower, threads, order, bytes, next_change, lost, is_first, .. } = self;
        follower.look(&mut |follower, open_calls, written| {
            let Written { owner, lost: missing, words, done } = written;
            let Some((_, number)) = segment_head(words.iter().copied()) else { return };
            let thread = threads.entry(owner).or_default();
            if let Some(header) = follower.header(owner) {
                thread.header = *header;
            }
            thread.open_calls.clear();
            thread.open_calls.extend_from_slice(open_calls);
            is_much |= done == 0;
            let mut missing = missing.filter(|_| !*is_first || !thread.segments.is_empty());
            *lost = lost.saturating_add(missing.unwrap_or(0));
            let is_same = thread.segments.back().is_some_and(|last| last.words_number() == number);
            if let Some(before) = is_same.then(|| thread.segments.pop_back()).flatten() {
                *bytes -= before.bytes();
                order.remove(&before.change);
                missing = before.lost;
            }
            // Its number has 32 bits in the segment itself.
            let number = thread.next_number(number);
            let change = *next_change;
            *next_change += 1;
            let segment =
                Segment { number, words: Arc::new(words), lost: missing, change, read_ticks: now.ticks };
            *bytes += segment.bytes();
            order.insert(change, (owner, number));
            thread.next = number + 1;
            thread.segments.push_back(segment);
        });
        let missed = self.follower.take_missed();
        self.missed = self.missed.saturating_add(if self.is_first { 0 } else { missed });
        self.is_first = false;
        self.make_room();
        let follower = &self.follower;
        self.threads.retain(|owner, thread| {
            thread.is_over = follower.is_over(*owner);
            if let Some(header) = follower.header(*owner) {
                thread.header = *header;
            }
            !thread.is_over || !thread.segments.is_empty()
        });
        let pause = if is_much { PAUSES.0 } else { PAUSES.1 };
        pause.max(begin.elapsed() * (SHARE - 1))
    }

    /// Drops the segments that were written longest ago, until there is room.
    fn make_room(&mut self) {
        while self.bytes > self.most && self.order.len() > 1 {
            let Some((_, (owner, number))) = self.order.pop_first() else { return };
            let Some(thread) = self.threads.get_mut(&owner) else { continue };
            // A thread's segments are written in their order.
            let is_it = thread.segments.front().is_some_and(|oldest| oldest.number == number);
            let Some(oldest) = is_it.then(|| thread.segments.pop_front()).flatten() else { continue };
            self.bytes -= oldest.bytes();
            // From the next one on, the thread is complete; without one, since it was looked at.
            let complete = thread.segments.front().map_or(oldest.read_ticks, Segment::begin_ticks);
            self.since = self.since.max(complete);
            // Losses before the next one are before everything that is kept.
            if let Some(next) = thread.segments.front_mut() {
                next.lost = None;
            }
        }
        // One before all that is kept stays.
        while self.readings.get(1).is_some_and(|second| second.ticks <= self.since) {
            self.readings.pop_front();
        }
    }

    fn keep_reading(&mut self, reading: ClockReading) {
        self.readings.push_back(reading);
        if self.readings.len() > READINGS_MAX {
            let half = READINGS_MAX / 2;
            let mut place = 0;
            self.readings.retain(|_| {
                place += 1;
                place > half || place % 2 == 1
            });
        }
    }

    /// All that is kept now. It shares the memory of the events.
    pub fn picture(&mut self) -> Picture {
        let now = clock::read();
        self.keep_reading(now);
        let mut threads: Vec<(RingOwner, Thread)> =
            self.threads.iter().map(|(owner, thread)| (*owner, thread.clone())).collect();
        threads.sort_by_key(|(owner, thread)| (thread.header.start_ticks, *owner));
        Picture {
            threads,
            readings: self.readings.iter().copied().collect(),
            ticks: now.ticks,
            since: self.since,
            lost: self.lost,
            missed: self.missed,
            bytes: self.bytes,
        }
    }
}

impl Segment {
    /// When it begins, in ticks; 0 if its words don't say.
    fn begin_ticks(&self) -> u64 {
        segment_head(self.words.iter().copied()).map_or(0, |(ticks, _)| ticks)
    }

    /// The bits of its number that are in its words.
    fn words_number(&self) -> u32 {
        self.number as u32
    }
}

impl Thread {
    /// The number of a segment of which the lower half is known: segments come in their order.
    fn next_number(&self, low: u32) -> u64 {
        let last = self.next.saturating_sub(1);
        let near = last & !u64::from(u32::MAX) | u64::from(low);
        if near < last { near + (1 << 32) } else { near }
    }
}

/// The newest events of a process, at one moment.
#[derive(Clone, Debug)]
pub struct Picture {
    threads: Vec<(RingOwner, Thread)>,
    readings: Vec<ClockReading>,
    /// When it was, in ticks.
    pub ticks: u64,
    /// From here on, nothing of what was read is missing, in ticks; 0 for all of it.
    pub since: u64,
    /// Events that were overwritten before they were read, since the first look.
    pub lost: u64,
    /// Threads that had ended before anything of them was read.
    pub missed: u64,
    /// Bytes of its events.
    pub bytes: usize,
}

impl Picture {
    /// The part of it between two moments, in ticks: whole segments. Calls that are open at the end
    /// of it are so in its last segments.
    #[must_use]
    pub fn between(&self, from: u64, to: u64) -> Picture {
        let mut part = self.clone();
        for (_, thread) in &mut part.threads {
            // A segment lasts until the next one begins.
            let begins: Vec<u64> = thread.segments.iter().map(Segment::begin_ticks).collect();
            let first = begins.partition_point(|begin| *begin <= from).saturating_sub(1);
            let end = begins.partition_point(|begin| *begin <= to);
            let last = thread.segments.len();
            if let Some(next) = thread.segments.get(end) {
                thread.next = next.number;
            }
            thread.segments.truncate(end);
            thread.segments.drain(..first.min(end));
            if let Some(first) = thread.segments.front_mut() {
                first.lost = None;
            }
            if end < last {
                thread.open_calls.clear();
            }
        }
        part
    }

    /// Writes it as a trace file: as it is, for who reads it at once, or `packed`. `tool_version`
    /// is everycall's; `has_ended`: the process has.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write<W: Write>(
        &self,
        arena: &LiveArena,
        output: W,
        tool_version: &str,
        packed: bool,
        has_ended: bool,
    ) -> io::Result<(Summary, W)> {
        let mut file = ChunkWriter::begin(output)?;
        let header = arena.header();
        let (ring_size, thread_capacity) = (arena.layout().ring_size, arena.layout().thread_capacity);
        let mut summary = Summary { ring_size, thread_capacity, ..Summary::of(&header) };
        let first = self.readings.first().copied().unwrap_or_else(clock::read);
        let after = self.readings.last().copied().unwrap_or(first);
        let frame = Frame { arena, before: first, after };
        frame.begin(
            &mut file,
            tool_version,
            if has_ended { image_end::ENDED } else { image_end::RUNNING },
        )?;
        file.chunk(chunk::CLOCK, &[&array(&self.readings)])?;
        let modules = arena.modules();
        file.chunk(chunk::MODULES, &[&module_table(modules.clone(), &mut summary)])?;
        let children = arena.children();
        summary.children = children.iter().map(Child::from).collect();
        file.chunk(chunk::CHILDREN, &[&array(&children)])?;
        let record = frame.snapshot(SNAPSHOT, reason::REQUEST, self.threads.len(), header.counters);
        file.chunk(chunk::SNAPSHOT, &[&record.to_bytes()])?;
        let dropped = arena.dropped();
        let names = ThreadNames::of(arena.process());
        let mut runs = if packed { Runs::default() } else { Runs::as_they_are() };
        for (index, ((slot, generation), thread)) in (0..).zip(&self.threads) {
            let ThreadHeader { tid, start_ticks, fiber, .. } = thread.header;
            let age_ns = nanoseconds_since(&arena.layout().start, &after, start_ticks);
            let is_living = !thread.is_over;
            let name = if is_living { names.name_now(&thread.header, age_ns) } else { thread.header.name };
            let first = thread.segments.front().map_or(thread.next, |segment| segment.number);
            let record = ThreadRecord {
                snapshot: SNAPSHOT,
                thread: index,
                pid: arena.process().pid,
                tid,
                slot: *slot,
                generation: *generation,
                start_ticks,
                first_segment: first,
                segments: thread.segments.len() as u64,
                name,
                unwound: thread.header.unwound,
                orphan_exits: thread.header.orphan_exits,
                lost_busy: thread.header.lost_busy,
                deep: thread.header.deep,
                dropped: dropped.of_slot(*slot),
                fiber,
                ..ThreadRecord::default()
            };
            let open_calls: &[OpenCall] = if thread.is_over { &[] } else { &thread.open_calls };
            file.chunk(chunk::THREAD, &[&record.to_bytes(), &array(open_calls)])?;
            let mut of = ThreadSummary { tid, name: text_of(&record.name), ..ThreadSummary::default() };
            for segment in &thread.segments {
                let place = Place { snapshot: SNAPSHOT, thread: index, segment: segment.number };
                if let Some(lost) = segment.lost {
                    runs.lose(&mut file, place, lost)?;
                    of.lost = of.lost.saturating_add(lost);
                }
                let bytes: Vec<_> = segment.words.iter().map(|word| word.to_le_bytes()).collect();
                let bytes = bytes.as_flattened();
                if packed {
                    of.events += tally(bytes).events;
                }
                runs.add(&mut file, place, bytes)?;
            }
            runs.write(&mut file)?;
            summary.threads.push(of);
        }
        dropped.add_to(&mut summary);
        names::write(arena, &after, &mut file, &mut summary)?;
        for (kind, [record, functions]) in dropped.chunks(SNAPSHOT) {
            file.chunk(kind, &[&record, &functions])?;
        }
        images::write_deleted(&mut file, arena.process().pid, &modules, &mut summary.warnings)?;
        let (size, output) = file.end()?;
        summary.file_size = size;
        Ok((summary, output))
    }
}
