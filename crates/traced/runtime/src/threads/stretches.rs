//! Learns which events may go without a stamp, from the times of those in a segment.

use crate::state::stamps;
use crate::state::trigger_table::Triggers;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::Word;

/// A stretch of this many ticks is long: about half a microsecond.
const LONG: u32 = 1500;
/// Segments of a thread that are looked at as a whole, and words of later ones.
const FIRST_SEGMENTS: u64 = 8;
const LATER_WORDS: usize = 256;

/// Events from one stamp to the next that are looked at.
const RUN_MAX: usize = 16;
/// Entries whose exits are known as theirs.
const OPEN_MAX: usize = 64;

/// An event of the function whose entry is at a code offset.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Event {
    code: u32,
    is_exit: bool,
}

/// An exit of an unknown function. (No entry is at code offset 0.)
const NONE: Event = Event { code: 0, is_exit: true };

impl Thread<'_> {
    /// Looks at the events of the segment that is full.
    pub(crate) fn learn_stretches(&self) {
        if !stamps::are_left_out() {
            return;
        }
        // It began before that was chosen.
        if self.control.stamp_after.load(Relaxed) == 0 {
            stamps::begin_thread(self.control);
        }
        let words = self.ring.current().1;
        let first = match self.ring.number() {
            ..FIRST_SEGMENTS => 0,
            _ => words.len().saturating_sub(LATER_WORDS),
        };
        // A trigger compares their times.
        let triggers = Triggers::all(self.process.arena()).filter(|triggers| triggers.sites().count > 0);
        let is_followed = |code: u32| triggers.clone().any(|triggers| triggers.names(code));
        // The events from one stamp up to the next one, and the stamp.
        let mut run = [NONE; RUN_MAX];
        let (mut count, mut stamp) = (0, 0);
        // Code offsets of the entries that are open.
        let mut open = [0; OPEN_MAX];
        let mut depth = 0_usize;
        let mut module = 0;
        for word in words.get(first..).unwrap_or(&[]) {
            let (event, ticks) = match Word::decode(word.load(Relaxed)) {
                Word::Entry { offset, ticks_low } => {
                    if let Some(place) = open.get_mut(depth % OPEN_MAX) {
                        *place = offset;
                    }
                    depth += 1;
                    (Event { code: offset, is_exit: false }, ticks_low)
                }
                Word::Exit { ticks_low, .. } if depth > 0 => {
                    depth -= 1;
                    (
                        Event { code: open.get(depth % OPEN_MAX).copied().unwrap_or(0), is_exit: true },
                        ticks_low,
                    )
                }
                Word::Exit { ticks_low, .. } => (NONE, ticks_low),
                _ => {
                    count = 0;
                    continue;
                }
            };
            if count == 0 {
                stamp = ticks;
            } else if ticks != stamp {
                let was_long = ticks.wrapping_sub(stamp) > LONG;
                let run = run.iter().take(count).chain([&event]);
                for event in run.filter(|event| **event != NONE && !is_followed(event.code)) {
                    stamps::learn(event.code, event.is_exit, was_long, &mut module);
                }
                (count, stamp) = (0, ticks);
            }
            if let Some(place) = run.get_mut(count) {
                *place = event;
                count += 1;
            }
        }
    }
}
