//! Tail calls of armed functions, which triggers follow.
//!
//! The tail exit of such a function always takes the slow path. If a jump follows the hook's call
//! there, the call has ended in the trace, but for its trigger it continues in the jump's target.
//! It stays in the open-call stack, below an entry that stands for the jump. While that entry is
//! innermost, every event takes the slow path:
//!
//! - An entry with the call's stack pointer and return address: the jump led there, or the target
//!   has returned and the same instruction has made another call ([`Origin`]). If the jump led
//!   there, the call continues until the new call ends, perhaps by another tail call.
//! - An entry further inside, while the call's return address is still in its place: the target has
//!   made a call. The call continues.
//! - Any other event: the target ended some time ago. It is only known that the call took at most
//!   so long.
//!
//! Everything that removes frames (exceptions, `longjmp`, other stacks, ends of threads) removes
//! such calls, too.
#![allow(unsafe_code)] // The stack, the code behind a hook, and what a jump leads through.

use crate::state::dropped;
use crate::state::places::{self, Place};
use crate::state::process::Process;
use crate::state::trigger_table::{self, Triggers};
use crate::sys::system;
use crate::threads::armed_calls::{self, Fallen};
use crate::threads::open_calls::{self, Frame, JumpFacts, LastJump};
use crate::threads::stacks::bounds;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::unwound;
use everycall_format::trigger::jumped;
use everycall_hooks::arch::frame::{self, HOOK_BELOW};
use everycall_hooks::arch::jump::{self, HEAD, INSTRUCTION_MAX, Jump, Registers};

/// How an entry relates to the innermost call that ended by a tail call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// There is no such call, or the jump's target has ended.
    Nothing,
    /// The jump led to this entry, or may have.
    Target,
    /// The jump's target has made this call, directly or not.
    Inside,
}

/// Who has made a call that has the stack pointer and return address of a call that jumped to code
/// without hooks.
enum Origin {
    /// The caller, by the same instruction: the jump's target has returned.
    Caller,
    /// The jump's target, which has itself ended by a jump.
    Jump,
    /// Neither is certain.
    Unknown,
}

impl Thread<'_> {
    /// Ends the innermost open call, at a hook with this frame. Either a trigger follows its tail
    /// call, or triggers judge the call and those whose jumps led to it. `behind`: the code address
    /// after the hook's call, if that is in the function.
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
        if dropped::is_timing() {
            self.time_end(ticks);
            return self.open.end_innermost(|_| ());
        }
        armed_calls::judge(self, ticks);
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

    /// Ends the innermost call by a tail call that a trigger follows.
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
        armed_calls::judge_jump(self, &call, last);
        // A function that tail-calls itself, perhaps through others, would fill the stack. Its
        // first call is enough: it lasts until the last one ends.
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
        // SAFETY: an exit hook's stack pointer, in the slow path.
        let registers = unsafe { Registers::saved(frame.stack_pointer()) };
        self.control.jump_registers.store(registers.preserved(), Relaxed);
    }

    /// Decides how an entry at `place`, with this address in its function, relates to the innermost
    /// call that ended by a tail call. Ends that call if the jump's target has ended.
    pub(crate) fn meet_jump(&self, ticks: u64, frame: Frame, address: u64, place: Place) -> Met {
        let Some(jump) = self.open.jumped().and_then(|call| call.jump) else { return Met::Nothing };
        let met = self.met(&jump, frame, address, place);
        if met == Met::Nothing {
            self.end_jump(ticks);
        }
        met
    }

    /// Ends the innermost call that ended by a tail call: the jump's target has ended.
    pub(crate) fn end_jump(&self, ticks: u64) {
        self.leave(ticks, unwound::NOTICED, |fallen| {
            self.open.end_jump(|call| fallen.add(self, call, ticks));
        });
    }

    fn met(&self, jump: &JumpFacts, frame: Frame, address: u64, entered: Place) -> Met {
        let own = frame.stack_pointer();
        if open_calls::is_interrupted(jump.pointer, own) {
            return Met::Inside;
        }
        // Is the entry's frame not above the call's, and the call's return address still in its
        // place?
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
            Frame::Left(_) | Frame::ById(_) => false,
        };
        if !is_at_place {
            return Met::Inside;
        }
        let is_known = self.control.jump.load(Relaxed) == jump.place
            && leads_to(self.process, self.control.jump_target.load(Relaxed), frame, address);
        if is_known {
            self.open.mark_jump(jump, 0, jumped::PASSED);
        } else if jump.stamp & jumped::UNSURE != 0 {
            // Otherwise a loop that makes all its calls by one instruction would never end the
            // call.
            return Met::Nothing;
        } else {
            match self.origin(jump, frame, address, entered) {
                Origin::Caller => return Met::Nothing,
                Origin::Jump => self.open.mark_jump(jump, 0, jumped::PASSED),
                Origin::Unknown => self.open.mark_jump(jump, 0, jumped::PASSED | jumped::UNSURE),
            }
        }
        Met::Target
    }

    /// Who has made the call that was entered, of a function that isn't known to be the jump's
    /// target.
    fn origin(&self, jump: &JumpFacts, frame: Frame, address: u64, entered: Place) -> Origin {
        let code = match entered {
            Place::Offset(code) => Some(code),
            Place::Unknown(_) => None,
        };
        // A loop that calls one function. (That the target jumps back to the function that has
        // jumped to it looks the same, but hardly ever occurs.)
        if self.open.jumped_chain().any(|call| Some(call.code) == code) {
            return Origin::Caller;
        }
        if !frame.is_start() {
            return Origin::Unknown;
        }
        // SAFETY: an entry hook's stack pointer, in the slow path.
        let registers = unsafe { Registers::saved(frame.stack_pointer()) };
        // Jumps leave the registers that functions preserve as the caller had them. A loop has at
        // least its counter there, unless it isn't optimised.
        if self.control.jump.load(Relaxed) == jump.place
            && self.control.jump_registers.load(Relaxed) != registers.preserved()
        {
            return Origin::Caller;
        }
        // A direct call always leads to the same function.
        match self.first_called(frame, address, code) {
            true => Origin::Jump,
            false => Origin::Unknown,
        }
    }

    /// Whether the call instruction before the return address at this entry is a direct call of
    /// the first function in the chain of jumps, which is another one than the entered one, at
    /// `code`.
    fn first_called(&self, frame: Frame, address: u64, code: Option<u32>) -> bool {
        let Some(first) = self.open.jumped_chain().last() else { return false };
        let place_of = |code: u32| Some(places::address(self.process, code)?.0);
        let hook_of_first = || {
            let distance = address.wrapping_sub(place_of(code?)?);
            Some(place_of(first.code)?.wrapping_add(distance))
        };
        // SAFETY: an entry hook's stack pointer.
        let behind = unsafe { frame::function_returns_to(frame.stack_pointer()) };
        let mut call = [0; jump::CALL_SIZE];
        read_code(self.process, behind.wrapping_sub(jump::CALL_SIZE as u64), &mut call);
        jump::direct_call(call, behind)
            .zip(hook_of_first())
            .is_some_and(|(target, hook)| leads_to(self.process, target, frame, hook))
    }

    /// The last jump in a chain of tail calls that begins with `jump`, as far as it is known.
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

/// Ends the tail calls of a thread that has ended, with their jumps' targets.
pub(crate) fn judge_gone(thread: &Thread<'_>, ticks: u64) {
    let mut fallen = Fallen::of_gone();
    thread.open.end_jump(|call| fallen.add(thread, call, ticks));
    fallen.post(thread);
}

/// Whether a jump to `target` leads to the function whose entry hook has this frame and got this
/// address.
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
    // The dynamic linker has filled the slot by now, even if this jump was the first one through
    // it.
    if let Some(slot) = jump::stub_slot(&head, target) {
        return read_word(slot).is_some_and(is_entry);
    }
    // A thunk.
    jump::direct_jumps(&head, target).any(|target| target.abs_diff(address) < HEAD as u64 && is_entry(target))
}

/// The final target of a jump: `target`, or where it leads if it is a stub of the procedure linkage
/// table.
fn through_stub(process: &Process, target: u64) -> u64 {
    let mut head = [0; HEAD];
    if target != 0 {
        read_code(process, target, &mut head);
    }
    jump::stub_slot(&head, target).and_then(read_word).unwrap_or(target)
}

/// Copies code. If it can't be read, `code` stays as it is.
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

/// Reads the word through which a jump leads.
fn read_word(address: u64) -> Option<u64> {
    // SAFETY: readable; volatile, as the dynamic linker may write it.
    system::is_readable(address, 8).then(|| unsafe { (address as *const u64).read_unaligned() })
}
