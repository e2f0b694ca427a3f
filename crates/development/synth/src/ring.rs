//! A thread's ring and its open calls, oldest first.

use std::collections::VecDeque;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// The event word of its entry.
    pub word: u64,
    /// Upper half of its time stamp.
    pub ticks_high: u32,
}

/// A ring, filled as the runtime fills it.
#[derive(Clone, Debug)]
pub struct Ring {
    segment_words: usize,
    /// Number of segments that exist at once.
    capacity: usize,
    /// The segments, oldest first; the last one is being written.
    segments: VecDeque<Vec<u64>>,
    /// Number of the oldest segment in `segments`.
    first_segment: u64,
    ticks_high: u32,
    open: Vec<OpenCall>,
    /// Words ever written, without segment records and fillers.
    pub words_written: u64,
}

const EXIT: u32 = 0x8000_0000;
const ESCAPE: u32 = 0x7f00_0000;
/// The largest number of words that must be in one segment.
const TOGETHER: usize = 8;

impl Ring {
    /// An empty ring of `capacity` segments that begins at `ticks`.
    #[must_use]
    pub fn new(segment_words: usize, capacity: usize, ticks: u64) -> Ring {
        let mut ring = Ring {
            segment_words,
            capacity,
            segments: VecDeque::new(),
            first_segment: 0,
            ticks_high: 0,
            open: Vec::new(),
            words_written: 0,
        };
        ring.begin_segment(ticks);
        ring
    }

    fn begin_segment(&mut self, ticks: u64) {
        if self.segments.len() == self.capacity {
            self.segments.pop_front();
            self.first_segment += 1;
        }
        let number = self.first_segment + self.segments.len() as u64;
        self.ticks_high = (ticks >> 32) as u32;
        let mut words = vec![record(ticks, 1, 3, 0)];
        words.push(payload(self.ticks_high, 1, 1));
        words.push(payload(self.open.len() as u32, 1, 2));
        words.push(payload(number as u32, 1, 3));
        self.segments.push_back(words);
    }

    /// Makes room for `count` words that must be in one segment, at `ticks`.
    fn make_room(&mut self, count: usize, ticks: u64) {
        let segment_words = self.segment_words;
        let Some(current) = self.segments.back_mut() else { return };
        if current.len() + count > segment_words {
            current.resize(segment_words, record(ticks, 14, 0, 0));
            self.begin_segment(ticks);
        }
    }

    /// Writes words unchanged.
    pub fn raw(&mut self, words: &[u64], ticks: u64) {
        self.make_room(words.len(), ticks);
        self.words_written += words.len() as u64;
        if let Some(current) = self.segments.back_mut() {
            current.extend(words);
        }
    }

    /// Writes a longer record at `ticks`, after an epoch record where the upper half changes.
    pub fn record(&mut self, ticks: u64, kind: u8, detail: u8, payloads: &[u32]) {
        self.make_room(TOGETHER.max(payloads.len() + 3), ticks);
        self.epoch(ticks);
        let mut words = vec![record(ticks, kind, payloads.len() as u8, detail)];
        words.extend(payloads.iter().zip(1..).map(|(value, index)| payload(*value, kind, index)));
        self.raw(&words, ticks);
    }

    fn epoch(&mut self, ticks: u64) {
        let high = (ticks >> 32) as u32;
        if high != self.ticks_high {
            self.ticks_high = high;
            self.raw(&[record(ticks, 2, 1, 0), payload(high, 2, 1)], ticks);
        }
    }

    /// Writes an entry or exit. If its time stamp is older than the current epoch, a record before
    /// it says so.
    fn call(&mut self, ticks: u64, low: u32) {
        let high = (ticks >> 32) as u32;
        self.make_room(TOGETHER, ticks.max(u64::from(self.ticks_high) << 32));
        if high < self.ticks_high {
            let words = [record(ticks, 5, 2, 0), payload(low, 5, 1), payload(high, 5, 2)];
            return self.raw(&words, ticks);
        }
        self.epoch(ticks);
        self.raw(&[ticks << 32 | u64::from(low)], ticks);
    }

    /// A function is entered.
    pub fn enter(&mut self, ticks: u64, offset: u32) {
        self.call(ticks, offset);
        self.open.push(OpenCall { word: ticks << 32 | u64::from(offset), ticks_high: (ticks >> 32) as u32 });
    }

    /// The innermost open function returns.
    pub fn exit(&mut self, ticks: u64, offset: u32) {
        self.call(ticks, EXIT | offset);
        self.open.pop();
    }

    /// Calls are unwound, down to `depth`.
    pub fn unwind(&mut self, ticks: u64, depth: usize) {
        // A segment records the depth at its beginning, so it must begin before the depth changes.
        self.make_room(TOGETHER, ticks);
        self.open.truncate(depth);
        self.record(ticks, 3, 0, &[depth as u32]);
    }

    /// Calls are unwound, down to `depth`, in a record that also has the number of calls.
    pub fn unwind_counted(&mut self, ticks: u64, depth: usize) {
        self.unwind_known(ticks, depth, 0);
    }

    /// Calls were unwound earlier, down to `depth`, without notice to the runtime.
    pub fn unwind_noticed(&mut self, ticks: u64, depth: usize) {
        self.unwind_known(ticks, depth, 1);
    }

    /// Calls are unwound, down to `depth`, where a handler begins in a frame that several inlined
    /// calls share: they may continue.
    pub fn unwind_inlined(&mut self, ticks: u64, depth: usize) {
        self.unwind_known(ticks, depth, 2);
    }

    /// Calls are unwound, down to `depth`, where a cleanup in a frame that several inlined calls
    /// share makes the next call.
    pub fn unwind_inlined_in_cleanup(&mut self, ticks: u64, depth: usize) {
        self.unwind_known(ticks, depth, 3);
    }

    fn unwind_known(&mut self, ticks: u64, depth: usize, how: u8) {
        self.make_room(TOGETHER, ticks);
        let left = self.open.len().saturating_sub(depth) as u32;
        self.open.truncate(depth);
        self.record(ticks, 3, how, &[depth as u32, left]);
    }

    /// Reserves a slot for an entry at `ticks`, which [`Ring::fill`] completes; `None` if the entry
    /// would take the slow path.
    pub fn reserve(&mut self, ticks: u64) -> Option<(u64, usize)> {
        let current = self.segments.back_mut()?;
        if current.len() == self.segment_words || (ticks >> 32) as u32 != self.ticks_high {
            return None;
        }
        current.push(0);
        let place = current.len() - 1;
        Some((self.newest_segment(), place))
    }

    /// Enters a function in a slot that was reserved before; other events may have been written
    /// since.
    pub fn fill(&mut self, slot: (u64, usize), ticks: u64, offset: u32) {
        let word = ticks << 32 | u64::from(offset);
        let segment =
            slot.0.checked_sub(self.first_segment).and_then(|place| self.segments.get_mut(place as usize));
        if let Some(place) = segment.and_then(|words| words.get_mut(slot.1)) {
            *place = word;
            self.words_written += 1;
        }
        self.open.push(OpenCall { word, ticks_high: (ticks >> 32) as u32 });
    }

    /// An exit whose entry isn't known.
    pub fn orphan_exit(&mut self, ticks: u64, offset: u32) {
        self.record(ticks, 4, 0, &[offset]);
    }

    /// `count` events were dropped.
    pub fn busy(&mut self, ticks: u64, count: u64) {
        self.record(ticks, 6, 2, &[count as u32, (count >> 32) as u32]);
    }

    /// A mark of the program. `class`: 1 label, 2 instant, 3 begin and 4 end of a span.
    pub fn mark(&mut self, ticks: u64, class: u8, name: &str, value: Option<u64>) {
        let number = value.unwrap_or(0);
        let mut payloads = vec![number as u32, (number >> 32) as u32];
        for four in name.as_bytes().chunks(4) {
            payloads.push(four.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        }
        self.record(ticks, 10, class | if value.is_some() { 0 } else { 0x80 }, &payloads);
    }

    /// A log line: types of the arguments, address of the format string, payloads of the arguments.
    pub fn log(&mut self, ticks: u64, types: u32, format: u64, arguments: &[u32]) {
        let mut payloads = vec![types, format as u32, (format >> 32) as u32];
        payloads.extend(arguments);
        self.record(ticks, 17, 0, &payloads);
    }

    /// Recording was off between two times. Of the calls that were open before, up to `depth` may
    /// still be open.
    pub fn gap(&mut self, from: u64, ticks: u64, why: u8, depth: usize) {
        self.make_room(TOGETHER, ticks);
        let left = self.open.len().saturating_sub(depth) as u32;
        self.open.truncate(depth);
        self.record(ticks, 12, why, &[from as u32, (from >> 32) as u32, depth as u32, left]);
    }

    /// The stack was suspended between two times; then this thread resumed it.
    pub fn resumed(&mut self, from: u64, ticks: u64, thread: u32) {
        self.resumed_with(from, ticks, thread, 0);
    }

    /// The stack, or another one in the same memory, was suspended between two times; then this
    /// thread resumed it.
    pub fn resumed_unsurely(&mut self, from: u64, ticks: u64, thread: u32) {
        self.resumed_with(from, ticks, thread, 1);
    }

    /// The call instruction of the next call ends before a code offset, or lies in no module.
    pub fn caller(&mut self, ticks: u64, offset: Option<u32>) {
        self.record(ticks, 9, 0, offset.as_slice());
    }

    /// The call instruction of the next call ends before a code offset; the caller is an inlined
    /// copy of the called function.
    pub fn caller_inlined(&mut self, ticks: u64, offset: u32) {
        self.record(ticks, 9, 1, &[offset]);
    }

    fn resumed_with(&mut self, from: u64, ticks: u64, thread: u32, flags: u32) {
        let depth = self.open.len() as u32;
        self.record(ticks, 12, 3, &[from as u32, (from >> 32) as u32, depth, 0, thread, flags]);
    }

    /// Code outside all modules is entered.
    pub fn enter_unknown(&mut self, ticks: u64, address: u64) {
        self.record(ticks, 7, 0, &[address as u32, (address >> 32) as u32]);
        let word = record(ticks, 7, 0, 0);
        self.open.push(OpenCall { word, ticks_high: (ticks >> 32) as u32 });
    }

    /// Code outside all modules returns.
    pub fn exit_unknown(&mut self, ticks: u64, address: u64) {
        self.record(ticks, 7, 1, &[address as u32, (address >> 32) as u32]);
        self.open.pop();
    }

    /// A slot that was reserved and never written.
    pub fn hole(&mut self, ticks: u64) {
        self.raw(&[0], ticks);
    }

    /// The calls that are open.
    #[must_use]
    pub fn open_calls(&self) -> &[OpenCall] {
        &self.open
    }

    /// Number of the oldest existing segment.
    #[must_use]
    pub fn first_segment(&self) -> u64 {
        self.first_segment
    }

    /// Number of the segment that is being written.
    #[must_use]
    pub fn newest_segment(&self) -> u64 {
        self.first_segment + self.segments.len() as u64 - 1
    }

    /// The existing segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = &[u64]> {
        self.segments.iter().map(Vec::as_slice)
    }

    /// Words of a whole segment.
    #[must_use]
    pub fn segment_words(&self) -> usize {
        self.segment_words
    }

    /// Largest number of segments that exist at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

fn record(ticks: u64, kind: u8, count: u8, detail: u8) -> u64 {
    ticks << 32 | u64::from(ESCAPE | u32::from(kind) << 16 | u32::from(count) << 8 | u32::from(detail))
}

fn payload(value: u32, kind: u8, index: u8) -> u64 {
    u64::from(value) << 32 | u64::from(EXIT | ESCAPE | u32::from(kind) << 16 | u32::from(index) << 8)
}
