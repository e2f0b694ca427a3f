//! The writer's slow half: taking slots one by one, and going on to the next segment.

use crate::control::Control;
use crate::primitive::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};
use everycall_format::event::{self, WORD_SIZE, kind};

/// Words of the record that begins each segment.
pub const SEGMENT_RECORD_WORDS: usize = 4;

/// One thread's ring: its words, its control block and the shared number of the segment being written.
/// All methods are for the owning thread, with signals blocked.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    /// The ring's words.
    words: &'a [AtomicU64],
    /// Words of a segment; a power of two, and so is the number of segments.
    segment_words: usize,
    control: &'a Control,
    /// Where readers find the number of the segment being written.
    published: &'a AtomicU64,
}

impl<'a> Ring<'a> {
    /// A ring over `words`, in segments of `segment_words`.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], segment_words: usize, control: &'a Control, published: &'a AtomicU64) -> Ring<'a> {
        Ring { words, segment_words, control, published }
    }

    /// Segments of the ring.
    fn segments(&self) -> u64 {
        (self.words.len() / self.segment_words) as u64
    }

    /// Begins with segment 0. `base` is the address of the first word; `ticks` the time.
    pub fn start(&self, base: u64, ticks: u64, open_calls: u32) {
        self.control.ring.store(base, Relaxed);
        self.open_segment(0, ticks, open_calls);
    }

    /// Goes on in the next segment.
    pub fn advance(&self, ticks: u64, open_calls: u32) {
        self.open_segment(self.control.segment.load(Relaxed) + 1, ticks, open_calls);
    }

    /// The words of segment `number`; empty never, but for a ring that isn't whole segments.
    fn segment(&self, number: u64) -> &'a [AtomicU64] {
        let first = (number & (self.segments() - 1)) as usize * self.segment_words;
        self.words.get(first..first + self.segment_words).unwrap_or(&[])
    }

    fn open_segment(&self, number: u64, ticks: u64, open_calls: u32) {
        let segment = self.segment(number);
        // Front to back, so that a reader who finds the record of the old number finds all of it,
        // and one who doesn't knows that the segment is being cleared.
        for word in segment {
            word.store(0, Relaxed);
            fence_after_first(word, segment);
        }
        let record = [
            event::record_word(ticks, kind::SEGMENT, (SEGMENT_RECORD_WORDS - 1) as u8, 0),
            event::payload_word((ticks >> 32) as u32, kind::SEGMENT, 1),
            event::payload_word(open_calls, kind::SEGMENT, 2),
            event::payload_word(number as u32, kind::SEGMENT, 3),
        ];
        for (word, value) in segment.iter().zip(record) {
            word.store(value, Relaxed);
        }
        self.published.store(number, Release);

        let control = self.control;
        let address = control.ring.load(Relaxed)
            + (number & (self.segments() - 1)) * (self.segment_words * WORD_SIZE) as u64;
        let end = address + (self.segment_words * WORD_SIZE) as u64;
        control.segment.store(number, Relaxed);
        control.segment_end.store(end, Relaxed);
        control.ticks_high.store((ticks >> 32) as u32, Relaxed);
        let next = address + (SEGMENT_RECORD_WORDS * WORD_SIZE) as u64;
        if control.held_position.load(Relaxed) != 0 {
            control.held_position.store(next, Relaxed);
        } else {
            control.position.store(next, Relaxed);
            control.end.store(end, Relaxed);
        }
    }

    /// Whether `count` more words fit into the segment.
    #[must_use]
    pub fn has_room(&self, count: usize) -> bool {
        let held = self.control.held_position.load(Relaxed);
        let position = if held != 0 { held } else { self.control.position.load(Relaxed) };
        position.saturating_add((count * WORD_SIZE) as u64) <= self.control.segment_end.load(Relaxed)
    }

    /// Writes `record` into the next slots; the caller has made sure of the room.
    pub fn push(&self, record: &[u64]) {
        let control = self.control;
        let cursor = if control.held_position.load(Relaxed) != 0 { &control.held_position } else { &control.position };
        let position = cursor.load(Relaxed);
        cursor.store(position + (record.len() * WORD_SIZE) as u64, Relaxed);
        let first = (position.wrapping_sub(control.ring.load(Relaxed))) as usize / WORD_SIZE;
        for (word, value) in self.words.iter().skip(first).zip(record) {
            word.store(*value, Relaxed);
        }
    }

    /// From now on every event comes to the slow path ([`Ring::push`] goes on where hooks were).
    pub fn hold(&self) {
        let control = self.control;
        if control.held_position.load(Relaxed) == 0 {
            control.held_position.store(control.position.load(Relaxed), Relaxed);
            control.end.store(0, Relaxed);
        }
    }

    /// Hooks write again by themselves.
    pub fn release(&self) {
        let control = self.control;
        let held = control.held_position.load(Relaxed);
        if held != 0 {
            control.position.store(held, Relaxed);
            control.held_position.store(0, Relaxed);
            control.end.store(control.segment_end.load(Relaxed), Relaxed);
        }
    }
}

/// Orders the clearing of a segment's first word before everything that follows in it.
fn fence_after_first(word: &AtomicU64, segment: &[AtomicU64]) {
    if core::ptr::eq(word, &raw const segment[0]) {
        fence(Release);
    }
}
