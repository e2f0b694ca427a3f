//! The writer's slow half: taking slots one by one, and going on to the next segment.

use crate::clear::clear;
use crate::control::Control;
use crate::primitive::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};
use everycall_format::event::{self, WORD_SIZE, kind};

/// Words of the record that begins each segment.
pub const SEGMENT_RECORD_WORDS: usize = 4;

/// Words at the end of each segment that are reserved and never used in order. A hook that finds
/// its segment full has reserved one of them. Where a signal handler comes before it has looked, and goes on to
/// the next segment, the hook then believes its slot and writes it: here, not over the next segment's record.
/// So many hooks, each interrupted there by the next, are provided for.
pub const SPARE_WORDS: usize = 8;

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
    pub fn new(
        words: &'a [AtomicU64],
        segment_words: usize,
        control: &'a Control,
        published: &'a AtomicU64,
    ) -> Ring<'a> {
        Ring { words, segment_words, control, published }
    }

    /// Segments of the ring.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.words.len().checked_div(self.segment_words).unwrap_or(1) as u64
    }

    /// Begins with segment 0. `base` is the address of the first word; `ticks` the time.
    /// Where `blank`, the ring's memory is known to be zero.
    pub fn start(&self, base: u64, ticks: u64, open_calls: u32, blank: bool) {
        self.control.ring.store(base, Relaxed);
        self.open_segment(0, ticks, open_calls, blank);
    }

    /// Goes on in the next segment; what is left of this one becomes fillers, so that words of zero are
    /// lost events and nothing else. Where `blank`, the ring's memory was zero at the start.
    pub fn advance(&self, ticks: u64, open_calls: u32, blank: bool) {
        let end = self.control.segment_end.load(Relaxed);
        let free = end.saturating_sub(self.cursor().load(Relaxed));
        self.cursor().store(end - free, Relaxed);
        for _ in 0..free as usize / WORD_SIZE + SPARE_WORDS {
            self.push(&[event::record_word(ticks, kind::FILLER, 0, 0)]);
        }
        let number = self.control.segment.load(Relaxed) + 1;
        self.open_segment(number, ticks, open_calls, blank && number < self.segments());
    }

    /// Where the next word goes.
    fn cursor(&self) -> &'a AtomicU64 {
        let control = self.control;
        if control.held_position.load(Relaxed) != 0 { &control.held_position } else { &control.position }
    }

    /// The next segment's place in the ring, in bytes: first and length.
    #[must_use]
    pub fn next_segment_bytes(&self) -> (u64, u64) {
        let number = self.control.segment.load(Relaxed) + 1;
        let size = (self.segment_words * WORD_SIZE) as u64;
        ((number & (self.segments() - 1)) * size, size)
    }

    /// Number of the segment that is being written.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.control.segment.load(Relaxed)
    }

    /// The words of segment `number`; empty never, but for a ring that isn't whole segments.
    fn segment(&self, number: u64) -> &'a [AtomicU64] {
        let first = (number & (self.segments() - 1)) as usize * self.segment_words;
        self.words.get(first..first + self.segment_words).unwrap_or(&[])
    }

    fn open_segment(&self, number: u64, ticks: u64, open_calls: u32, blank: bool) {
        let segment = self.segment(number);
        // The first word first, so that a reader who finds the record of the old number finds all of
        // it, and one who doesn't knows that the segment is being cleared. The fences order what a reader
        // may see; on x86-64 they cost nothing. Who sees ...
        if let Some((first, rest)) = segment.split_first().filter(|_| !blank) {
            fence(Release); // ... any of the clearing sees the last published number,
            first.store(0, Relaxed);
            fence(Release); // ... a later word cleared sees the old record gone,
            clear(rest);
            fence(Release); // ... a word of the new record sees the segment cleared.
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
        let end = address + (self.segment_words.saturating_sub(SPARE_WORDS) * WORD_SIZE) as u64;
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
        self.cursor().load(Relaxed).saturating_add((count * WORD_SIZE) as u64)
            <= self.control.segment_end.load(Relaxed)
    }

    /// Writes `record` into the next slots; the caller has made sure of the room.
    pub fn push(&self, record: &[u64]) {
        let cursor = self.cursor();
        let position = cursor.load(Relaxed);
        cursor.store(position + (record.len() * WORD_SIZE) as u64, Relaxed);
        let first = position.wrapping_sub(self.control.ring.load(Relaxed)) as usize / WORD_SIZE;
        for (word, value) in self.words.iter().skip(first).zip(record) {
            word.store(*value, Relaxed);
        }
    }

    /// Hooks come to the slow path after `words` more, though the segment goes on.
    pub fn end_after(&self, words: usize) {
        let control = self.control;
        let end = control.position.load(Relaxed) + (words * WORD_SIZE) as u64;
        if end < control.end.load(Relaxed) {
            control.end.store(end, Relaxed);
        }
    }

    /// From now on every event comes to the slow path ([`Ring::push`] goes on where hooks were). Slots that hooks
    /// have reserved beyond an early end ([`Ring::end_after`]) become fillers: one of those hooks may not have
    /// looked yet, and will believe its slot.
    pub fn hold(&self) {
        let control = self.control;
        if control.held_position.load(Relaxed) == 0 {
            let position = control.position.load(Relaxed);
            let end = control.end.load(Relaxed);
            let base = control.ring.load(Relaxed);
            let reserved = end..position.min(control.segment_end.load(Relaxed));
            for address in reserved.step_by(WORD_SIZE) {
                if let Some(word) = self.words.get((address - base) as usize / WORD_SIZE) {
                    word.store(event::record_word(0, kind::FILLER, 0, 0), Relaxed);
                }
            }
            control.held_position.store(position, Relaxed);
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
