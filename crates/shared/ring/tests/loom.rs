//! Every order in which a writer and a reader can meet under the C11 memory model, as far as loom
//! knows it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p everycall-ring --test loom`
//!
//! Two ways of reading are in use, and both are checked: by pinning a segment, and, for readers
//! that can't write the memory, by comparing the segment's own record before and after, as
//! `everycall-reader` does for arenas (with that crate's own `begins_segment`). Whether a reader
//! accepts a word depends on no other words than the segment's record and its entry, so each word
//! is read on its own: that keeps the models small.
//!
//! `LOOM_MAX_PREEMPTIONS=3` makes a quick run of it, without it the search is complete.
#![cfg(loom)]

mod model;

use everycall_format::arena::pinned_by;
use everycall_reader::event::begins_segment;
use everycall_ring::{GrowRequest, SEGMENT_RECORD_WORDS, SPARE_WORDS};
use loom::sync::Arc;
use loom::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};
use model::{Memory, Writer, expected, is_coming};
use std::sync::atomic::AtomicU64 as Plain;

/// Words of a segment: its record, an entry, an exit, and the spare ones, of which one is read.
const SEGMENT_WORDS: usize = EXIT + 1 + SPARE_WORDS;
const EXIT: usize = SEGMENT_RECORD_WORDS + 1;
/// Segments of the ring.
const RING: u32 = 2;

/// One meeting: the writer has come to segment `from` and advances to segment `to`, while the
/// reader reads word `index` of place `place` in the pool.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    /// Segments that the pool has beyond the ring's.
    extra: u32,
    from: u64,
    to: u64,
    place: u32,
    index: usize,
}

/// A word that a reader believes.
struct Belief {
    /// Number of the newest segment that it knew of before.
    newest: u64,
    /// Number of the word's segment.
    number: u64,
    word: u64,
}

type Read = fn(&Memory, &Meeting) -> Option<Belief>;

impl Meeting {
    /// How many words were believed, over all orders.
    fn check(self, read: Read) -> u64 {
        let believed: &'static Plain = Box::leak(Box::default());
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 100_000;
        builder.check(move || {
            let memory = Arc::new(Memory::new(RING, self.extra, SEGMENT_WORDS));
            let mut writer = Writer::start(&memory, RING);
            writer.reach(self.from);
            let next = writer.next;
            let reader = loom::thread::spawn({
                let memory = Arc::clone(&memory);
                move || {
                    if let Some(belief) = read(&memory, &self) {
                        believed.fetch_add(1, Relaxed);
                        self.judge(&memory, &belief);
                    }
                }
            });
            let mut writer = Writer::resume(&memory, next);
            writer.reach(self.to);
            reader.join().unwrap();
            memory.check_accounts();
            Writer::resume(&memory, writer.next).end();
            memory.check_accounts();
            assert_eq!(memory.pool().in_use.load(Relaxed), 0);
        });
        believed.load(Relaxed)
    }

    fn judge(&self, memory: &Memory, &Belief { newest, number, word }: &Belief) {
        let right = expected(memory, number, self.index);
        let complete = number < newest;
        assert!(
            word == right || !complete && is_coming(memory, number, self.index, word),
            "{self:?}: {word:#x} for {right:#x} in segment {number} of {newest}"
        );
    }
}

/// Pins the segment while it looks.
fn by_pinning(memory: &Memory, meeting: &Meeting) -> Option<Belief> {
    let pool = memory.pool();
    let newest = memory.published.load(Acquire);
    if !pool.pin(meeting.place, pinned_by::FIRST) {
        return None;
    }
    let number = memory.entries[meeting.place as usize].number.load(Relaxed);
    let word = pool.segment(meeting.place)[meeting.index].load(Relaxed);
    // If the pool has no other segment, the writer takes it nevertheless.
    fence(Acquire);
    let is_pinned = pool.is_pinned(meeting.place, pinned_by::FIRST);
    assert!(is_pinned || meeting.extra == 0, "{meeting:?}: what is pinned stays");
    pool.release(meeting.place, pinned_by::FIRST);
    is_pinned.then_some(Belief { newest, number, word })
}

/// By the segment's record before and after.
fn by_record(memory: &Memory, meeting: &Meeting) -> Option<Belief> {
    let pool = memory.pool();
    let entry = &memory.entries[meeting.place as usize];
    let record = || -> Vec<u64> {
        let words = pool.segment(meeting.place);
        words.iter().take(SEGMENT_RECORD_WORDS).map(|word| word.load(Relaxed)).collect()
    };
    let newest = memory.published.load(Acquire);
    let pins = entry.pins.load(Acquire);
    let number = entry.number.load(Relaxed);
    if pins == 0 || pins & pinned_by::CLEARING != 0 {
        return None;
    }
    let copied = record();
    // The record first: who sees a new one sees the segment cleared for it.
    fence(Acquire);
    let word = match copied.get(meeting.index) {
        Some(word) => *word,
        None => pool.segment(meeting.place)[meeting.index].load(Relaxed),
    };
    if !begins_segment(&copied, number) {
        return None;
    }
    fence(Acquire);
    (record() == copied).then_some(Belief { newest, number, word })
}

/// Every word of every segment that can exist, in the first lap, at its end and later.
fn meetings(read: Read, extras: &[u32]) {
    for extra in extras {
        for (from, to) in [(0, 1), (1, 2), (1, 3), (3, 5)] {
            let mut believed = 0;
            for place in 0..RING + extra {
                for index in [0, SEGMENT_RECORD_WORDS - 1, EXIT - 1, EXIT, EXIT + 1] {
                    believed += Meeting { extra: *extra, from, to, place, index }.check(read);
                }
            }
            println!("{extra} more segments, from {from} to {to}: believed {believed} times");
            assert!(believed > 0);
        }
    }
}

#[test]
fn by_pinning_it() {
    meetings(by_pinning, &[0, 2]);
}

#[test]
fn by_the_segment_record() {
    meetings(by_record, &[0]);
}

/// Two threads take segments and give them back: none has what the other has, none is lost.
#[test]
fn no_segment_of_the_pool_has_two_owners() {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(|| {
        let memory = Arc::new(Memory::new(RING, 1, SEGMENT_WORDS));
        let round = |memory: &Memory, bit: u32| {
            let pool = memory.pool();
            for _ in 0..2 {
                let Some(taken) = pool.take() else { continue };
                let entry = &memory.entries[taken.index as usize];
                assert_eq!(entry.pins.swap(bit, Relaxed), 0, "nobody else has it");
                assert!(pool.release(taken.index, bit), "nobody else had it");
            }
        };
        let other = loom::thread::spawn({
            let memory = Arc::clone(&memory);
            move || round(&memory, pinned_by::RECORDER)
        });
        round(&memory, pinned_by::OWNER);
        other.join().unwrap();
        memory.check_accounts();
        assert_eq!(memory.pool().in_use.load(Relaxed), 0);
    });
}

/// Two processes request at the same time: the request lasts as long as one of them needs it; then
/// it is withdrawn.
#[test]
fn a_request_lasts_until_the_last_requester_ends() {
    const NOW: u64 = 1 << 32;
    loom::model(|| {
        let memory = Arc::new(Memory::new(RING, 0, SEGMENT_WORDS));
        let ask = |memory: &Memory, length: u64| {
            let pool = memory.pool();
            let mut request = GrowRequest::begin(&pool, || NOW, length);
            assert!(pool.grow_until.load(Relaxed) >= NOW + length);
            request.renew(length);
            assert!(pool.grow_until.load(Relaxed) >= NOW + length);
        };
        let other = loom::thread::spawn({
            let memory = Arc::clone(&memory);
            move || ask(&memory, 1 << 20)
        });
        ask(&memory, 1 << 10);
        other.join().unwrap();
        assert_eq!(memory.pool().grow_until.load(Relaxed), 0);
    });
}
