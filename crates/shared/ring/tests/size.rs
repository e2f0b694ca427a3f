//! The segments that a ring has beyond its limit, and returns.
#![cfg(not(loom))]

#[allow(dead_code, reason = "its writer goes on in one way alone")]
mod model;

use everycall_ring::{Advance, Ring, SEGMENT_RECORD_WORDS, SPARE_WORDS, Shortage, Size};
use model::{Memory, event_word};
use std::sync::atomic::Ordering::Relaxed;

/// Events of a segment.
const EVENTS: u64 = 8;
const WORDS: usize = SEGMENT_RECORD_WORDS + EVENTS as usize + SPARE_WORDS;
const LIMIT: u32 = 4;

/// A ring that advances segment by segment; each is full of events.
struct Writer<'m> {
    memory: &'m Memory,
    ring: Ring<'m>,
}

impl<'m> Writer<'m> {
    fn new(memory: &'m Memory) -> Writer<'m> {
        let ring = Ring::new(memory.pool(), &memory.control, &memory.published, 0);
        assert!(ring.start(LIMIT, 0, 0));
        ring.suspend();
        Writer { memory, ring }
    }

    /// Fills the segment and advances to the next one.
    fn go_on(&self, size: Size) {
        while self.ring.has_room(1) {
            self.ring.push(&[event_word(self.ring.events())]);
        }
        let ticks = self.ring.number() + 1;
        self.ring.close(ticks, false);
        assert!(
            self.ring
                .advance(Advance { ticks, open_calls: 0, size, shortage: Shortage::Overwrite }, |_, _| ())
        );
        self.memory.check_accounts();
    }

    /// Segments of the ring, and the number of the oldest one.
    fn has(&self) -> (u32, u64) {
        let oldest = self.memory.control.oldest.load(Relaxed);
        (
            self.memory.control.ring_count.load(Relaxed),
            self.memory.entries[oldest as usize].number.load(Relaxed),
        )
    }
}

#[test]
fn what_is_needed_is_kept_and_no_more() {
    let memory = Memory::new(LIMIT, 100, WORDS);
    let writer = Writer::new(&memory);
    for _ in 0..2 {
        writer.go_on(Size::Limit);
    }
    // The first event that is needed is in the middle of segment 2.
    let first = 2 * EVENTS + EVENTS / 2;
    for number in 3..20 {
        writer.go_on(Size::Grow(first));
        // Up to the limit, no segment is returned; then segment 2 is the oldest one.
        let oldest = if number < 4 { 0 } else { (number - 3).min(2) };
        assert_eq!(writer.has(), ((number - oldest + 1) as u32, oldest), "segment {number}");
    }
    // It ended, and another one began in segment 17: 16 segments at most are given back at one
    // time.
    writer.go_on(Size::Grow(17 * EVENTS));
    assert_eq!(writer.has(), (LIMIT, 17));
}

/// Calls that are all as short as two segments never take more than the ring has, though at each
/// segment's end one is open.
#[test]
fn consecutive_short_calls_dont_grow_the_ring() {
    let memory = Memory::new(LIMIT, 100, WORDS);
    let writer = Writer::new(&memory);
    for number in 1..200 {
        writer.go_on(Size::Grow((number - 1) / 2 * 2 * EVENTS));
        assert!(writer.has().0 <= LIMIT, "segment {number}: {:?}", writer.has());
    }
    assert_eq!(memory.pool().in_use.load(Relaxed), LIMIT);
}

/// The exact boundary: the event before which nothing is needed is the first one of a segment, or
/// the last one of the one before.
#[test]
fn the_segment_with_the_first_needed_event_stays() {
    for (first, oldest) in [(5 * EVENTS, 5), (5 * EVENTS - 1, 4), (5 * EVENTS + 1, 5)] {
        let memory = Memory::new(LIMIT, 100, WORDS);
        let writer = Writer::new(&memory);
        for _ in 0..12 {
            writer.go_on(Size::Grow(first));
        }
        assert_eq!(writer.has().1, oldest, "{first}");
    }
}

/// Where the ring may not grow, it stays as large as is needed and overwrites its oldest segment.
#[test]
fn what_may_not_grow_stays() {
    let memory = Memory::new(LIMIT, 100, WORDS);
    let writer = Writer::new(&memory);
    for _ in 0..9 {
        writer.go_on(Size::Grow(0));
    }
    assert_eq!(writer.has(), (10, 0));
    for number in 10..15 {
        writer.go_on(Size::Stay(0));
        assert_eq!(writer.has(), (10, number - 9));
    }
    writer.go_on(Size::Stay(u64::MAX));
    assert_eq!(writer.has(), (LIMIT, 12));
}
