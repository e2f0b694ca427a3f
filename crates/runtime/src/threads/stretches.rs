//! Learns which events may go without a stamp, from the times of those in a segment.

use crate::state::stamps;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::Word;

/// A stretch of this many ticks is long: about half a microsecond.
const LONG: u32 = 1500;
/// Segments of a thread that are looked at as a whole, and words of later ones.
const FIRST_SEGMENTS: u64 = 8;
const LATER_WORDS: usize = 256;

impl Thread<'_> {
    /// Looks at the events of the segment that is full.
    pub(crate) fn learn_stretches(&self) {
        if !stamps::are_left_out() {
            return;
        }
        let words = self.ring.current().1;
        let first = match self.ring.number() {
            ..FIRST_SEGMENTS => 0,
            _ => words.len().saturating_sub(LATER_WORDS),
        };
        // The events from one stamp up to the next one, and the stamp.
        let mut run = 0..0;
        let mut stamp = 0;
        let words = words.get(first..).unwrap_or(&[]);
        for (index, word) in words.iter().enumerate() {
            let (Word::Entry { ticks_low, .. } | Word::Exit { ticks_low, .. }) =
                Word::decode(word.load(Relaxed))
            else {
                run = index + 1..index + 1;
                continue;
            };
            if run.is_empty() {
                stamp = ticks_low;
            } else if ticks_low != stamp {
                let was_long = ticks_low.wrapping_sub(stamp) > LONG;
                for word in words.get(run.start..=index).unwrap_or(&[]) {
                    stamps::learn(word.load(Relaxed) as u32, was_long);
                }
                (run, stamp) = (index..index, ticks_low);
            }
            run.end = index + 1;
        }
    }
}
