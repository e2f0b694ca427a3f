//! Tail calls of armed functions: calls that a trigger follows behind the jump that ends them.
//!
//! The exit of such a call always comes to the slow path. If a jump follows the hook's call there,
//! the call has ended as far as the trace goes, but for its trigger it goes on with what the jump
//! leads to. It then stays in the open-call stack, below an entry that stands for the jump, and
//! every event that comes while that one is innermost takes the slow path:
//!
//! - An entry at the place of the call, with the same return address: the jump led there, or what
//!   it led to was left, and the same instruction has made another call. The code at the jump's
//!   target decides as far as it can. The call goes on until this one ends, by another jump
//!   perhaps.
//! - An entry further inside, with the return address still in its place: what the jump led to has
//!   made a call. The call goes on.
//! - Any other event: what the jump led to has ended, some time ago. All that is known is that it
//!   took at most so long.
//!
//! Everything that removes frames (exceptions, jumps, other stacks, ends of threads) removes such
//! calls as well.
#![allow(unsafe_code)] // The stack, the code behind a hook, and what a jump leads through.

use crate::state::places::{self, Place};
use crate::state::process::Process;
use crate::state::trigger_table::{self, Triggers};
use crate::sys::system;
use crate::threads::open_calls::{self, Frame, JumpFacts, LastJump};
use crate::threads::stacks::bounds;
use crate::threads::thread::Thread;
use crate::threads::triggers::{self, Fallen};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::unwound;
use everycall_format::trigger::jumped;
use everycall_hooks::arch::frame::{self, HOOK_BELOW};
use everycall_hooks::arch::jump::{self, HEAD, INSTRUCTION_MAX, Jump, Registers};

/// What an entry is to a call that has jumped away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// There is none.
    Nothing,
    /// The jump led to it, or may have.
    Target,
    /// It was called by what the jump led to.
    Inside,
}

impl Thread<'_> {
    /// The innermost open call ends, at a hook with this frame. Triggers get it, and those that had
    /// jumped to it; or it jumps away, and a trigger follows it. `behind`: the code behind the
    /// hook's call, if it lies in the function.
    pub(crate) fn end_innermost(&self, ticks: u64, frame: Frame, behind: Option<u64>) {
        if self.control.deep.load(Relaxed) != 0 {
            self.open.drop_frames(1, |_| ());
            return;
        }
        if let Some(behind) = behind
            && let Some(jump) = self.followed_jump(frame, behind)
        {
            return self.jump_away(ticks, frame, behind, jump);
        }
        triggers::judge(self, ticks);
        let mut fallen = Fallen::default();
        self.open.end_innermost(|call| fallen.add(self, call, ticks));
        fallen.post(self);
    }

    /// The jump by which the innermost call ends, if a trigger follows it.
    fn followed_jump(&self, frame: Frame, behind: u64) -> Option<Jump> {
        let arena = self.process.arena();
        if !Triggers::all(arena).any(|triggers| triggers.has_sites()) {
            return None;
        }
        let call = self.open.innermost_call()?;
        if !frame.is_start()
            || self.open.jumped_to_innermost().is_none() && !trigger_table::follows_tails_of(arena, call.code)
        {
            return None;
        }
        let mut code = [0; INSTRUCTION_MAX];
        read_code(self.process, behind, &mut code);
        // SAFETY: an exit hook's stack pointer, in the slow path.
        let registers = unsafe { Registers::saved(frame.stack_pointer()) };
        let jump = jump::behind_exit(&code, behind, &registers)?;
        let Jump::To(target) = jump else { return Some(jump) };
        let mut head = [0; HEAD];
        read_code(self.process, target, &mut head);
        (!jump::is_return_thunk(&head)).then_some(jump)
    }

    /// The innermost call jumps away.
    fn jump_away(&self, ticks: u64, frame: Frame, behind: u64, jump: Jump) {
        let code = match places::of(self.process, behind) {
            Place::Offset(code) => code,
            Place::Unknown(_) => 0,
        };
        let target = match jump {
            Jump::To(target) => target,
            Jump::Through(slot) => read_word(slot).unwrap_or(0),
            Jump::Somewhere => 0,
        };
        let Some(call) = self.open.innermost_call() else { return };
        let before = self.open.jumped_to_innermost().and_then(|call| call.jump);
        let follows = trigger_table::follows_tails_of(self.process.arena(), call.code);
        let last = LastJump { ticks, target: through_stub(self.process, target), code };
        triggers::judge_jump(self, &call, last);
        // One that calls itself in turn, through others perhaps, would fill the stack: the first
        // call goes on for as long as all that follow.
        let place = if follows && !self.open.is_in_chain(call.code) {
            // SAFETY: an exit hook's stack pointer, at which the function's frame is gone.
            let behind = unsafe { frame::function_returns_to(frame.stack_pointer()) };
            self.open.jump(ticks, behind)
        } else {
            None
        };
        let place = match (place, before) {
            (Some(place), _) => place,
            (None, Some(before)) => {
                self.open.take_back();
                self.open.mark_jump(&before, jumped::PASSED, 0);
                before.place
            }
            (None, None) => return self.open.take_back(),
        };
        self.control.jump.store(place, Relaxed);
        self.control.jump_ticks.store(ticks, Relaxed);
        self.control.jump_target.store(target, Relaxed);
        self.control.jump_code.store(code, Relaxed);
    }

    /// A call is entered, with this address in its function: what that means for a call that has
    /// jumped away.
    pub(crate) fn meet_jump(&self, ticks: u64, frame: Frame, address: u64) -> Met {
        let Some(jump) = self.open.jumped().and_then(|call| call.jump) else { return Met::Nothing };
        let met = self.met(&jump, frame, address);
        if met == Met::Nothing {
            self.end_jump(ticks);
        }
        met
    }

    /// What the innermost call that has jumped away has led to has ended.
    pub(crate) fn end_jump(&self, ticks: u64) {
        self.leave(ticks, unwound::NOTICED, |fallen| {
            self.open.end_jump(|call| fallen.add(self, call, ticks));
        });
    }

    fn met(&self, jump: &JumpFacts, frame: Frame, address: u64) -> Met {
        let own = frame.stack_pointer();
        if open_calls::is_interrupted(jump.pointer, own) {
            return Met::Inside;
        }
        // A frame below the call's: is the return address that it had still there?
        let place = jump.pointer + HOOK_BELOW;
        let is_there = own <= jump.pointer
            && place < self.control.stack_high.load(Relaxed)
            && (self.control.bounds.load(Relaxed) != bounds::GUESSED || system::is_readable(place, 8))
            // SAFETY: between the stack pointer and the stack's upper end.
            && jump.returns_to(unsafe { *(place as *const u64) });
        if !is_there {
            return Met::Nothing;
        }
        let is_at_place = match frame {
            Frame::Start(pointer) => pointer == jump.pointer,
            // SAFETY: the stack pointer of such a hook.
            Frame::Body(pointer) => jump.returns_to(unsafe { frame::call_site(pointer) }),
            Frame::Left(_) => false,
        };
        if !is_at_place {
            return Met::Inside;
        }
        let is_known = self.control.jump.load(Relaxed) == jump.place
            && leads_to(self.process, self.control.jump_target.load(Relaxed), frame, address);
        if is_known {
            self.open.mark_jump(jump, 0, jumped::PASSED);
        } else if jump.stamp & jumped::UNSURE != 0 {
            // Loops that make all their calls at one place would never end it.
            return Met::Nothing;
        } else {
            self.open.mark_jump(jump, 0, jumped::PASSED | jumped::UNSURE);
        }
        Met::Target
    }

    /// When and where to what a call that has jumped away led to last jumped on, as far as that is
    /// known.
    pub(crate) fn last_jump(&self, jump: &JumpFacts) -> LastJump {
        match self.control.jump.load(Relaxed) == jump.place {
            true => LastJump {
                ticks: self.control.jump_ticks.load(Relaxed),
                target: through_stub(self.process, self.control.jump_target.load(Relaxed)),
                code: self.control.jump_code.load(Relaxed),
            },
            false => LastJump { ticks: jump.ticks, ..LastJump::default() },
        }
    }
}

/// The thread with this slot and control block is gone: what its calls jumped to has ended, too.
pub(crate) fn judge_gone(thread: &Thread<'_>, ticks: u64) {
    let mut fallen = Fallen::of_gone();
    thread.open.end_jump(|call| fallen.add(thread, call, ticks));
    fallen.post(thread);
}

/// Whether a jump to `target` leads to the function in which this entry hook, in this frame, was
/// called with this address.
fn leads_to(process: &Process, target: u64, frame: Frame, address: u64) -> bool {
    let is_entry = |start: u64| {
        if !frame.is_start() {
            return start == address;
        }
        let mut head = [0; HEAD];
        read_code(process, start, &mut head);
        jump::is_entry_of(&head, start, address)
    };
    if target == 0 {
        return false;
    }
    if is_entry(target) {
        return true;
    }
    let mut head = [0; HEAD];
    read_code(process, target, &mut head);
    // The linkage table's slot holds the address by now, though the jump may have been the first.
    if let Some(slot) = jump::stub_slot(&head, target) {
        return read_word(slot).is_some_and(is_entry);
    }
    // A thunk.
    jump::direct_jumps(&head, target).any(|target| target.abs_diff(address) < HEAD as u64 && is_entry(target))
}

/// Where a jump to a stub of the linkage table has led; the address itself if that isn't one.
fn through_stub(process: &Process, target: u64) -> u64 {
    let mut head = [0; HEAD];
    if target != 0 {
        read_code(process, target, &mut head);
    }
    jump::stub_slot(&head, target).and_then(read_word).unwrap_or(target)
}

/// Copies code that is about to run or has run; what can't be read stays zero.
fn read_code(process: &Process, address: u64, code: &mut [u8]) {
    let is_known = places::is_within_module(process, address, code.len() as u64);
    if !is_known && !system::is_readable(address, code.len() as u64) {
        return;
    }
    for (byte, at) in code.iter_mut().zip(address..) {
        // SAFETY: readable; volatile, as sites are switched meanwhile.
        *byte = unsafe { (at as *const u8).read_volatile() };
    }
}

/// Reads what a jump leads through.
fn read_word(address: u64) -> Option<u64> {
    // SAFETY: readable; volatile, as the dynamic linker may write it.
    system::is_readable(address, 8).then(|| unsafe { (address as *const u64).read_unaligned() })
}
