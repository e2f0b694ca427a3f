//! Makes space for the next words in a thread's ring: the clock's upper half, and the next segment.

use crate::state::arena::Arena;
use crate::state::{crash_file, dropped, trigger_table};
use crate::sys::{processes, system};
use crate::threads::short_calls::DROPPED_WORDS;
use crate::threads::thread::{Thread, UNSEEN};
use crate::threads::{armed_calls, begin, room};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use everycall_format::arena::{counter, stream};
use everycall_format::event::{gap, kind, payload_word, record_word, resumed};
use everycall_ring::{Advance, Shortage, Size};

/// Words of the GAP record of a stack that is resumed.
const RESUMED_WORDS: usize = 7;
/// After this many events of a thread, its name is read again (most threads set it soon after they
/// start), and its open-call stack gets into core dumps.
const FIRST_LOOK: usize = 64;
/// A thread that waits for a segment checks this often whether the recorder is still running.
const STALL_LOOK_NS: u64 = 100_000_000;

impl Thread<'_> {
    /// Makes space for `words` and updates the clock's upper half. Returns the event's time.
    pub(crate) fn prepare(&self, words: usize) -> u64 {
        self.prepare_for(words, false)
    }

    /// As [`Thread::prepare`], with `maybe_another` as [`Thread::is_maybe_another`] returns it.
    pub(crate) fn prepare_for(&self, words: usize, maybe_another: bool) -> u64 {
        if !self.ring.has_room(words + RESUMED_WORDS + DROPPED_WORDS) {
            self.advance();
        }
        let ticks = everycall_hooks::ticks();
        let high = (ticks >> 32) as u32;
        if self.control.ticks_high.load(Relaxed) != high {
            self.control.ticks_high.store(high, Relaxed);
            self.slot.ticks_high().store(high, Relaxed);
            self.ring.push(&[record_word(ticks, kind::EPOCH, 1, 0), payload_word(high, kind::EPOCH, 1)]);
            armed_calls::divert_armed_calls(self.process, &self.open);
            self.look_at_thresholds(ticks);
            if self.control.short.load(Relaxed) != 0 && self.ring.number() == 0 {
                // If short calls are dropped, the first segment may last for long.
                self.look_at_name();
            }
        }
        if self.control.resumed.load(Relaxed) != 0 {
            self.resumed(ticks, maybe_another);
        }
        ticks
    }

    /// Records that a stack is resumed.
    #[cold]
    pub(crate) fn resumed(&self, ticks: u64, maybe_another: bool) {
        let since = self.control.resumed.swap(0, Relaxed);
        if self.control.gap_ticks.load(Relaxed) != 0 {
            // The record of the gap covers this time, too.
            return;
        }
        if dropped::is_timing() {
            // The ring has no calls.
            return;
        }
        let since = if since == UNSEEN { self.last_ticks(ticks) } else { since.min(ticks) };
        self.ring.push(&[
            record_word(ticks, kind::GAP, 6, gap::SUSPENDED),
            payload_word(since as u32, kind::GAP, 1),
            payload_word((since >> 32) as u32, kind::GAP, 2),
            payload_word(self.open.depth(), kind::GAP, 3),
            payload_word(0, kind::GAP, 4),
            payload_word(self.control.runner.load(Relaxed) as u32, kind::GAP, 5),
            payload_word(if maybe_another { resumed::MAYBE_ANOTHER } else { 0 }, kind::GAP, 6),
        ]);
    }

    /// Continues in the next segment.
    pub(crate) fn advance(&self) {
        let arena = self.process.arena();
        begin::add_open_calls_to_dumps(arena, self.control);
        self.forget_cancellation();
        room::make_room(self.process, arena, false);
        room::look_at_clocks(self.process, arena);
        self.process.retired.keep_to_time(self.process);
        let streaming = arena.stream().load(Relaxed);
        let matching = armed_calls::look_at_open_calls(self.process, self);
        let high = self.control.ticks_high.load(Relaxed);
        self.learn_stretches();
        self.ring.close(everycall_hooks::ticks(), streaming != stream::OFF);
        let mut tries = if crash_file::is_file() { room::ROOM_TRIES } else { 0 };
        loop {
            // Read before the search for a segment, so that a segment returned meanwhile isn't
            // missed.
            let doorbell = arena.pool_doorbell().load(SeqCst);
            let ticks = everycall_hooks::ticks();
            let is_asked = arena.pool().grow_until.load(Relaxed) > ticks || trigger_table::are_awaited(arena);
            let waits = arena.stream().load(Relaxed) == stream::STALL;
            let how = Advance {
                ticks,
                open_calls: self.open.depth(),
                size: match matching {
                    _ if is_asked => Size::Grow(0),
                    Some(events) if trigger_table::may_grow(self.process) => Size::Grow(events),
                    Some(events) => Size::Stay(events),
                    None => Size::Limit,
                },
                shortage: match waits {
                    _ if tries > 0 => Shortage::Ask,
                    true => Shortage::Wait,
                    false => Shortage::Overwrite,
                },
            };
            // In the first lap, mapping all pages at once costs less than a page fault for each.
            // Only a hint.
            let populate = |address: u64, size: u64| {
                let _ = system::advise(address as *mut u8, size, system::MADV_POPULATE_WRITE);
            };
            if self.ring.advance(how, populate) {
                break;
            }
            if tries > 0 {
                tries -= 1;
                room::make_room(self.process, arena, true);
                continue;
            }
            wait_for_segment(arena, doorbell);
        }
        begin::add_segment_to_dumps(arena, self.control.current.load(Relaxed));
        trigger_table::count_beyond(self.process, self.control);
        if self.control.ticks_high.load(Relaxed) != high {
            armed_calls::divert_armed_calls(self.process, &self.open);
        }
        self.look_at_thresholds(everycall_hooks::ticks());
    }

    /// Lets hooks write again, with two exceptions in which every event must take the slow path:
    ///
    /// - The open-call stack could overflow within a segment. Hooks don't check its end, and may
    ///   push as many entries as the segment has words.
    /// - The innermost entry stands for a jump, whose target may have ended.
    pub(crate) fn resume(&self) {
        if self.control.deep.load(Relaxed) == 0
            && self.open.jumped().is_none()
            && self.open.room() > self.slot.segment_words() as u64
        {
            self.ring.resume();
            // Whatever comes between two events must not put off the first look.
            if self.control.dumped.load(Relaxed) == 0 && self.control.fiber.load(Relaxed) == 0 {
                let events = usize::try_from(self.ring.events()).unwrap_or(FIRST_LOOK);
                self.ring.end_after(FIRST_LOOK.saturating_sub(events));
            }
        }
    }
}

/// Waits until the recorder returns a segment. Doesn't wait if the pool's doorbell no longer has
/// the value `doorbell`, which the caller has read before. If the recorder has ended, no thread
/// waits any more.
#[cold]
fn wait_for_segment(arena: &Arena, doorbell: u32) {
    arena.pool_waiters().fetch_add(1, SeqCst);
    let begin = everycall_hooks::ticks();
    system::wait(arena.pool_doorbell(), doorbell, STALL_LOOK_NS);
    arena.count(counter::STALL_TICKS, everycall_hooks::ticks().saturating_sub(begin));
    arena.pool_waiters().fetch_sub(1, SeqCst);
    if arena.pool_doorbell().load(SeqCst) == doorbell && processes::process_has_ended(arena.recorder_pid()) {
        arena.stream().store(stream::OFF, Relaxed);
    }
}
