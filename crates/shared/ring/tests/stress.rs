//! One writer at full speed, readers that pin segments and readers that don't: real threads, real
//! atomics. Every word that a reader accepts must be the word that was written there, or, in the
//! newest segment, not yet written.
//!
//! `RING_STRESS_SECONDS=5 cargo test --release -p everycall-ring --test stress -- --nocapture`;
//! also under ThreadSanitizer and Miri, see `docs/design/memory-model.md`.

// A test may panic.
#![allow(clippy::disallowed_methods)]
#![cfg(not(loom))]

mod model;

use everycall_format::arena::pinned_by;
use everycall_reader::event::begins_segment;
use everycall_ring::{GrowRequest, SEGMENT_RECORD_WORDS};
use model::{Memory, Writer, expected, is_coming};
use std::sync::atomic::{
    AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use std::time::{Duration, Instant};

/// The time, later than all that the writer knows, whose clock counts segments.
const NOW: u64 = 1 << 32;

/// Words that were believed, and segments that weren't.
#[derive(Debug, Default)]
struct Tally {
    words: u64,
    not_yet_written: u64,
    segments: u64,
    refused: u64,
}

impl Tally {
    /// Looks at a segment that a reader believes, who knew of segment `newest` before.
    fn judge(&mut self, memory: &Memory, newest: u64, number: u64, words: &[u64]) {
        self.segments += 1;
        for (index, word) in words.iter().enumerate() {
            let right = expected(memory, number, index);
            if *word == right {
                self.words += 1;
                continue;
            }
            assert!(
                number >= newest && is_coming(memory, number, index, *word),
                "word {index} of segment {number}, newest {newest}: {word:#x} for {right:#x}"
            );
            self.not_yet_written += 1;
        }
    }
}

fn copy(memory: &Memory, place: u32) -> Vec<u64> {
    memory.pool().segment(place).iter().map(|word| word.load(Relaxed)).collect()
}

fn copy_head(memory: &Memory, place: u32) -> Vec<u64> {
    let words = &memory.pool().segment(place)[..SEGMENT_RECORD_WORDS];
    words.iter().map(|word| word.load(Relaxed)).collect()
}

/// Pins all segments that exist, then reads each. The guarantee: all segments that existed when it
/// began to pin are pinned, except the one that the writer may just have taken.
fn pin_all(memory: &Memory, done: &AtomicBool, bit: u32, ring: u64) -> Tally {
    let pool = memory.pool();
    let mut tally = Tally::default();
    loop {
        let last_time = done.load(Acquire);
        // As a snapshot does: from here on the writer takes new segments, as long as there are any.
        let request = GrowRequest::begin(&pool, || NOW, 1 << 20);
        fence(SeqCst);
        let newest = memory.published.load(Acquire);
        let pinned: Vec<u32> =
            (0..memory.entries.len() as u32).filter(|place| pool.pin(*place, bit)).collect();
        let after = memory.published.load(Acquire);
        drop(request);
        let mut numbers = Vec::new();
        for place in pinned {
            let number = memory.entries[place as usize].number.load(Relaxed);
            let words = copy(memory, place);
            fence(Acquire);
            if pool.is_pinned(place, bit) {
                numbers.push(number);
                tally.judge(memory, newest, number, &words);
            } else {
                tally.refused += 1;
            }
            pool.release(place, bit);
        }
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "each number once: {numbers:?}");
        // As long as the pool has others for the writer: this reader may have been away for long,
        // and both may pin many.
        let many = memory.entries.len() as u64 / 8;
        if tally.refused == 0 && after - newest < many && (numbers.len() as u64) < 2 * many {
            let oldest = (newest + 2).saturating_sub(ring);
            assert!(
                (oldest..=newest).all(|number| numbers.contains(&number)),
                "{oldest}..={newest}: {numbers:?}"
            );
        }
        if last_time {
            return tally;
        }
    }
}

/// Looks at one segment after the other without pinning it.
fn look(memory: &Memory, done: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut place = 0;
    loop {
        let last_time = done.load(Acquire);
        place = (place + 1) % memory.entries.len() as u32;
        let newest = memory.published.load(Acquire);
        let entry = &memory.entries[place as usize];
        let pins = entry.pins.load(Acquire);
        let number = entry.number.load(Relaxed);
        let head = copy_head(memory, place);
        fence(Acquire);
        let words = copy(memory, place);
        fence(Acquire);
        let again = copy_head(memory, place);
        let is_there = pins != 0 && pins & pinned_by::CLEARING == 0;
        if is_there && begins_segment(&words, number) && head == again && head == words[..head.len()] {
            tally.judge(memory, newest, number, &words);
        } else {
            tally.refused += 1;
        }
        if last_time {
            return tally;
        }
    }
}

#[test]
fn a_writer_at_full_speed() {
    // Under Miri: some laps of a small ring. Else for a while.
    let (ring, extra, segment_words) = if cfg!(miri) { (4, 12, 32) } else { (16, 512, 8192) };
    let seconds = std::env::var("RING_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let memory = Memory::new(ring, extra, segment_words);
    let done = AtomicBool::new(false);
    let mut writer = Writer::start(&memory, ring);
    let (one, two, looking) = std::thread::scope(|scope| {
        let one = scope.spawn(|| pin_all(&memory, &done, pinned_by::FIRST, ring.into()));
        let two = scope.spawn(|| pin_all(&memory, &done, pinned_by::FIRST << 1, ring.into()));
        let looking = scope.spawn(|| look(&memory, &done));
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut goal = u64::from(ring);
        while goal <= 4 * u64::from(ring) || !cfg!(miri) && Instant::now() < end {
            goal += 4;
            writer.reach(goal);
        }
        done.store(true, Release);
        (one.join().unwrap(), two.join().unwrap(), looking.join().unwrap())
    });
    println!("{} events written", writer.next);
    println!("by pinning: {one:?}, {two:?}; by looking: {looking:?}");
    memory.check_accounts();
    assert_eq!(memory.pool().grow_until.load(Relaxed), 0, "the last requester withdraws it");
    // The last time, there is no writer any more.
    assert!(one.words >= memory.events_per_segment() * u64::from(ring - 1));
    writer.end();
    memory.check_accounts();
    assert_eq!(memory.pool().in_use.load(Relaxed), 0);
}
