//! The writer's slow half: takes slots one by one, and advances to the next segment.

use crate::arch::clear;
use crate::control_block::Control;
use crate::pool::{Pool, Taken};
use crate::primitive::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};
use everycall_format::arena::pinned_by;
use everycall_format::event::{self, WORD_SIZE, Word, kind};

/// Words of the record that begins each segment.
pub const SEGMENT_RECORD_WORDS: usize = 4;

/// Spare words at the end of each segment. A hook that finds its segment full has reserved one of
/// them. If a signal handler runs before the hook compares its slot, and advances to the next
/// segment, the hook accepts its slot and writes it: here, not over the next segment's record. The
/// spare words suffice for this number of hooks, each interrupted there by the next.
pub const SPARE_WORDS: usize = 8;

/// [`Control::position`] of a suspended ring. It is odd, so it is no slot's address, whatever hooks
/// add to it.
const ODD: u64 = 1;

const SPARE_BYTES: u64 = (SPARE_WORDS * WORD_SIZE) as u64;

/// Limit on the segments that are returned at a time, so that a thread with many of them doesn't
/// pause for long.
const GIVE_BACK_MAX: u32 = 16;

/// The action if the pool has no segment for a ring that may have one more, or for a ring whose
/// oldest segment others have pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Fail if the ring may have one more segment, so that the caller can enlarge the pool.
    Ask,
    /// Take the oldest segment nevertheless: processes that pinned it lose its events.
    Overwrite,
    /// Fail; the caller tries again later.
    Wait,
}

/// The policy of a ring at its limit of segments, or beyond. Segments beyond the limit that aren't
/// needed return to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// No segment is needed: the ring shrinks to its limit.
    Limit,
    /// Segments with events after the thread's first so many are needed. The ring keeps the
    /// segments that it has, but doesn't grow: it overwrites its oldest.
    Stay(u64),
    /// As [`Size::Stay`], but the ring grows while its oldest segment is needed and the pool has
    /// others.
    Grow(u64),
}

impl Size {
    /// Number of the thread's first events that aren't needed.
    fn needed_from(self) -> u64 {
        match self {
            Size::Limit => u64::MAX,
            Size::Stay(events) | Size::Grow(events) => events,
        }
    }
}

/// How a thread advances to its next segment.
#[derive(Clone, Copy, Debug)]
pub struct Advance {
    /// The time.
    pub ticks: u64,
    /// Open calls.
    pub open_calls: u32,
    /// The policy of a full ring.
    pub size: Size,
    /// The action if there is no segment.
    pub shortage: Shortage,
}

/// One thread's ring: its segments in the pool, its control block and the shared number of the
/// segment being written. All methods are for the owning thread, with signals blocked.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    pool: Pool<'a>,
    control: &'a Control,
    /// The number of the segment being written, as readers see it.
    published: &'a AtomicU64,
    /// The slot's generation.
    generation: u32,
}

impl<'a> Ring<'a> {
    /// The ring of the thread whose control block this is.
    #[must_use]
    pub fn new(pool: Pool<'a>, control: &'a Control, published: &'a AtomicU64, generation: u32) -> Ring<'a> {
        Ring { pool, control, published, generation }
    }

    /// Begins a ring of up to `limit` segments with number 0; `false` if the pool is empty.
    #[must_use]
    pub fn start(&self, limit: u32, ticks: u64, open_calls: u32) -> bool {
        let Some(taken) = self.pool.take() else { return false };
        let control = self.control;
        control.ring_limit.store(limit.max(2), Relaxed);
        control.ring_count.store(1, Relaxed);
        control.oldest.store(taken.index, Relaxed);
        control.current.store(taken.index, Relaxed);
        control.segment.store(0, Relaxed);
        control.events.store(0, Relaxed);
        self.open_segment(0, taken, ticks, open_calls);
        true
    }

    /// Ends the segment. Fills its unused words with fillers, so that each zero word is a lost
    /// event. `pinned_for_recorder`: pins the segment until the recorder has stored it.
    pub fn close(&self, ticks: u64, pinned_for_recorder: bool) {
        let control = self.control;
        if control.closed.swap(1, Relaxed) != 0 {
            return;
        }
        let end = control.segment_end.load(Relaxed);
        let used = end.min(self.cursor().load(Relaxed));
        control.events.store(self.events_up_to(used), Relaxed);
        self.cursor().store(used, Relaxed);
        for _ in 0..(end - used) as usize / WORD_SIZE + SPARE_WORDS {
            self.push(&[event::record_word(ticks, kind::FILLER, 0, 0)]);
        }
        if pinned_for_recorder {
            // Only the owner does this, so it can't fail.
            let _ = self.pool.pin(control.current.load(Relaxed), pinned_by::RECORDER);
        }
    }

    /// Advances to the next segment, after [`Ring::close`]. Calls `fresh` with the address and size
    /// in bytes of a segment that was never written to its end before. Returns false if there is no
    /// segment, with [`Shortage::Wait`] or [`Shortage::Ask`]: then nothing has changed.
    #[must_use]
    pub fn advance(&self, how: Advance, fresh: impl FnOnce(u64, u64)) -> bool {
        let Some(taken) = self.next_segment(how) else { return false };
        if taken.written < self.pool.segment_size() {
            fresh(self.pool.address(taken.index), self.pool.segment_size());
        }
        let control = self.control;
        let last = control.current.swap(taken.index, Relaxed);
        if let Some(entry) = self.pool.entries.get(last as usize) {
            entry.next.store(taken.index + 1, Relaxed);
        }
        self.open_segment(control.segment.load(Relaxed) + 1, taken, how.ticks, how.open_calls);
        true
    }

    fn next_segment(&self, how: Advance) -> Option<Taken> {
        let control = self.control;
        let limit = control.ring_limit.load(Relaxed);
        for _ in 0..GIVE_BACK_MAX {
            if control.ring_count.load(Relaxed) <= limit || self.needs_oldest(how.size) {
                break;
            }
            self.let_go();
        }
        let count = control.ring_count.load(Relaxed);
        let grows = matches!(how.size, Size::Grow(_)) && self.needs_oldest(how.size);
        let more = if count < limit {
            self.pool.take()
        } else if grows {
            self.pool.take_extra()
        } else {
            None
        };
        if more.is_some() {
            control.ring_count.store(count + 1, Relaxed);
            return more;
        }
        if how.shortage == Shortage::Ask && (count < limit || grows) {
            return None;
        }
        let oldest = control.oldest.load(Relaxed);
        if !self.pool.reuse(oldest) {
            // Others have pinned it: leave it to them if there is another one.
            if let Some(other) = self.pool.take_extra() {
                self.let_go();
                control.ring_count.store(count, Relaxed);
                return Some(other);
            }
            if how.shortage == Shortage::Wait {
                return None;
            }
            self.pool.seize(oldest);
        }
        self.forget_oldest();
        control.ring_count.store(count, Relaxed);
        Some(Taken { index: oldest, written: self.pool.segment_size() })
    }

    /// Whether the oldest segment has events that are needed, or is the only one.
    fn needs_oldest(&self, size: Size) -> bool {
        let entry = |index: u32| self.pool.entries.get(index as usize);
        let control = self.control;
        // The next event follows the current segment.
        let end = match entry(control.oldest.load(Relaxed)).map_or(0, |oldest| oldest.next.load(Relaxed)) {
            0 => control.events.load(Relaxed),
            next => entry(next - 1).map_or(0, |next| next.events_before.load(Relaxed)),
        };
        end > size.needed_from()
    }

    /// Releases the oldest segment: to the others that pinned it, otherwise to the pool.
    fn let_go(&self) {
        let oldest = self.forget_oldest();
        self.pool.release(oldest, pinned_by::OWNER);
    }

    /// Removes the oldest segment from the ring's list.
    fn forget_oldest(&self) -> u32 {
        let control = self.control;
        let oldest = control.oldest.load(Relaxed);
        let next = self.pool.entries.get(oldest as usize).map_or(0, |entry| entry.next.load(Relaxed));
        control.oldest.store(next.checked_sub(1).unwrap_or(oldest), Relaxed);
        control.ring_count.store(control.ring_count.load(Relaxed).saturating_sub(1), Relaxed);
        oldest
    }

    /// Releases all segments. For ended threads with rings that are no longer read.
    /// `pinned_for_recorder`: pins the last one until the recorder has stored it, like those before
    /// it.
    pub fn give_up(&self, pinned_for_recorder: bool) {
        let control = self.control;
        let current = control.current.load(Relaxed);
        if pinned_for_recorder {
            // Only the owner does this, so it can't fail.
            let _ = self.pool.pin(current, pinned_by::RECORDER);
        }
        if let Some(entry) = self.pool.entries.get(current as usize) {
            // An interrupted hook may have written beyond the position.
            let used = self.cursor().load(Relaxed).saturating_sub(self.pool.address(current));
            entry.written.store((used + SPARE_BYTES).min(self.pool.segment_size()), Relaxed);
        }
        for _ in 0..self.control.ring_count.load(Relaxed) {
            self.let_go();
        }
    }

    /// The number of events before the current segment, and its reserved words.
    #[must_use]
    pub fn current(&self) -> (u64, &'a [AtomicU64]) {
        let control = self.control;
        let begin = self.pool.address(control.current.load(Relaxed));
        let used = control.segment_end.load(Relaxed).min(self.cursor().load(Relaxed));
        let words = self.pool.segment(control.current.load(Relaxed));
        let count = used.saturating_sub(begin) as usize / WORD_SIZE;
        (control.events.load(Relaxed), words.get(..count).unwrap_or(words))
    }

    /// Address of the next word.
    fn cursor(&self) -> &'a AtomicU64 {
        let control = self.control;
        if control.suspended_position.load(Relaxed) != 0 {
            &control.suspended_position
        } else {
            &control.position
        }
    }

    /// Number of the segment that is being written.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.control.segment.load(Relaxed)
    }

    /// Number of entries and exits that the thread has written, including events that were lost
    /// because their slots stayed empty. (A slot that was given up while its hook was interrupted,
    /// and that the hook then writes nevertheless, isn't counted.)
    #[must_use]
    pub fn events(&self) -> u64 {
        match self.control.closed.load(Relaxed) {
            0 => self.events_up_to(self.control.segment_end.load(Relaxed).min(self.cursor().load(Relaxed))),
            _ => self.control.events.load(Relaxed),
        }
    }

    /// Entries and exits written up to `address` in the current segment: all words except those of
    /// other records.
    fn events_up_to(&self, address: u64) -> u64 {
        let control = self.control;
        let begin = self.pool.address(control.current.load(Relaxed));
        let words = address.saturating_sub(begin) / WORD_SIZE as u64;
        control.events.load(Relaxed) + words.saturating_sub(control.other_words.load(Relaxed))
    }

    fn open_segment(&self, number: u64, taken: Taken, ticks: u64, open_calls: u32) {
        let control = self.control;
        let segment = self.pool.segment(taken.index);
        // The mark comes first, so that the segment can't be pinned from here on. The fences order
        // what a reader may see; where the processor keeps stores in order, they cost nothing.
        self.pool.seize(taken.index);
        // The first word is cleared first: a reader that finds the old record finds the whole old
        // segment, and one that doesn't knows that the segment is being cleared. So a reader that
        // sees ...
        let written = (taken.written as usize).div_ceil(WORD_SIZE);
        if let Some((first, rest)) = segment.get(..written).and_then(<[_]>::split_first) {
            fence(Release); // ... any word cleared also sees the mark,
            first.store(0, Relaxed);
            fence(Release); // ... a later word cleared also sees the old record gone,
            clear(rest);
            fence(Release); // ... a word of the new record also sees the segment cleared.
        }
        let slot = control.slot.load(Relaxed);
        self.pool.begin(taken.index, slot, self.generation, number, control.events.load(Relaxed));
        let record = [
            event::record_word(ticks, kind::SEGMENT, (SEGMENT_RECORD_WORDS - 1) as u8, 0),
            event::payload_word((ticks >> 32) as u32, kind::SEGMENT, 1),
            event::payload_word(open_calls, kind::SEGMENT, 2),
            event::payload_word(number as u32, kind::SEGMENT, 3),
        ];
        for (word, value) in segment.iter().zip(record) {
            word.store(value, Relaxed);
        }
        self.pool.open(taken.index);
        self.published.store(number, Release);

        let address = self.pool.address(taken.index);
        let end = address + (self.pool.segment_words.saturating_sub(SPARE_WORDS) * WORD_SIZE) as u64;
        control.segment.store(number, Relaxed);
        control.segment_end.store(end, Relaxed);
        control.other_words.store(SEGMENT_RECORD_WORDS as u64, Relaxed);
        control.closed.store(0, Relaxed);
        control.ticks_high.store((ticks >> 32) as u32, Relaxed);
        let next = address + (SEGMENT_RECORD_WORDS * WORD_SIZE) as u64;
        if control.suspended_position.load(Relaxed) != 0 {
            control.suspended_position.store(next, Relaxed);
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

    /// Writes `record` into the next slots; the caller has checked that it fits.
    pub fn push(&self, record: &[u64]) {
        let control = self.control;
        let cursor = self.cursor();
        let position = cursor.load(Relaxed);
        cursor.store(position + (record.len() * WORD_SIZE) as u64, Relaxed);
        for (word, value) in self.words_from(position).iter().zip(record) {
            // In order: who sees a word sees those before it.
            word.store(*value, Release);
        }
        let others = record.len() as u64
            - u64::from(record.first().is_some_and(|word| Word::decode(*word).is_event()));
        control.other_words.store(control.other_words.load(Relaxed) + others, Relaxed);
    }

    /// Turns a slot that a hook has reserved into a filler: its event takes another slot.
    pub fn give_up_slot(&self, slot: &AtomicU64, ticks: u64) {
        slot.store(event::record_word(ticks, kind::FILLER, 0, 0), Relaxed);
        let control = self.control;
        control.other_words.store(control.other_words.load(Relaxed) + 1, Relaxed);
    }

    /// The pool's words from `address` on.
    fn words_from(&self, address: u64) -> &'a [AtomicU64] {
        self.pool.words.get(address.wrapping_sub(self.pool.base) as usize / WORD_SIZE..).unwrap_or(&[])
    }

    /// Sends hooks to the slow path after `words` more words, though the segment continues.
    pub fn end_after(&self, words: usize) {
        let control = self.control;
        let end = control.position.load(Relaxed) + (words * WORD_SIZE) as u64;
        if end < control.end.load(Relaxed) {
            control.end.store(end, Relaxed);
            control.stamp_due.store(0, Relaxed);
        }
    }

    /// Sends every event to the slow path from now on ([`Ring::push`] continues after the hooks'
    /// last slot). Slots that hooks have reserved beyond an early end ([`Ring::end_after`]) become
    /// fillers: one of those hooks may not have compared its slot yet, and will accept it.
    pub fn suspend(&self) {
        let control = self.control;
        if control.suspended_position.load(Relaxed) == 0 {
            let position = control.position.load(Relaxed);
            let last = position.min(control.segment_end.load(Relaxed));
            let end = match control.end.load(Relaxed) {
                0 => self.written_up_to(last),
                end => end,
            };
            let reserved = end..last;
            for address in reserved.step_by(WORD_SIZE) {
                if let Some(word) = self.words_from(address).first() {
                    self.give_up_slot(word, 0);
                }
            }
            control.suspended_position.store(position, Relaxed);
            control.stop_hooks();
            // The runtime may have interrupted a hook that is dropping a call. That hook must not
            // find its slots at the end of the ring, because others follow them from here on.
            control.position.store(ODD, Relaxed);
        }
    }

    /// Start of the unwritten slots before `address`. Another thread has set the end to 0, so it is
    /// unknown how many hooks have reserved a slot since. Their slots are the last ones before the
    /// position.
    fn written_up_to(&self, address: u64) -> u64 {
        let begin = self.pool.address(self.control.current.load(Relaxed));
        let mut first = address;
        while first > begin
            && self.words_from(first - WORD_SIZE as u64).first().is_some_and(|word| word.load(Relaxed) == 0)
        {
            first -= WORD_SIZE as u64;
        }
        first
    }

    /// Lets hooks write without the slow path again.
    pub fn resume(&self) {
        let control = self.control;
        let suspended = control.suspended_position.load(Relaxed);
        if suspended != 0 {
            control.position.store(suspended, Relaxed);
            control.suspended_position.store(0, Relaxed);
            control.end.store(control.segment_end.load(Relaxed), Relaxed);
        }
    }
}
