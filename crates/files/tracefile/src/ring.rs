//! One thread's ring. It is scanned once before it is copied, because the thread's record comes
//! before its events and counts them.

use std::io::{self, Write};

use everycall_format::arena::ThreadHeader;
use everycall_format::ect::ThreadRecord;
use everycall_format::event::{WORD_SIZE, Word, gap, kind};

use crate::chunk_writer::ChunkWriter;
use crate::runs::{Place, Runs};
use crate::summary::{ThreadSummary, text_of};

/// A thread's segments, from any source.
pub trait Segments {
    /// Passes each available segment to `take`, oldest first, with its number; its bytes are whole
    /// words. Omits segments that [`is_segment`] rejects. Results may change while the memory is
    /// being written.
    ///
    /// # Errors
    ///
    /// Errors of `take`, at once. A segment that can't be read is omitted.
    fn each(&self, take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// A segment with the expected number.
#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    /// Words, without the unwritten ones at the end of the newest.
    words: u64,
}

/// A thread's ring after the scan.
pub struct Ring<'a> {
    source: &'a dyn Segments,
    thread: ThreadHeader,
    segment_size: u64,
    segments: Vec<Segment>,
    first_ticks: Option<u64>,
    events: u64,
    holes: u64,
    gaps: u64,
}

impl<'a> Ring<'a> {
    /// Scans the ring of `thread`, with segments of `segment_size` bytes.
    pub fn survey(source: &'a dyn Segments, thread: ThreadHeader, segment_size: u64) -> Ring<'a> {
        let mut ring = Ring {
            source,
            thread,
            segment_size,
            segments: vec![],
            first_ticks: None,
            events: 0,
            holes: 0,
            gaps: 0,
        };
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
            // The unwritten end; before that, a zero word is a lost event.
            while let Some(rest) = written.strip_suffix(&[0; WORD_SIZE]) {
                written = rest;
            }
        }
        let tally = tally(written);
        self.events += tally.events;
        self.holes += tally.holes;
        self.gaps += tally.gaps;
        self.segments.push(Segment { number, words: (written.len() / WORD_SIZE) as u64 });
    }

    /// All bytes that the thread wrote, including overwritten ones.
    #[must_use]
    pub fn written(&self) -> u64 {
        let newest = self.segments.last().map_or(0, |segment| segment.words * WORD_SIZE as u64);
        self.thread.segment.saturating_mul(self.segment_size).saturating_add(newest)
    }

    /// The thread's record: number `thread` of snapshot `snapshot`, in slot `slot` of process
    /// `pid`.
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
            ..ThreadRecord::default()
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
            gaps: self.gaps,
            written: self.written(),
            overwritten: record.first_segment > 0,
            reach_ns: nanoseconds(now.saturating_sub(self.first_ticks.unwrap_or(now))),
        }
    }

    /// Writes the segments of the thread whose record is `record`, in runs of as many as an events
    /// chunk can contain. `runs` is empty before and afterwards; using one for all threads reuses
    /// its buffers.
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
            // A process that outlives our child may still write; newer events aren't in the
            // thread's record.
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

/// Counts of a segment's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries and exits, in whichever form.
    pub events: u64,
    /// Lost events: words that were reserved and never written.
    pub holes: u64,
    /// Times that recording was off, at the program's request or another's.
    pub gaps: u64,
}

/// Counts the contents of a segment's `written` words.
#[must_use]
pub fn tally(written: &[u8]) -> Tally {
    let mut tally = Tally::default();
    for word in words(written) {
        match Word::decode(word) {
            word if word.is_event() => tally.events += 1,
            Word::Empty => tally.holes += 1,
            Word::Record { kind: kind::GAP, detail, .. } if detail != gap::SUSPENDED => tally.gaps += 1,
            _ => {}
        }
    }
    tally
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD_SIZE>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Whether `bytes` begin with the record of segment `number`; otherwise another segment replaces
/// it, or is about to.
#[must_use]
pub fn is_segment(bytes: &[u8], number: u64) -> bool {
    segment_start(bytes, number).is_some()
}

/// The ticks with which segment `number` begins.
fn segment_start(bytes: &[u8], number: u64) -> Option<u64> {
    segment_head(words(bytes)).filter(|(_, low)| *low == number as u32).map(|(ticks, _)| ticks)
}

/// The ticks with which a segment begins, and the lower half of its number, from its first words;
/// `None` if they aren't a segment's.
#[must_use]
pub fn segment_head(words: impl IntoIterator<Item = u64>) -> Option<(u64, u32)> {
    let mut words = words.into_iter().map(Word::decode);
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
    Some((u64::from(ticks_high) << 32 | u64::from(ticks_low), segment))
}
