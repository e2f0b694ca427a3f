//! Writes entries, exits and unwound frames to the ring, and updates the open-call stack.

use crate::state::dropped;
use crate::state::places::Place;
use crate::state::recording;
use crate::state::selection;
use crate::threads::armed_calls::Fallen;
use crate::threads::open_calls::{Exit, Frame};
use crate::threads::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::counter;
use everycall_format::event::{self, EXIT, gap, kind, payload_word, record_word, unwound};
use everycall_ring::state;

/// The most words that one event needs: epoch 2, gap 5, caller 2, inlined calls 5, unknown code 3.
pub(crate) const EVENT_WORDS_MAX: usize = 17;

impl Thread<'_> {
    /// Records that all open calls were unwound, because the stack begins anew or ends. `how` is
    /// one of [`unwound`].
    pub(crate) fn leave_all(&self, how: u8) {
        self.control.jumped_to.store(0, Relaxed);
        if self.open.depth() > 0 || self.open.entries() > 0 {
            self.between_events(|thread| {
                let ticks = thread.prepare(EVENT_WORDS_MAX);
                thread.leave_innermost(ticks, u32::MAX, how);
            });
        }
    }

    /// Removes the frames that a jump from another stack to this one unwound. Called when the stack
    /// is resumed.
    pub(crate) fn leave_below_jump(&self) {
        let hook = self.control.jumped_to.swap(0, Relaxed);
        if hook != 0 {
            self.between_events(|thread| {
                let ticks = thread.prepare(EVENT_WORDS_MAX);
                // A program that switches stacks by jumps resumes the frame that it suspended, so
                // inlined calls in that frame are still open.
                thread.drop_below(ticks, hook, false);
            });
        }
    }

    /// Records something outside of hooks, if the thread records.
    pub(crate) fn between_events(&self, record: impl FnOnce(&Self)) {
        if self.control.state.load(Relaxed) != state::ACTIVE || self.control.busy.swap(1, Relaxed) != 0 {
            return;
        }
        self.ring.suspend();
        if !recording::stop_if_asked(self.control, &self.slot) {
            record(self);
            self.resume();
        }
        recording::look_again(self.control);
        self.control.busy.store(0, Relaxed);
    }

    /// Opens a call. Dead frames have been removed before, unless the stack may be another one.
    /// Returns whether the call is in the open-call stack.
    pub(crate) fn entry(&self, ticks: u64, place: Place, frame: Frame, maybe_another: bool) -> bool {
        if maybe_another {
            let begun = if let Place::Offset(code) = place { Some(code) } else { None };
            self.drop_gone(ticks, frame, begun);
        }
        let word = match place {
            Place::Offset(offset) => event::call_word(ticks, offset),
            Place::Unknown(_) => record_word(ticks, kind::UNKNOWN_CODE, 0, 0),
        };
        let is_there = self.open.push(word, (ticks >> 32) as u32, frame);
        if !is_there {
            self.slot.deep().fetch_add(1, Relaxed);
        }
        if dropped::is_timing() {
            self.time_entry(place, is_there);
        }
        self.write(ticks, place, 0);
        if !dropped::is_counting() {
            self.count_recorded(place);
        }
        is_there
    }

    /// Completes the slot of an exit hook that has read the clock, and that took the slow path
    /// because the call took long or is marked. `behind`: the code address after the hook's call.
    /// Returns false without effect if more has to be recorded.
    pub(crate) fn exit_in_place(
        &self,
        slot: &AtomicU64,
        place: Place,
        frame: Frame,
        behind: Option<u64>,
    ) -> bool {
        let word = slot.load(Relaxed);
        let Place::Offset(offset) = place else { return false };
        let is_read = word != 0 && word as u32 == 0;
        if !is_read
            || self.control.gap_ticks.load(Relaxed) != 0
            || self.open.find_exit(frame, offset) != Exit::Of(0)
        {
            return false;
        }
        slot.store(word | u64::from(EXIT | offset), Release);
        let now = everycall_hooks::ticks();
        let ticks = now.wrapping_sub((now as u32).wrapping_sub((word >> 32) as u32).into());
        self.learn_short(ticks);
        self.end_innermost(ticks, frame, behind);
        if self.open.depth() == 0 {
            self.look_at_name();
        }
        true
    }

    /// Removes the frames that are dead at `frame`, and records that.
    pub(crate) fn drop_dead(&self, ticks: u64, frame: Frame) {
        self.drop_gone(ticks, frame, None);
    }

    /// Removes the frames that are dead at `frame`, and records that. `begun` is the function that
    /// is entered, if one is: if a call of it is already open at the same stack pointer, that call
    /// and all calls inside it are dead, too.
    pub(crate) fn drop_gone(&self, ticks: u64, frame: Frame, begun: Option<u32>) {
        self.leave(ticks, unwound::NOTICED, |fallen| {
            self.open.drop_dead(frame, |call| fallen.add(self, call, ticks));
            let inside = begun.map_or(0, |code| self.open.count_from_same(frame, code));
            self.open.drop_frames(inside, |call| fallen.add(self, call, ticks));
        });
    }

    /// Removes the frames below a point at which the program is about to continue, and records
    /// that. At that point, a hook would have this stack pointer. `jumps`: the program jumps there,
    /// so the frame's function has called `setjmp`, and calls that were inlined into it are dead,
    /// too. (Compilers don't inline functions that call `setjmp`, except clang, into functions that
    /// call it themselves.)
    pub(crate) fn drop_below(&self, ticks: u64, hook: u64, jumps: bool) {
        self.leave(ticks, unwound::KNOWN, |fallen| {
            self.open.drop_below(hook, |call| fallen.add(self, call, ticks));
            // If functions were switched off, the outermost call at this stack pointer may be one
            // whose exit wasn't recorded, and the next one was called later from the same place.
            let is_inlined = jumps && !selection::may_have_left_out_entries();
            let inlined = if is_inlined { self.open.count_inlined(hook) } else { 0 };
            self.open.drop_frames(inlined, |call| fallen.add(self, call, ticks));
        });
    }

    pub(crate) fn exit(&self, ticks: u64, place: Place, frame: Frame, behind: Option<u64>) {
        let low = match place {
            Place::Offset(offset) => offset,
            Place::Unknown(_) => record_word(0, kind::UNKNOWN_CODE, 0, 0) as u32,
        };
        let found = self.open.find_exit(frame, low);
        if let Exit::Of(inside) = found {
            self.leave_innermost(ticks, inside, unwound::NOTICED);
            self.write(ticks, place, EXIT);
            self.end_innermost(ticks, frame, behind);
            if self.open.depth() == 0 {
                self.look_at_name();
            }
        } else {
            // If functions weren't selected, this may be the exit of a call on another stack, of
            // which no event was recorded yet. Then nothing is dead.
            if !selection::may_have_left_out_entries() {
                self.drop_dead(ticks, Frame::Body(frame.stack_pointer()));
            }
            if found == Exit::Orphan {
                self.slot.orphan_exits().fetch_add(1, Relaxed);
                if !selection::may_have_left_out_entries() && self.open.was_noticed(frame) {
                    self.process.arena().count(counter::FRAMES_MISPLACED, 1);
                }
            } else {
                self.drop_inside_uncounted(ticks);
            }
            if dropped::is_timing() {
                return;
            }
            let offset = if let Place::Offset(offset) = place { offset } else { 0 };
            self.ring.push(&[
                record_word(ticks, kind::ORPHAN_EXIT, 1, 0),
                payload_word(offset, kind::ORPHAN_EXIT, 1),
            ]);
        }
    }

    /// Removes the innermost `count` calls, records that they were unwound, and passes them to the
    /// triggers. `how` is one of [`unwound`].
    pub(crate) fn leave_innermost(&self, ticks: u64, count: u32, how: u8) {
        self.leave(ticks, how, |fallen| {
            self.open.drop_frames(count, |call| fallen.add(self, call, ticks));
        });
    }

    /// As [`Thread::leave_innermost`], for the calls that `remove` removes.
    pub(crate) fn leave(&self, ticks: u64, how: u8, remove: impl FnOnce(&mut Fallen)) {
        let mut fallen = Fallen::default();
        let (before, mark) = (self.open.depth(), self.open.mark());
        remove(&mut fallen);
        let count = before.saturating_sub(self.open.depth());
        if count > 0 && how == unwound::NOTICED {
            self.open.remember_noticed(mark);
        }
        self.left(ticks, count, how);
        fallen.post(self);
    }

    /// Records that `count` frames were unwound, down to the current depth: after a gap in the GAP
    /// record, otherwise in an UNWOUND record. `how` is one of [`unwound`].
    pub(crate) fn left(&self, ticks: u64, count: u32, how: u8) {
        let since = self.control.gap_ticks.load(Relaxed);
        self.control.gap_ticks.store(0, Relaxed);
        if dropped::is_timing() {
            // The ring has no calls.
            if since != 0 {
                self.control.handled.store(0, Relaxed);
                self.open.settle_all();
            }
            self.slot.unwound().fetch_add(u64::from(count), Relaxed);
            return;
        }
        if since != 0 {
            // Handlers that began during the gap weren't recorded.
            self.control.handled.store(0, Relaxed);
            self.open.settle_all();
            // Functions that return may have been entered during the gap.
            self.open.forget_noticed();
            let reason = self.control.gap_reason.swap(gap::DISABLED.into(), Relaxed) as u8;
            self.ring.push(&[
                record_word(ticks, kind::GAP, 4, reason),
                payload_word(since as u32, kind::GAP, 1),
                payload_word((since >> 32) as u32, kind::GAP, 2),
                payload_word(self.open.depth(), kind::GAP, 3),
                payload_word(count, kind::GAP, 4),
            ]);
        } else if count > 0 || matches!(how, unwound::INLINED | unwound::INLINED_IN_CLEANUP) {
            self.slot.unwound().fetch_add(u64::from(count), Relaxed);
            if self.open.depth() <= 1 {
                // pthread_exit or a cancellation may have ended the thread.
                self.look_at_name();
            }
            self.ring.push(&[
                record_word(ticks, kind::UNWOUND, 2, how),
                payload_word(self.open.depth(), kind::UNWOUND, 1),
                payload_word(count, kind::UNWOUND, 2),
            ]);
        }
    }

    pub(crate) fn write(&self, ticks: u64, place: Place, exit: u32) {
        match place {
            _ if dropped::is_timing() => {}
            Place::Offset(offset) => {
                self.write_values(ticks);
                self.ring.push(&[event::call_word(ticks, exit | offset)]);
            }
            Place::Unknown(address) => {
                self.process.arena().count(counter::UNKNOWN_CODE, 1);
                self.ring.push(&[
                    record_word(ticks, kind::UNKNOWN_CODE, 2, u8::from(exit != 0)),
                    payload_word(address as u32, kind::UNKNOWN_CODE, 1),
                    payload_word((address >> 32) as u32, kind::UNKNOWN_CODE, 2),
                ]);
            }
        }
    }

    /// Handles the exit of an inlined call that is no longer in the open-call stack. The inlined
    /// calls in its frame that are still there were inside it, so they were unwound.
    pub(crate) fn drop_inside_uncounted(&self, ticks: u64) {
        self.leave_innermost(ticks, self.open.innermost_inlined(), unwound::NOTICED);
    }
}
