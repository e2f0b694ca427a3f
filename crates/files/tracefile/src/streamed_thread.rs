//! Which part of a thread was written while its process runs.

use everycall_format::arena::ThreadHeader;
use everycall_format::ect::ThreadRecord;

use crate::ring::Tally;
use crate::summary::{ThreadSummary, text_of};

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Entries and exits in the file.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of lost events.
    pub lost: u64,
}

/// A thread whose segments are written while it runs.
#[derive(Debug)]
pub struct StreamedThread {
    /// Its index in the file.
    pub index: u32,
    /// Its last known header; all zero if it ended before it was seen.
    pub header: ThreadHeader,
    /// Number of its first segment in this file, once there is one.
    first: Option<u64>,
    /// Segments in this file.
    segments: u64,
    /// Number of its next segment.
    pub next: u64,
    /// Number of events up to there, including lost ones.
    reached: u64,
    events: u64,
    holes: u64,
    gaps: u64,
    lost: u64,
    /// Whether this file has a chunk of it.
    pub is_announced: bool,
    /// Whether it has ended and was written completely.
    pub is_done: bool,
}

impl StreamedThread {
    /// A thread of which nothing was written; `index` is its index in the file.
    #[must_use]
    pub fn new(index: u32) -> StreamedThread {
        StreamedThread {
            index,
            header: ThreadHeader::default(),
            first: None,
            segments: 0,
            next: 0,
            reached: 0,
            events: 0,
            holes: 0,
            gaps: 0,
            lost: 0,
            is_announced: false,
            is_done: false,
        }
    }

    /// Its segments before `number` aren't wanted; `before` is how many events they have, if that
    /// is known.
    pub fn begin_at(&mut self, number: u64, before: Option<u64>) {
        (self.next, self.reached) = (number, before.unwrap_or(u64::MAX));
    }

    /// A new file begins.
    pub fn begin_file(&mut self) {
        (self.first, self.segments, self.is_announced) = (None, 0, false);
    }

    /// This file gets a chunk of it.
    pub fn announce(&mut self) {
        (self.first, self.segments, self.is_announced) = (None, 0, true);
    }

    /// Returns the number of lost events before its segment `number`, before which it wrote
    /// `before` events; at most `most`.
    pub fn lose(&mut self, number: u64, before: u64, most: u64) -> Option<u64> {
        (number > self.next).then(|| {
            let lost = before.saturating_sub(self.reached).min(most);
            self.lost = self.lost.saturating_add(lost);
            lost
        })
    }

    /// Its segment `number`, before which it wrote `before` events, was written.
    pub fn take(&mut self, number: u64, before: u64, tally: &Tally) {
        self.first.get_or_insert(number);
        self.segments = self.segments.saturating_add(1);
        self.next = number.saturating_add(1);
        self.reached = before.saturating_add(tally.events).saturating_add(tally.holes);
        self.events += tally.events;
        self.holes += tally.holes;
        self.gaps += tally.gaps;
    }

    /// Its record for the file; its owner is its slot and the generation of that.
    #[must_use]
    pub fn record(&self, snapshot: u32, pid: u32, (slot, generation): (u32, u32)) -> ThreadRecord {
        ThreadRecord {
            snapshot,
            thread: self.index,
            pid,
            tid: self.header.tid,
            slot,
            generation,
            start_ticks: self.header.start_ticks,
            first_segment: self.first.unwrap_or(self.next),
            segments: self.segments,
            holes: self.holes,
            name: self.header.name,
            unwound: self.header.unwound,
            orphan_exits: self.header.orphan_exits,
            lost_busy: self.header.lost_busy,
            deep: self.header.deep,
            fiber: self.header.fiber,
            ..ThreadRecord::default()
        }
    }

    /// Its counts.
    #[must_use]
    pub fn summary(&self) -> ThreadSummary {
        ThreadSummary {
            tid: self.header.tid,
            name: text_of(&self.header.name),
            events: self.events,
            lost: self.lost.saturating_add(self.holes).saturating_add(self.header.lost_busy),
            gaps: self.gaps,
            written: 0,
            overwritten: false,
            reach_ns: 0,
        }
    }
}
