//! The hooks' hot path in Rust, over the ring that ships: what the assembly does to the ring, step by
//! step, so that a model checker, an interpreter or a sanitizer can run it.
//!
//! Every word carries its place twice (its number in both halves), so that a word that was torn, or
//! belongs to another lap, is known on sight.

use everycall_format::event::{self, WORD_SIZE, kind};
use everycall_ring::{Control, Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS};
use std::sync::atomic::Ordering::Relaxed;

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub use std::sync::atomic::AtomicU64;

/// Pretended address of the ring's first word; never used as a pointer.
pub const BASE: u64 = 0x1000;

/// The memory of one ring and its thread.
pub struct Memory {
    pub words: Vec<AtomicU64>,
    pub control: Control,
    pub published: AtomicU64,
    pub segment_words: usize,
}

impl Memory {
    pub fn new(segments: usize, segment_words: usize) -> Memory {
        Memory {
            words: (0..segments * segment_words).map(|_| AtomicU64::new(0)).collect(),
            control: Control::new(),
            published: AtomicU64::new(0),
            segment_words,
        }
    }

    pub fn segments(&self) -> u64 {
        (self.words.len() / self.segment_words) as u64
    }

    /// Where segment `number` lies.
    pub fn place(&self, number: u64) -> &[AtomicU64] {
        let first = (number % self.segments()) as usize * self.segment_words;
        &self.words[first..first + self.segment_words]
    }

    /// Events of each segment.
    pub fn events_per_segment(&self) -> u64 {
        (self.segment_words - SEGMENT_RECORD_WORDS - SPARE_WORDS) as u64
    }
}

/// The word at `index` of segment `number`, as [`Writer`] writes it.
pub fn expected(memory: &Memory, number: u64, index: usize) -> u64 {
    match index.checked_sub(SEGMENT_RECORD_WORDS) {
        // Spare words are filled when the writer goes on.
        Some(event) if event as u64 >= memory.events_per_segment() => {
            event::record_word(number + 1, kind::FILLER, 0, 0)
        }
        Some(event) => event_word(number * memory.events_per_segment() + event as u64),
        None => [
            event::record_word(number, kind::SEGMENT, (SEGMENT_RECORD_WORDS - 1) as u8, 0),
            event::payload_word(0, kind::SEGMENT, 1),
            event::payload_word(0, kind::SEGMENT, 2),
            event::payload_word(number as u32, kind::SEGMENT, 3),
        ][index],
    }
}

/// Event `number`, whose low bits stand in both halves: an entry or, every other time, an exit.
pub fn event_word(number: u64) -> u64 {
    let exit = if number & 1 == 0 { 0 } else { event::EXIT };
    let offset = event::OFFSET_FIRST + number as u32 % (event::ESCAPE_FIRST - event::OFFSET_FIRST);
    event::call_word(number, exit | offset)
}

/// The one thread that writes.
pub struct Writer<'m> {
    memory: &'m Memory,
    ring: Ring<'m>,
    /// Number of the next event.
    pub next: u64,
}

impl<'m> Writer<'m> {
    /// Begins in segment 0, where `blank` in memory known to be zero.
    pub fn start(memory: &'m Memory, blank: bool) -> Writer<'m> {
        let writer = Writer::resume(memory, 0);
        writer.ring.start(BASE, 0, 0, blank);
        writer
    }

    /// Goes on with event `next`.
    pub fn resume(memory: &'m Memory, next: u64) -> Writer<'m> {
        let ring = Ring::new(&memory.words, memory.segment_words, &memory.control, &memory.published);
        Writer { memory, ring, next }
    }

    /// One event, as a hook writes it: reserve, check the end, store. An exit's word comes in two halves.
    pub fn event(&mut self, blank: bool) {
        let control = &self.memory.control;
        let word = event_word(self.next);
        // The assembly's `xadd` can't be split by a signal; no other thread touches the position.
        let slot = control.position.load(Relaxed);
        control.position.store(slot + WORD_SIZE as u64, Relaxed);
        if slot >= control.end.load(Relaxed) {
            self.slow(word, blank);
        } else if let Some(place) = self.memory.words.get((slot - BASE) as usize / WORD_SIZE) {
            if word as u32 & event::EXIT != 0 {
                place.store(word & !u64::from(u32::MAX), Relaxed);
            }
            place.store(word, Relaxed);
        }
        self.next += 1;
    }

    /// The ring's part of the slow path.
    #[cold]
    fn slow(&self, word: u64, blank: bool) {
        self.ring.hold();
        if !self.ring.has_room(1) {
            self.ring.advance(self.ring.number() + 1, 0, blank);
        }
        self.ring.push(&[word]);
        self.ring.release();
    }

    /// Writes events until segment `number` has its first one.
    pub fn reach(&mut self, number: u64, blank: bool) {
        while self.next <= number * self.memory.events_per_segment() {
            self.event(blank);
        }
    }
}
