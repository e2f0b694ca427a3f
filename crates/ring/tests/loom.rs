//! Every order in which a writer and a reader can meet under the C11 memory model, as far as loom knows it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p everycall-ring --test loom`
//!
//! Two ways of reading are in use, both are checked: by the published number before and after
//! ([`Reach`]), and by the segment's own record before and after, as `everycall-reader` does it for arenas
//! (with that crate's own `begins_segment`). What a reader believes of a word depends on no other word but
//! the segment's record, so each word is looked at on its own: that keeps the models small.
//!
//! `LOOM_MAX_PREEMPTIONS=3` makes a quick run of it, without it the search is complete.
#![cfg(loom)]

mod model;

use everycall_reader::event::begins_segment;
use everycall_ring::{Reach, SEGMENT_RECORD_WORDS, SPARE_WORDS};
use loom::sync::Arc;
use loom::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};
use model::{Memory, Writer, expected};
use std::sync::atomic::AtomicU64 as Plain;

/// Words of a segment: its record, an entry, an exit, and the spare ones, of which one is looked at.
const SEGMENT_WORDS: usize = EXIT + 1 + SPARE_WORDS;
const EXIT: usize = SEGMENT_RECORD_WORDS + 1;

/// One meeting: the writer has come to segment `from` and goes on to segment `to`, while the reader looks at
/// word `index` of the segment `back` before the one that it finds.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    segments: usize,
    blank: bool,
    from: u64,
    to: u64,
    back: u64,
    index: usize,
}

/// A word that a reader believes.
struct Belief {
    /// Number of the newest segment that it knew of.
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
            let memory = Arc::new(Memory::new(self.segments, SEGMENT_WORDS));
            let mut writer = Writer::start(&memory, self.blank);
            writer.reach(self.from, self.blank);
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
            Writer::resume(&memory, next).reach(self.to, self.blank);
            reader.join().unwrap();
        });
        believed.load(Relaxed)
    }

    fn judge(&self, memory: &Memory, &Belief { newest, number, word }: &Belief) {
        let right = expected(memory, number, self.index);
        let complete = number < newest || self.index < SEGMENT_RECORD_WORDS;
        // In the newest segment: not yet written, or an exit whose low half is to come.
        let half = right & !u64::from(u32::MAX);
        let coming = !complete && (word == 0 || self.index == EXIT && word == half);
        assert!(
            word == right || coming,
            "{self:?}: {word:#x} for {right:#x} in segment {number} of {newest}"
        );
    }
}

/// By the published number before and after.
fn by_reach(memory: &Memory, meeting: &Meeting) -> Option<Belief> {
    let newest = memory.published.load(Acquire);
    let number = newest.checked_sub(meeting.back)?;
    let word = memory.place(number)[meeting.index].load(Relaxed);
    fence(Acquire);
    let after = memory.published.load(Relaxed);
    let reach = Reach::between(newest, after, memory.segments())?;
    (reach.first..=reach.last).contains(&number).then_some(Belief { newest, number, word })
}

/// By the segment's record before and after.
fn by_record(memory: &Memory, meeting: &Meeting) -> Option<Belief> {
    let record = |number| -> Vec<u64> {
        memory.place(number).iter().take(SEGMENT_RECORD_WORDS).map(|word| word.load(Relaxed)).collect()
    };
    let newest = memory.published.load(Acquire);
    let number = newest.checked_sub(meeting.back)?;
    let copied = record(number);
    let word = match copied.get(meeting.index) {
        Some(word) => *word,
        None => memory.place(number)[meeting.index].load(Relaxed),
    };
    if !begins_segment(&copied, number) {
        return None;
    }
    fence(Acquire);
    (record(number) == copied).then_some(Belief { newest, number, word })
}

/// Every word of every segment that can be there, in the first lap, at its end and later.
fn meetings(read: Read) {
    for segments in [2, 4] {
        for (from, blank) in [(0, true), (segments as u64 - 1, true), (segments as u64 + 1, false)] {
            for back in 0..(segments as u64).min(from + 1) {
                let mut believed = 0;
                for index in 0..=EXIT + 1 {
                    let meeting = Meeting { segments, blank, from, to: from + 2, back, index };
                    believed += meeting.check(read);
                }
                println!("{segments} segments, from {from}, {back} back: believed {believed} times");
                // The oldest segment is about to be cleared: a reader may not believe it by the number.
                assert!(believed > 0 || back + 1 == segments as u64);
            }
        }
    }
}

#[test]
fn by_the_published_number() {
    meetings(by_reach);
}

#[test]
fn by_the_segment_record() {
    meetings(by_record);
}
