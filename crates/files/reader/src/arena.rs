//! Arenas: the shared memory of a traced process, live or left behind, read in place.
//!
//! Only requested parts are read, so an arena of many gigabytes that is mostly untouched costs
//! nothing. Memory that a running process writes may change between two reads; a segment that was
//! overwritten meanwhile is detected and left out.

use std::collections::HashSet;
use std::io;

use everycall_format::Wire;
use everycall_format::arch::Machine;
use everycall_format::arena::{
    ARENA_MAGIC, ARENA_VERSION, ArenaHeader, ChildEntry, ClockReading, ModuleEntry, SegmentEntry,
    ThreadHeader, thread_state,
};
use everycall_format::calibration::{CALIBRATION_OFFSET, Calibration};
use everycall_format::frame::FrameNames;
use everycall_format::{arena, event};

use crate::error::{Error, Warning};
use crate::event::begins_segment;
use crate::model::{
    Ending, OpenCall, Process, Reason, Recording, SegmentCursor, Snapshot, Source, Stamps, Thread, ThreadKey,
};
use crate::segments::trim;
use crate::source::ReadAt;
use crate::{calibration, frames, payload, processes};

/// An arena whose tables were read. Events are read when they are wanted.
pub struct ArenaImage<'a> {
    bytes: Box<dyn ReadAt + 'a>,
    header: ArenaHeader,
    recording: Recording,
    /// The segments that contain events, grouped by thread, in the order of their numbers.
    segments: Vec<Segment>,
    /// Which open-call stack each thread has.
    stacks: Vec<Option<u32>>,
}

/// Limit on thread slots that are read; real arenas have some thousands.
const THREADS_MAX: u32 = 1 << 16;
/// Limit on segments that are read.
const SEGMENTS_MAX: u32 = 1 << 26;
/// Limit on bytes of paths that are read; a real arena has room for a megabyte.
const PATHS_MAX: u64 = 16 << 20;

/// A segment's place and its thread.
#[derive(Clone, Copy, Debug)]
struct Segment {
    index: u32,
    slot: u32,
    generation: u32,
    number: u64,
}

impl<'a> ArenaImage<'a> {
    /// Reads the tables of the arena in `bytes`. The arena has one snapshot, taken now.
    ///
    /// # Errors
    /// Where there is no arena, or one whose sizes contradict each other or the bytes that are there.
    pub fn open(bytes: impl ReadAt + 'a) -> Result<ArenaImage<'a>, Error> {
        let bytes: Box<dyn ReadAt + 'a> = Box::new(bytes);
        let available = bytes.size()?;
        let header: ArenaHeader = read(bytes.as_ref(), 0).ok_or(Error::NotAnArena { available })?;
        if header.magic == ARENA_MAGIC && header.version != ARENA_VERSION {
            return Err(Error::ArenaVersion(header.version));
        }
        if !header.is_consistent(available) {
            return Err(Error::NotAnArena { available });
        }
        let mut image =
            ArenaImage { bytes, header, recording: Recording::default(), segments: vec![], stacks: vec![] };
        image.read_tables()?;
        Ok(image)
    }

    /// The arena's header as it was at the beginning.
    #[must_use]
    pub fn header(&self) -> &ArenaHeader {
        &self.header
    }

    /// The module table as the arena contains it, with the bytes of its paths.
    ///
    /// # Errors
    /// Where reading fails.
    pub fn module_entries(&self) -> Result<(Vec<ModuleEntry>, Vec<u8>), Error> {
        let count = self.header.modules.min(self.header.module_capacity).min(payload::TABLE_MAX as u32);
        let entries = self.table(self.header.modules_offset, count)?;
        let paths = self.header.paths.min(self.header.paths_size).min(PATHS_MAX);
        let paths = self.part(self.header.paths_offset, paths)?;
        Ok((entries, paths))
    }

    /// Reads bytes of the arena. Whether they are all there.
    #[must_use]
    pub fn read_bytes(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.bytes.read_full_at(at, bytes).is_ok_and(|count| count == bytes.len())
    }

    /// The table of children as the arena contains it.
    ///
    /// # Errors
    /// Where reading fails.
    pub fn child_entries(&self) -> Result<Vec<ChildEntry>, Error> {
        let count = self.header.children.min(self.header.child_capacity).min(payload::TABLE_MAX as u32);
        self.table(self.header.children_offset, count)
    }

    /// The open-call stack of a thread as the arena contains it, without the sentinel.
    #[must_use]
    pub fn open_call_entries(&self, key: ThreadKey) -> Vec<arena::OpenCall> {
        /// Entries that are read together; most stacks are shallow.
        const BATCH: u64 = 256;
        let Some(stack) = self.stacks.get(key.thread).copied().flatten() else { return Vec::new() };
        let capacity = u64::from(self.header.open_call_capacity);
        let first_at = self.header.open_calls_at(stack);
        let mut entries = Vec::new();
        let mut next = 1;
        while next < capacity {
            let size = arena::OpenCall::SIZE as u64;
            let count = BATCH.min(capacity - next);
            let Ok(bytes) = self.part(first_at + next * size, count * size) else { break };
            for entry in bytes.chunks_exact(arena::OpenCall::SIZE).filter_map(arena::OpenCall::read) {
                if entry.word == 0 {
                    return entries;
                }
                entries.push(entry);
            }
            if (bytes.len() as u64) < count * size {
                break;
            }
            next += count;
        }
        entries
    }

    /// Adds the frames by id, if there are any.
    fn read_frames(&mut self) {
        let at = self.header.frames_offset;
        let header = self.part(at, FrameNames::SIZE as u64).ok();
        let header = header.as_deref().and_then(FrameNames::read).filter(|header| header.is_used != 0);
        if let Some(header) = header {
            let used = header.used.min(self.header.frames_size.saturating_sub(FrameNames::SIZE as u64));
            let records = self.part(at + FrameNames::SIZE as u64, used).unwrap_or_default();
            frames::add(&records, header.lost, 0, &mut self.recording);
            if !self.recording.frames.is_empty() {
                self.recording.modules.push(frames::module());
            }
        }
    }

    /// Adds what the hooks cost, if it was measured. What makes no sense is as if it wasn't.
    fn read_calibration(&mut self) {
        let bytes = self.part(CALIBRATION_OFFSET, Calibration::SIZE as u64).ok();
        let record = bytes.as_deref().and_then(Calibration::read).filter(|record| record.record_size != 0);
        if let Some(record) = record {
            let _ = calibration::add(&record, 0, &mut self.recording);
        }
    }

    fn read_tables(&mut self) -> Result<(), Error> {
        let (entries, paths) = self.module_entries()?;
        self.recording.modules = payload::modules_of(entries.into_iter(), &paths);
        self.read_frames();
        self.read_calibration();
        self.recording.processes.push(Process {
            pid: self.header.target_pid,
            start_ticks: Some(self.header.start.ticks),
            ending: Ending::Running,
            machine: Machine::of_record(self.header.machine),
            modules: 0..self.recording.modules.len(),
            stamps: Stamps::of(self.header.stamps),
            ..Process::default()
        });
        processes::number_files(&mut self.recording);
        payload::add_children(self.child_entries()?.into_iter(), &mut self.recording);
        let missing = self.header.children.saturating_sub(self.header.child_capacity);
        if missing > 0 {
            Warning::ChildrenMissing { count: missing.into() }.add_to(&mut self.recording.warnings);
        }
        if self.header.start != ClockReading::default() {
            self.recording.clock.push(self.header.start);
        }
        self.segments = self.read_segment_table()?;
        let taken = self.header.threads.min(self.header.thread_capacity).min(THREADS_MAX);
        let mut threads = Vec::new();
        let mut seen = HashSet::new();
        for slot in 0..taken {
            let Some((thread, stack)) = self.thread(slot) else { continue };
            threads.push(thread);
            // Each stack is one thread's.
            self.stacks.push(stack.filter(|stack| seen.insert(*stack)));
        }
        self.recording.snapshots.push(Snapshot {
            number: 0,
            reason: Reason::Request,
            process: 0,
            pid: self.header.target_pid,
            ticks: None,
            ring_size: self.header.ring_size,
            segment_size: self.header.segment_size,
            counters: self.header.counters,
            threads,
        });
        frames::name_threads(&mut self.recording);
        Ok(())
    }

    fn read_segment_table(&self) -> Result<Vec<Segment>, Error> {
        /// Entries that are read together.
        const BATCH: u32 = 1024;
        let taken = self.header.segments_taken.min(self.header.segment_capacity).min(SEGMENTS_MAX);
        let mut segments = Vec::new();
        for first in (0..taken).step_by(BATCH as usize) {
            let entries: Vec<SegmentEntry> =
                self.table(self.header.segment_entry_at(first), BATCH.min(taken - first))?;
            if entries.is_empty() {
                break;
            }
            let readable = (first..).zip(&entries).filter(|(_, entry)| entry.is_readable());
            segments.extend(readable.map(|(index, entry)| {
                let SegmentEntry { slot, generation, number, .. } = *entry;
                Segment { index, slot, generation, number }
            }));
        }
        let place = |segment: &Segment| (segment.slot, segment.generation, segment.number);
        segments.sort_unstable_by_key(place);
        segments.dedup_by_key(|segment| place(segment));
        Ok(segments)
    }

    /// The segments of a thread, oldest first.
    fn segments_of(&self, slot: u32, generation: u32) -> &[Segment] {
        let whose = (slot, generation);
        let first = self.segments.partition_point(|segment| (segment.slot, segment.generation) < whose);
        let rest = &self.segments[first..];
        &rest[..rest.partition_point(|segment| (segment.slot, segment.generation) == whose)]
    }

    /// A thread, and the index of its open-call stack.
    fn thread(&self, slot: u32) -> Option<(Thread, Option<u32>)> {
        let header: ThreadHeader = read(self.bytes.as_ref(), self.header.thread_at(slot))?;
        let segments = self.segments_of(slot, header.generation);
        let first_segment = segments.first().map_or(header.segment, |segment| segment.number);
        let newest = segments.last().map_or(header.segment, |segment| segment.number);
        let stack = header.open_calls.checked_sub(1).filter(|stack| *stack < self.header.thread_capacity);
        let thread = || Thread {
            pid: self.header.target_pid,
            tid: header.tid,
            slot,
            generation: header.generation,
            name: payload::unpadded(&header.name),
            start_ticks: header.start_ticks,
            first_segment,
            segments: (newest - first_segment).saturating_add(1),
            unwound: header.unwound,
            orphan_exits: header.orphan_exits,
            lost_busy: header.lost_busy,
            deep: header.deep,
            fiber: (header.fiber != 0).then_some(header.fiber),
            dropped: 0,
            is_sampled: false,
        };
        matches!(header.state, thread_state::USED | thread_state::ENDED).then(|| (thread(), stack))
    }

    /// `count` entries of a table.
    fn table<T: Wire>(&self, at: u64, count: u32) -> Result<Vec<T>, Error> {
        let bytes = self.part(at, u64::from(count) * T::SIZE as u64)?;
        Ok(bytes.chunks_exact(T::SIZE).filter_map(T::read).collect())
    }

    /// Up to `length` bytes, as many as are there.
    fn part(&self, at: u64, length: u64) -> Result<Vec<u8>, Error> {
        let length = length.min(self.bytes.size()?.saturating_sub(at));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(io::Error::from)?;
        bytes.resize(length, 0);
        let count = self.bytes.read_full_at(at, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

impl Source for ArenaImage<'_> {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn open_calls(&self, key: ThreadKey) -> Vec<OpenCall> {
        payload::open_calls(self.open_call_entries(key).into_iter())
    }

    fn segments(&self, key: ThreadKey) -> Box<dyn SegmentCursor + '_> {
        let thread =
            self.recording.snapshots.get(key.snapshot).and_then(|snapshot| snapshot.threads.get(key.thread));
        let segments = thread.map_or(&[][..], |thread| self.segments_of(thread.slot, thread.generation));
        Box::new(ArenaSegments { image: self, tid: thread.map_or(0, |thread| thread.tid), segments })
    }
}

impl std::fmt::Debug for ArenaImage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArenaImage").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Goes through a thread's ring.
struct ArenaSegments<'i> {
    image: &'i ArenaImage<'i>,
    tid: u32,
    /// The segments that weren't read yet.
    segments: &'i [Segment],
}

impl ArenaSegments<'_> {
    /// Copies a segment, if it is still there afterwards.
    fn copy(&self, segment: &Segment, words: &mut Vec<u64>) -> Result<(), Warning> {
        let header = &self.image.header;
        let (at, number) = (header.segment_at(segment.index), segment.number);
        let unreadable = |error: std::io::Error| Warning::Unreadable { at, kind: error.kind() };
        // Its record first, and once more afterwards: a writer clears a segment from its front
        // before it writes there again.
        let mut before = [0; 4 * event::WORD_SIZE];
        self.image.bytes.read_full_at(at, &mut before).map_err(unreadable)?;
        let mut bytes = vec![0; header.segment_size as usize];
        let count = self.image.bytes.read_full_at(at, &mut bytes).map_err(unreadable)?;
        words.clear();
        words.extend(bytes[..count].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        if !begins_segment(words, number) {
            return Err(Warning::SegmentInvalid { tid: self.tid, segment: number });
        }
        let mut after = [0; 4 * event::WORD_SIZE];
        self.image.bytes.read_full_at(at, &mut after).map_err(unreadable)?;
        if before != after || bytes.get(..after.len()) != Some(&after[..]) {
            return Err(Warning::SegmentOverwritten { tid: self.tid, segment: number });
        }
        Ok(())
    }

    /// Reads again the words of the newest segment that were zero: a running thread may have been
    /// writing their events.
    fn look_again(&self, segment: &Segment, words: &mut [u64]) {
        if words.iter().all(|word| *word as u32 != 0) {
            return;
        }
        let mut bytes = vec![0; words.len() * event::WORD_SIZE];
        let at = self.image.header.segment_at(segment.index);
        if let Ok(count) = self.image.bytes.read_full_at(at, &mut bytes) {
            let again = bytes[..count].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            for (word, now) in words.iter_mut().zip(again).filter(|(word, _)| **word as u32 == 0) {
                *word = now;
            }
        }
    }
}

impl SegmentCursor for ArenaSegments<'_> {
    fn next_segment(&mut self, words: &mut Vec<u64>) -> Option<Result<u64, Warning>> {
        let (segment, rest) = self.segments.split_first()?;
        self.segments = rest;
        Some(self.copy(segment, words).map(|()| {
            if rest.is_empty() {
                trim(words);
                self.look_again(segment, words);
            }
            segment.number
        }))
    }
}

/// The structure at `at`.
fn read<T: Wire>(bytes: &dyn ReadAt, at: u64) -> Option<T> {
    let mut buffer = vec![0; T::SIZE];
    let count = bytes.read_full_at(at, &mut buffer).ok()?;
    T::read(&buffer[..count])
}
