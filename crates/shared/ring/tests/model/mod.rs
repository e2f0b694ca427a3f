//! The hooks' hot path in Rust, over the ring that ships: what the assembly does to the ring, step
//! by step, so that a model checker, an interpreter or a sanitizer can run it.
//!
//! Every word carries its place twice (its number in both halves), so that a word that was torn, or
//! belongs to another segment, is known on sight.

use everycall_format::event::{self, WORD_SIZE, kind};
use everycall_ring::{
    Advance, Control, Pool, Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS, SegmentEntry, Shortage, Size,
};
use std::sync::atomic::Ordering::Relaxed;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pretended address of the pool's first word; never used as a pointer.
pub const BASE: u64 = 0x1000;

/// The memory of a pool and of one thread that has a ring in it.
pub struct Memory {
    pub words: Vec<AtomicU64>,
    pub entries: Vec<SegmentEntry>,
    pub control: Control,
    pub published: AtomicU64,
    pub segment_words: usize,
    extra: u32,
    taken: AtomicU32,
    free: AtomicU64,
    in_use: AtomicU32,
    ring_segments: AtomicU32,
    grow_until: AtomicU64,
}

impl Memory {
    /// A pool for one ring of `ring_segments`, and `extra` more.
    pub fn new(ring_segments: u32, extra: u32, segment_words: usize) -> Memory {
        let segments = (ring_segments + extra) as usize;
        Memory {
            words: (0..segments * segment_words).map(|_| AtomicU64::new(0)).collect(),
            entries: (0..segments).map(|_| SegmentEntry::default()).collect(),
            control: Control::new(),
            published: AtomicU64::new(0),
            segment_words,
            extra,
            taken: AtomicU32::new(0),
            free: AtomicU64::new(0),
            in_use: AtomicU32::new(0),
            ring_segments: AtomicU32::new(ring_segments),
            grow_until: AtomicU64::new(0),
        }
    }

    pub fn pool(&self) -> Pool<'_> {
        Pool {
            entries: &self.entries,
            words: &self.words,
            base: BASE,
            segment_words: self.segment_words,
            taken: &self.taken,
            free: &self.free,
            in_use: &self.in_use,
            ring_segments: &self.ring_segments,
            extra: self.extra,
            grow_until: &self.grow_until,
            room: None,
        }
    }

    /// Events of each segment.
    pub fn events_per_segment(&self) -> u64 {
        (self.segment_words - SEGMENT_RECORD_WORDS - SPARE_WORDS) as u64
    }

    /// Segments that are in the pool's list, by walking it. For when all is quiet.
    pub fn given_back(&self) -> Vec<u32> {
        let mut list = Vec::new();
        let mut next = self.free.load(Relaxed) as u32;
        while let Some(index) = next.checked_sub(1) {
            assert!(!list.contains(&index), "{index} is in the list twice: {list:?}");
            list.push(index);
            next = self.entries[index as usize].next.load(Relaxed);
        }
        list
    }

    /// In a quiet state, every segment is either in the pool or in use, and counted so.
    pub fn check_accounts(&self) {
        let taken = self.taken.load(Relaxed);
        let free = self.given_back();
        for index in 0..taken {
            let pins = self.entries[index as usize].pins.load(Relaxed);
            assert_eq!(pins == 0, free.contains(&index), "segment {index}: pins {pins:#x}, free: {free:?}");
        }
        assert_eq!(self.in_use.load(Relaxed), taken - free.len() as u32);
    }
}

/// The word at `index` of segment `number`, as [`Writer`] writes it.
pub fn expected(memory: &Memory, number: u64, index: usize) -> u64 {
    match index.checked_sub(SEGMENT_RECORD_WORDS) {
        // Spare words are filled when the writer advances.
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

/// Whether the segment may contain `word` while the writer is in that segment.
pub fn is_coming(memory: &Memory, number: u64, index: usize, word: u64) -> bool {
    let half = expected(memory, number, index) & !u64::from(u32::MAX);
    index >= SEGMENT_RECORD_WORDS && (word == 0 || word == half)
}

/// Event `number`, whose low bits are in both halves: an entry or, every other time, an exit.
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
    /// Begins in segment 0, with a ring of `limit` segments.
    pub fn start(memory: &'m Memory, limit: u32) -> Writer<'m> {
        let writer = Writer::resume(memory, 0);
        assert!(writer.ring.start(limit, 0, 0));
        writer
    }

    /// Continues with event `next`.
    pub fn resume(memory: &'m Memory, next: u64) -> Writer<'m> {
        let ring = Ring::new(memory.pool(), &memory.control, &memory.published, 0);
        Writer { memory, ring, next }
    }

    /// One event, as a hook writes it: reserve, check the end, store. An exit's word comes in two
    /// halves.
    pub fn event(&mut self) {
        let control = &self.memory.control;
        let word = event_word(self.next);
        // The assembly's `xadd` can't be split by a signal; no other thread touches the position.
        let slot = control.position.load(Relaxed);
        control.position.store(slot + WORD_SIZE as u64, Relaxed);
        if slot >= control.end.load(Relaxed) {
            self.slow(word);
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
    fn slow(&self, word: u64) {
        self.ring.suspend();
        if !self.ring.has_room(1) {
            let ticks = self.ring.number() + 1;
            self.ring.close(ticks, false);
            let is_asked = self.memory.grow_until.load(Relaxed) > ticks;
            let size = if is_asked { Size::Grow(0) } else { Size::Limit };
            let how = Advance { ticks, open_calls: 0, size, shortage: Shortage::Overwrite };
            assert!(self.ring.advance(how, |_, _| ()));
        }
        self.ring.push(&[word]);
        self.ring.resume();
        assert_eq!(self.ring.events(), self.next + 1);
    }

    /// Writes events until segment `number` has its first one.
    pub fn reach(&mut self, number: u64) {
        while self.next <= number * self.memory.events_per_segment() {
            self.event();
        }
    }

    /// Gives the ring's segments back, as when its thread has ended.
    pub fn end(self) {
        self.ring.give_up(false);
    }
}
