//! One thread's ring: looked through once before it is copied, as the thread's record comes before its events and
//! says what they are.

use std::io::{self, Write};

use everycall_format::arena::ThreadHeader;
use everycall_format::ect::ThreadRecord;
use everycall_format::event::{WORD_SIZE, Word, kind};

use crate::chunk_writer::ChunkWriter;
use crate::runs::{Place, Runs};
use crate::summary::{ThreadSummary, text_of};

/// A thread's segments, wherever they lie.
pub trait Segments {
    /// Gives each segment that is there, oldest first, with its number; its bytes are whole words. Segments that don't begin as
    /// [`is_segment`] wants are left out. Memory that is still being written may give another answer the next time.
    ///
    /// # Errors
    ///
    /// Those of `take`, at once; where reading fails, a segment isn't there.
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// A segment that holds what its number promises.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    /// Words, without the unwritten ones at the end of the newest.
    words: u64,
}

/// A thread's ring, looked through.
pub struct Ring<'a> {
    source: &'a dyn Segments,
    thread: ThreadHeader,
    segment_size: u64,
    segments: Vec<Segment>,
    first_ticks: Option<u64>,
    events: u64,
    holes: u64,
}

impl<'a> Ring<'a> {
    /// Looks through the ring of `thread`, whose segments have `segment_size` bytes.
    pub fn survey(source: &'a dyn Segments, thread: ThreadHeader, segment_size: u64) -> Ring<'a> {
        let mut ring =
            Ring { source, thread, segment_size, segments: vec![], first_ticks: None, events: 0, holes: 0 };
        let newest = thread.segment;
        let looked = source.each(&mut |number, bytes| {
            if let Some(start_ticks) = segment_start(bytes, number) {
                ring.first_ticks.get_or_insert(start_ticks);
                ring.survey_segment(bytes, number, number == newest);
            }
            Ok(())
        });
        debug_assert!(looked.is_ok(), "the closure has no errors");
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
        let tally = tally(written);
        self.events += tally.events;
        self.holes += tally.holes;
        self.segments.push(Segment { number, words: (written.len() / WORD_SIZE) as u64 });
    }

    /// Bytes that the thread ever wrote.
    #[must_use]
    pub fn written(&self) -> u64 {
        let newest = self.segments.last().map_or(0, |segment| segment.words * WORD_SIZE as u64);
        self.thread.segment.saturating_mul(self.segment_size).saturating_add(newest)
    }

    /// The thread's record: number `thread` of snapshot `snapshot`, in slot `slot` of process `pid`.
    #[must_use]
    pub fn thread_record(
        &self,
        snapshot: u32,
        thread: u32,
        pid: u32,
        slot: u32,
        name: [u8; 16],
    ) -> ThreadRecord {
        ThreadRecord {
            snapshot,
            thread,
            pid,
            tid: self.thread.tid,
            slot,
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
            fiber: self.thread.fiber,
            reserved: [0; 5],
        }
    }

    /// The thread in figures, whose record is `record`. `now` is the snapshot's time, in ticks.
    #[must_use]
    pub fn summary(
        &self,
        record: &ThreadRecord,
        now: u64,
        nanoseconds: impl FnOnce(u64) -> u64,
    ) -> ThreadSummary {
        ThreadSummary {
            tid: record.tid,
            name: text_of(&record.name),
            events: self.events,
            lost: self.holes.saturating_add(record.lost_busy),
            written: self.written(),
            overwritten: record.first_segment > 0,
            reach_ns: nanoseconds(now.saturating_sub(self.first_ticks.unwrap_or(now))),
        }
    }

    /// Writes the segments of the thread whose record is `record`, in runs of as many as an events chunk holds. `runs` is empty before
    /// and afterwards; one for all threads keeps its buffers.
    ///
    /// # Errors
    ///
    /// The output's.
    pub fn write_events<W: Write>(
        &self,
        file: &mut ChunkWriter<W>,
        runs: &mut Runs,
        record: &ThreadRecord,
    ) -> io::Result<()> {
        let mut surveyed = self.segments.iter().peekable();
        self.source.each(&mut |number, bytes| {
            // A program that our child left behind may still write: what has come since isn't announced.
            while surveyed.next_if(|segment| segment.number < number).is_some() {}
            let Some(segment) = surveyed.next_if(|segment| segment.number == number) else { return Ok(()) };
            let Some(bytes) = bytes.get(..segment.words as usize * WORD_SIZE) else { return Ok(()) };
            if segment_start(bytes, number).is_none() {
                return Ok(());
            }
            let place = Place { snapshot: record.snapshot, thread: record.thread, segment: number };
            runs.add(file, place, bytes)
        })?;
        runs.write(file)
    }
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries and exits, in whichever form.
    pub events: u64,
    /// Words that were reserved and never written.
    pub holes: u64,
}

/// Counts what `written` words of a segment hold.
#[must_use]
pub fn tally(written: &[u8]) -> Tally {
    let mut tally = Tally::default();
    for word in words(written) {
        match Word::decode(word) {
            word if word.is_event() => tally.events += 1,
            Word::Empty => tally.holes += 1,
            _ => {}
        }
    }
    tally
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD_SIZE>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Whether `bytes` begin as segment `number` does; otherwise another one is, or is being made, in its place.
#[must_use]
pub fn is_segment(bytes: &[u8], number: u64) -> bool {
    segment_start(bytes, number).is_some()
}

/// The ticks with which segment `number` begins.
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
