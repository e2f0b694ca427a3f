//! The open-call stack of the calling thread, as the slow path sees it.
//!
//! The stack pointer in an entry is that of the call's entry hook. Stacks grow downwards, so an
//! entry whose stack pointer isn't above that of a new call belongs to a dead frame: an exception,
//! `longjmp` or a signal handler that never returned has unwound it. (An entry whose word is 0
//! comes from a hook that was interrupted after it had raised the top and before it wrote the word.
//! Its stack pointer is valid.)
#![allow(unsafe_code)] // Entries of open-call stacks, by their addresses.

use crate::state::{dropped, selection};
use crate::threads::deep_calls::DeepCalls;
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};
use everycall_format::arena::{OpenCall, met, met_bits, ticks_of};
use everycall_format::event::EXIT;
use everycall_format::frame::is_frame;
use everycall_format::trigger::{is_jump, jump_word, jumped};
use everycall_hooks::arch::frame::{ENTRY_BELOW_EXIT, HOOK_BELOW};
use everycall_ring::{Control, NOTICED};

const ENTRY: u64 = size_of::<OpenCall>() as u64;
/// Marks a call whose exit must take the slow path: the stored stack pointer is this far above or
/// below a multiple of 8.
const DIVERTED: u64 = 1;

/// How far below the call around it a frame by id is in the open-call stack.
const BY_ID_BELOW: u64 = 8;
/// Unit of the stamps of frames by id.
const WORD: u64 = 8;

/// The most bytes of arguments that a frame may have pushed.
const PUSHED_MAX: u64 = 64 << 10;
/// Limit on the calls inlined into one frame that are searched.
const INLINED_MAX: usize = 64;

/// The state of a frame that inlined calls share. It is stored in the low three bits of the stack
/// pointer of the frame's outermost call. Hooks within the frame still recognise that call.
pub(crate) mod shared {
    /// No state.
    pub(crate) const NONE: u64 = 0;
    /// An exception has reached the frame and will be handled there, after cleanups.
    pub(crate) const CATCHES: u64 = 2;
    /// As [`CATCHES`], for an exception within the cleanup for another one.
    pub(crate) const CATCHES_WITHIN: u64 = 3;
    /// An exception is unwinding the frame, which cleans up.
    pub(crate) const LEFT: u64 = 4;
    /// An exception was handled. Some inlined calls may still run that aren't in the open-call
    /// stack any more.
    pub(crate) const HANDLED: u64 = 6;
}

/// An open call that is known.
#[derive(Clone, Copy)]
struct SharedCall {
    stack_pointer: u64,
    /// The low half of its entry's word.
    function: u32,
    /// One of [`shared`].
    shared: u64,
    /// Whether it ended by a tail call that a trigger follows, or stands for that jump: it isn't
    /// open.
    has_jumped: bool,
}

/// An open call.
#[derive(Clone, Copy)]
pub(crate) struct OpenCallFacts {
    /// Code offset of its entry.
    pub(crate) code: u32,
    /// When it was entered.
    pub(crate) ticks: u64,
    /// [`everycall_format::arena::OpenCall::stamp`].
    pub(crate) stamp: u32,
    /// The conditions that it met when it was entered, a bit for each.
    pub(crate) met: u32,
    /// The jump, if the call ended by a tail call that a trigger follows.
    pub(crate) jump: Option<JumpFacts>,
}

/// A tail call that a trigger follows.
#[derive(Clone, Copy)]
pub(crate) struct JumpFacts {
    /// When it jumped.
    pub(crate) ticks: u64,
    /// A set of the flags in [`jumped`], and the return address's lowest bits.
    pub(crate) stamp: u32,
    /// The stack pointer that its hooks had.
    pub(crate) pointer: u64,
    /// Address of the jump's entry in the open-call stack.
    pub(crate) place: u64,
    /// Whether it is only known that the jump's target has ended, and not when.
    pub(crate) at_most: bool,
    /// With `at_most`: the call had not ended before that time.
    pub(crate) at_least_until: u64,
}

impl JumpFacts {
    /// Whether the call above is, or may be, the one that the jump led to.
    pub(crate) fn is_passed(&self) -> bool {
        self.stamp & jumped::PASSED != 0
    }

    /// Whether `behind` may be the return address of the call that jumped (its stored bits match).
    pub(crate) fn returns_to(&self, behind: u64) -> bool {
        self.stamp >> jumped::RETURN_SHIFT == return_bits(behind)
    }
}

/// The last jump of a call, or of the functions that it reached by tail calls.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastJump {
    pub(crate) ticks: u64,
    /// The address to which it led; 0 if unknown.
    pub(crate) target: u64,
    /// The code offset of the exit at it; 0 if unknown.
    pub(crate) code: u32,
}

/// The bits of a return address that a jump's entry keeps.
fn return_bits(behind: u64) -> u32 {
    behind as u32 & (u32::MAX >> jumped::RETURN_SHIFT)
}

/// The result of matching an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// An open call. This many frames inside it are dead.
    Of(u32),
    /// A call that was inlined into the innermost frame and still runs, but isn't in the open-call
    /// stack any more.
    Uncounted,
    /// No open call.
    Orphan,
}

/// The open calls of one thread.
pub(crate) struct OpenCalls<'a> {
    control: &'a Control,
}

/// How a hook's stack pointer compares with those of open calls.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// The stack pointer at the function's first instruction: no other open frame has it.
    Start(u64),
    /// A stack pointer within the function's frame, which inlined calls share.
    Body(u64),
    /// The function has released its frame and jumped to its exit hook: the stack pointer is above
    /// the frame.
    Left(u64),
    /// A stack pointer below a [frame by id](everycall_format::frame).
    ById(u64),
}

impl Frame {
    pub(crate) fn stack_pointer(self) -> u64 {
        match self {
            Frame::Start(pointer) | Frame::Body(pointer) | Frame::Left(pointer) | Frame::ById(pointer) => {
                pointer
            }
        }
    }

    pub(crate) fn is_start(self) -> bool {
        matches!(self, Frame::Start(_))
    }

    /// Whether an open call with this stack pointer is dead when a call is entered here.
    fn ends_at_entry(self, entry: u64) -> bool {
        match self {
            Frame::Start(pointer) => entry <= pointer,
            Frame::Body(pointer) | Frame::Left(pointer) | Frame::ById(pointer) => entry < pointer,
        }
    }
}

impl<'a> OpenCalls<'a> {
    pub(crate) fn new(control: &'a Control) -> OpenCalls<'a> {
        OpenCalls { control }
    }

    fn top(&self) -> u64 {
        self.control.open_top.load(Relaxed)
    }

    fn first(&self) -> u64 {
        self.control.open_base.load(Relaxed) + ENTRY
    }

    /// Number of open calls, including those beyond the stack's capacity.
    pub(crate) fn depth(&self) -> u32 {
        let jumped = self.control.jumps.load(Relaxed).saturating_mul(2);
        self.entries().saturating_sub(jumped).saturating_add(self.deep().count())
    }

    /// The open calls beyond the stack's capacity.
    fn deep(&self) -> DeepCalls<'a> {
        DeepCalls::of(self.control)
    }

    /// The open calls that are known, innermost first.
    fn outwards_known(&self) -> impl Iterator<Item = SharedCall> {
        // Read once: in a forked child, the control block may be wiped.
        let top = self.top();
        let count = top.saturating_sub(self.first()) / ENTRY;
        let entries = (1..=count).map(move |count| {
            let entry = top - count * ENTRY;
            SharedCall {
                stack_pointer: self.own_pointer(entry),
                function: self.facts(entry).code,
                shared: self.shared(entry),
                has_jumped: self.has_jumped(entry),
            }
        });
        let deep = self.deep().innermost();
        deep.map(|(stack_pointer, function)| SharedCall {
            stack_pointer,
            function,
            shared: shared::NONE,
            has_jumped: false,
        })
        .chain(entries)
    }

    /// The open calls that are known, innermost first, each with its number counted from the
    /// innermost. Empty if the innermost calls aren't known.
    fn outwards(&self) -> impl Iterator<Item = (u32, SharedCall)> {
        let count = if self.deep().unknown() == 0 { usize::MAX } else { 0 };
        (1..).zip(self.outwards_known()).take(count)
    }

    /// The address behind the innermost call's entry, for [`OpenCalls::remember_noticed`].
    pub(crate) fn mark(&self) -> u64 {
        self.top()
    }

    /// Remembers the calls that have just been removed because they were found unwound: those up to
    /// `mark`.
    #[cold]
    pub(crate) fn remember_noticed(&self, mark: u64) {
        for entry in (self.top()..mark).step_by(ENTRY as usize).take(NOTICED) {
            let pointer = self.own_pointer(entry);
            self.noticed(pointer).store(pointer, Relaxed);
        }
    }

    /// Whether the call that returns at `frame` was found unwound before, so that it wasn't.
    pub(crate) fn was_noticed(&self, frame: Frame) -> bool {
        // Many frames by id have one stack pointer; who reports them reports misplaced ones, too.
        let (Frame::Start(own) | Frame::Body(own) | Frame::Left(own)) = frame else { return false };
        let pointers = [own, own.wrapping_sub(ENTRY_BELOW_EXIT)];
        pointers.into_iter().any(|pointer| self.noticed(pointer).load(Relaxed) == pointer)
    }

    /// Forgets the calls that were found unwound.
    pub(crate) fn forget_noticed(&self) {
        self.control.noticed.iter().for_each(|place| place.store(0, Relaxed));
    }

    /// The place for a call with this stack pointer that was found unwound.
    fn noticed(&self, pointer: u64) -> &'a AtomicU64 {
        let place = pointer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        &self.control.noticed[place as usize & (NOTICED - 1)]
    }

    /// Number of entries that still fit.
    pub(crate) fn room(&self) -> u64 {
        self.control.open_limit.load(Relaxed).saturating_sub(self.top()) / ENTRY
    }

    fn word(&self, entry: u64) -> &'a AtomicU64 {
        // SAFETY: callers pass addresses between the first entry and the limit.
        unsafe { &*((entry + offset_of!(OpenCall, word) as u64) as *const AtomicU64) }
    }

    fn stack_pointer(&self, entry: u64) -> &'a AtomicU64 {
        // SAFETY: as above.
        unsafe { &*((entry + offset_of!(OpenCall, stack_pointer) as u64) as *const AtomicU64) }
    }

    /// The upper half of an entry's ticks. Hooks write it together with the stamp, which follows
    /// it.
    fn ticks_high(&self, entry: u64) -> &'a AtomicU32 {
        // SAFETY: as above.
        unsafe { &*((entry + offset_of!(OpenCall, ticks_high) as u64) as *const AtomicU32) }
    }

    fn stamp(&self, entry: u64) -> &'a AtomicU32 {
        // SAFETY: as above.
        unsafe { &*((entry + offset_of!(OpenCall, stamp) as u64) as *const AtomicU32) }
    }

    fn facts(&self, entry: u64) -> OpenCallFacts {
        let word = self.word(entry).load(Relaxed);
        let ticks_high = self.ticks_high(entry).load(Relaxed);
        OpenCallFacts {
            code: word as u32 & !EXIT,
            ticks: ticks_of(ticks_high, word),
            met: met(ticks_high),
            stamp: if self.is_recorded_frame(entry) { 0 } else { self.stamp(entry).load(Relaxed) },
            jump: self.jump_of(entry),
        }
    }

    /// Whether the call at `entry` is a frame by id whose stamp says how deep its hook was.
    fn is_recorded_frame(&self, entry: u64) -> bool {
        is_frame(self.word(entry).load(Relaxed) as u32 & !EXIT) && !dropped::is_timing()
    }

    /// Whether the call at `entry` ended by a tail call that a trigger follows, or `entry` stands
    /// for that jump.
    fn has_jumped(&self, entry: u64) -> bool {
        is_jump(self.word(entry).load(Relaxed)) || self.jump_of(entry).is_some()
    }

    /// The jump of the call at `entry`.
    fn jump_of(&self, entry: u64) -> Option<JumpFacts> {
        let place = entry + ENTRY;
        let word = if place < self.top() { self.word(place).load(Relaxed) } else { 0 };
        let ticks = ticks_of(self.ticks_high(place).load(Relaxed), word);
        is_jump(word).then(|| JumpFacts {
            ticks,
            stamp: self.stamp(place).load(Relaxed),
            pointer: self.own_pointer(place),
            place,
            at_most: false,
            at_least_until: ticks,
        })
    }

    /// The innermost call, if it ended by a tail call that a trigger follows, and no call is open
    /// inside the jump's target.
    pub(crate) fn jumped(&self) -> Option<OpenCallFacts> {
        if self.control.jumps.load(Relaxed) == 0 || self.deep().count() > 0 {
            return None;
        }
        let entry = self.top().wrapping_sub(2 * ENTRY);
        (entry >= self.first() && self.jump_of(entry).is_some()).then(|| self.facts(entry))
    }

    /// The call whose jump led, or may have led, to the innermost open call.
    pub(crate) fn jumped_to_innermost(&self) -> Option<OpenCallFacts> {
        if self.control.jumps.load(Relaxed) == 0 || self.deep().count() > 0 {
            return None;
        }
        let entry = self.top().wrapping_sub(3 * ENTRY);
        let jump = if entry >= self.first() { self.jump_of(entry) } else { None };
        jump.filter(JumpFacts::is_passed).map(|_| self.facts(entry))
    }

    /// Whether a call of the function at `code` is in the chain of tail calls that led to the
    /// innermost call.
    pub(crate) fn is_in_chain(&self, code: u32) -> bool {
        let last = self.top().wrapping_sub(3 * ENTRY);
        self.chain(last, self.jump_at(last).filter(JumpFacts::is_passed)).any(|call| call.code == code)
    }

    /// The innermost call, if it ended by a tail call ([`OpenCalls::jumped`]), and the calls whose
    /// jumps led to it. The outermost one comes last.
    pub(crate) fn jumped_chain(&self) -> impl Iterator<Item = OpenCallFacts> {
        let last = self.top().wrapping_sub(2 * ENTRY);
        self.chain(last, self.jump_at(last))
    }

    /// The jump of the call at `entry`, if there is such an entry.
    fn jump_at(&self, entry: u64) -> Option<JumpFacts> {
        if entry >= self.first() && entry < self.top() { self.jump_of(entry) } else { None }
    }

    /// The call at `entry`, whose jump is `jump`, and the calls whose jumps led to it.
    fn chain(&self, entry: u64, jump: Option<JumpFacts>) -> impl Iterator<Item = OpenCallFacts> {
        let around = |entry: &u64| {
            let entry = entry.wrapping_sub(2 * ENTRY);
            self.jump_at(entry).filter(JumpFacts::is_passed).map(|_| entry)
        };
        core::iter::successors(jump.map(|_| entry), around).map(|entry| self.facts(entry))
    }

    /// Adds an entry for a jump of the innermost call, which ends by it and stays in the stack.
    /// Returns the address of that entry; `None` if there is no room.
    pub(crate) fn jump(&self, ticks: u64, behind: u64) -> Option<u64> {
        let call = self.innermost()?;
        if self.room() == 0 || self.deep().count() > 0 {
            return None;
        }
        let place = self.top();
        self.control.jumps.fetch_add(1, Relaxed);
        self.stack_pointer(place).store(self.own_pointer(call), Relaxed);
        self.ticks_high(place).store((ticks >> 32) as u32, Relaxed);
        self.stamp(place).store(return_bits(behind) << jumped::RETURN_SHIFT, Relaxed);
        self.control.open_top.store(place + ENTRY, Relaxed);
        self.word(place).store(jump_word(ticks), Relaxed);
        Some(place)
    }

    /// Changes the flags of a jump.
    pub(crate) fn mark_jump(&self, jump: &JumpFacts, clear: u32, set: u32) {
        self.stamp(jump.place).store(jump.stamp & !clear | set, Relaxed);
    }

    /// Removes the innermost call, and the calls whose jumps led to it. Passes the latter to
    /// `jumped`.
    pub(crate) fn end_innermost(&self, jumped: impl FnMut(OpenCallFacts)) {
        self.pop();
        self.end_passed(None, jumped);
    }

    /// Removes the innermost call, if it ended by a tail call, and the calls whose jumps led to it:
    /// the jump's target ended some time ago. Passes them to `jumped`.
    pub(crate) fn end_jump(&self, mut jumped: impl FnMut(OpenCallFacts)) {
        if self.jumped().is_some() {
            self.remove_innermost(&mut jumped);
        }
    }

    /// Removes the innermost call, and the calls whose jumps led to it. Passes them to `left`.
    fn remove_innermost(&self, left: &mut impl FnMut(OpenCallFacts)) {
        let Some(entry) = self.innermost() else { return };
        if !is_jump(self.word(entry).load(Relaxed)) {
            left(self.facts(entry));
            self.pop();
            return self.end_passed(None, left);
        }
        let mut call = self.facts(entry - ENTRY);
        let at_least_until = call.jump.as_mut().map(|jump| {
            jump.at_most = true;
            jump.at_least_until
        });
        self.pop();
        self.pop();
        left(call);
        self.end_passed(at_least_until, left);
    }

    /// Removes the innermost calls whose jumps led to a call that has ended. Passes them to `left`.
    /// `at_least_until`: when that call had not ended yet, if it isn't known when it ended.
    fn end_passed(&self, mut at_least_until: Option<u64>, mut left: impl FnMut(OpenCallFacts)) {
        while let Some(mut call) = self.jumped() {
            let Some(jump) = call.jump.as_mut().filter(|jump| jump.is_passed()) else { return };
            if jump.stamp & jumped::UNSURE != 0 {
                at_least_until = Some(jump.ticks);
            }
            jump.at_most = at_least_until.is_some();
            jump.at_least_until = at_least_until.unwrap_or(jump.ticks);
            self.pop();
            self.pop();
            left(call);
        }
    }

    /// Number of entries. Calls beyond the stack's capacity have none.
    pub(crate) fn entries(&self) -> u32 {
        (self.top().saturating_sub(self.first()) / ENTRY) as u32
    }

    fn entries_from(&self, place: u32) -> impl Iterator<Item = u64> + use<> {
        (self.first() + u64::from(place) * ENTRY..self.top()).step_by(ENTRY as usize)
    }

    /// The innermost call that has an entry.
    pub(crate) fn innermost_call(&self) -> Option<OpenCallFacts> {
        self.innermost().map(|entry| self.facts(entry))
    }

    /// The call at index `place`.
    pub(crate) fn call_at(&self, place: u32) -> Option<OpenCallFacts> {
        (place < self.entries()).then(|| self.facts(self.first() + u64::from(place) * ENTRY))
    }

    /// The innermost call around memory of this stack that ends at `high`: its index, word and
    /// stack pointer. The memory lies in the frame of that call or of a function that it has
    /// called.
    pub(crate) fn around(&self, high: u64) -> Option<(u32, u64, u64)> {
        let alternate = Alternate::default();
        (0..self.entries()).rev().find_map(|place| {
            let entry = self.first() + u64::from(place) * ENTRY;
            // An entry without a word has not begun yet.
            let word = self.word(entry).load(Relaxed) & !u64::from(EXIT);
            let pointer = self.own_pointer(entry);
            let is_around = word != 0
                && !self.has_jumped(entry)
                && pointer.saturating_add(HOOK_BELOW) >= high
                && !alternate.has(pointer);
            is_around.then_some((place, word, pointer))
        })
    }

    /// The stack pointer of the call at index `place`, if that call still has this word.
    pub(crate) fn pointer_of(&self, place: u32, word: u64) -> Option<u64> {
        let entry = self.first() + u64::from(place) * ENTRY;
        let is_it = place < self.entries() && self.word(entry).load(Relaxed) & !u64::from(EXIT) == word;
        is_it.then(|| self.own_pointer(entry))
    }

    /// Passes each call from index `from` on, outermost first, with its index.
    pub(crate) fn each_from(&self, from: u32, mut each: impl FnMut(u32, OpenCallFacts)) {
        for (place, entry) in (from..).zip(self.entries_from(from)) {
            if !is_jump(self.word(entry).load(Relaxed)) {
                each(place, self.facts(entry));
            }
        }
    }

    /// Stamps each call from index `from` on that has no stamp, if `stamp` returns one for its
    /// word.
    pub(crate) fn stamp_from(&self, from: u32, mut stamp: impl FnMut(u64) -> Option<u32>) {
        for entry in self.entries_from(from).filter(|entry| self.stamp(*entry).load(Relaxed) == 0) {
            if let Some(stamp) = stamp(self.word(entry).load(Relaxed)) {
                self.stamp(entry).store(stamp, Relaxed);
            }
        }
    }

    /// Marks the calls whose code `is_wanted` accepts, as [`OpenCalls::divert_innermost`] does.
    pub(crate) fn divert(&self, is_wanted: impl Fn(u32) -> bool) {
        for entry in self.entries_from(0) {
            if is_wanted(self.facts(entry).code) {
                self.divert_entry(entry);
            }
        }
    }

    fn divert_entry(&self, entry: u64) {
        let pointer = self.stack_pointer(entry);
        // Hooks that compare stack pointers for equality have no shared frames.
        if self.shared(entry) == shared::NONE {
            pointer.store(pointer.load(Relaxed) | DIVERTED, Relaxed);
        }
        let word = self.word(entry);
        word.store(word.load(Relaxed) | u64::from(EXIT), Relaxed);
    }

    /// Remembers which conditions the innermost call meets.
    pub(crate) fn remember_met(&self, conditions: u32) {
        if let Some(entry) = self.innermost() {
            self.ticks_high(entry).fetch_or(met_bits(conditions), Relaxed);
        }
    }

    /// Stamps the innermost call. Returns the address of its entry.
    pub(crate) fn stamp_innermost(&self, stamp: u32) -> Option<u64> {
        let entry = self.innermost()?;
        self.stamp(entry).store(stamp, Relaxed);
        Some(entry)
    }

    /// Whether a call of the function at `code` is open at the address `entry`, below the innermost
    /// one.
    pub(crate) fn is_open(&self, entry: u64, code: u32) -> bool {
        let first = self.first();
        entry >= first
            && entry < self.top().saturating_sub(ENTRY)
            && (entry - first).is_multiple_of(ENTRY)
            && self.facts(entry).code == code
    }

    /// The innermost call with the address of its entry, in a process that times calls. `None` if
    /// it hasn't begun, or its times have no place.
    pub(crate) fn innermost_timed(&self) -> Option<(u64, OpenCallFacts)> {
        let entry = self.innermost().filter(|entry| self.word(*entry).load(Relaxed) != 0)?;
        Some((entry, self.facts(entry))).filter(|(_, call)| call.stamp != 0)
    }

    /// The entry below `entry`, or the sentinel.
    pub(crate) fn below(&self, entry: u64) -> u64 {
        entry.wrapping_sub(ENTRY).max(self.control.open_base.load(Relaxed))
    }

    /// The innermost entry.
    fn innermost(&self) -> Option<u64> {
        (self.top() > self.first()).then(|| self.top() - ENTRY)
    }

    /// Removes the entry for which a hook has raised the top without filling it.
    pub(crate) fn take_back(&self) {
        self.pop();
    }

    fn pop(&self) {
        if let Some(entry) = self.innermost() {
            if is_jump(self.word(entry).load(Relaxed)) {
                self.control.jumps.fetch_sub(1, Relaxed);
                // The check for armed calls assumes that an event ends at most one call; a jump
                // ends more.
                self.control.looked_depth.fetch_min(self.entries().saturating_sub(2), Relaxed);
            }
            self.word(entry).store(0, Relaxed);
            self.control.open_top.store(entry, Relaxed);
        }
    }

    /// One of [`shared`].
    fn shared(&self, entry: u64) -> u64 {
        match self.stack_pointer(entry).load(Relaxed) & 7 {
            state @ shared::CATCHES..=shared::HANDLED => state,
            _ => shared::NONE,
        }
    }

    /// The outermost call in the innermost frame, if a hook in that frame has this stack pointer:
    /// its entry.
    fn in_frame(&self, hook: u64) -> Option<u64> {
        let inlined = self.count_inlined(hook);
        let entry = self.top().wrapping_sub(u64::from(inlined + 1) * ENTRY);
        let is_there =
            self.deep().count() == 0 && inlined < self.entries() && self.own_pointer(entry) == hook;
        is_there.then_some(entry)
    }

    /// The state of the innermost frame, if a hook in that frame has this stack pointer: one of
    /// [`shared`].
    pub(crate) fn shared_at(&self, hook: u64) -> u64 {
        self.in_frame(hook).map_or(shared::NONE, |entry| self.shared(entry))
    }

    /// Whether inlined calls share this frame, or have shared it.
    pub(crate) fn is_shared(&self, hook: u64) -> bool {
        self.count_inlined(hook) > 0 || self.shared_at(hook) != shared::NONE
    }

    /// An exception has reached this frame. `is_handled`: the frame will handle it; otherwise the
    /// exception unwinds the frame.
    pub(crate) fn clean_up(&self, hook: u64, is_handled: bool) {
        if !self.is_shared(hook) {
            return;
        }
        let shared = match self.shared_at(hook) {
            _ if !is_handled => shared::LEFT,
            shared::NONE | shared::HANDLED => shared::CATCHES,
            shared::CATCHES => shared::CATCHES_WITHIN,
            same => same,
        };
        self.set_shared(hook, shared);
    }

    /// A handler begins in this frame.
    pub(crate) fn handle(&self, hook: u64) {
        let shared = match self.shared_at(hook) {
            shared::LEFT => shared::LEFT,
            shared::CATCHES_WITHIN => shared::CATCHES,
            _ => shared::HANDLED,
        };
        self.set_shared(hook, shared);
    }

    /// The program continues in this frame, so any cleanup there is over.
    pub(crate) fn settle(&self, hook: u64) {
        if self.shared_at(hook) != shared::NONE {
            self.set_shared(hook, shared::HANDLED);
        }
    }

    /// Does the same for all frames.
    pub(crate) fn settle_all(&self) {
        for entry in self.entries_from(0).filter(|entry| self.shared(*entry) != shared::NONE) {
            self.stack_pointer(entry).store(self.own_pointer(entry) | shared::HANDLED, Relaxed);
        }
    }

    /// The stack pointer that a hook has in the innermost frame, if that belongs to the function at
    /// `code`. Otherwise `told`, the unwinder's value, which is lower if the frame has pushed
    /// arguments.
    pub(crate) fn pointer_in(&self, code: Option<u32>, told: u64) -> u64 {
        let pushed = |pointer: &u64| *pointer > told && *pointer - told <= PUSHED_MAX;
        let is_functions = |pointer: &u64| {
            let outermost = self.outwards().take_while(|(_, call)| call.stack_pointer == *pointer).last();
            outermost.is_some_and(|(_, call)| Some(call.function) == code)
        };
        self.innermost_pointer().filter(pushed).filter(is_functions).unwrap_or(told)
    }

    fn set_shared(&self, hook: u64, shared: u64) {
        if let Some(entry) = self.in_frame(hook) {
            self.stack_pointer(entry).store(hook | shared, Relaxed);
        }
    }

    /// Whether the innermost frame is cleaning up. Inlined calls may then end without an exit hook.
    pub(crate) fn cleans_up(&self) -> bool {
        let shared = self.innermost_pointer().map_or(shared::NONE, |pointer| self.shared_at(pointer));
        matches!(shared, shared::CATCHES | shared::CATCHES_WITHIN | shared::LEFT)
    }

    /// An entry's stack pointer, without the marks in its low bits.
    fn own_pointer(&self, entry: u64) -> u64 {
        match self.stack_pointer(entry).load(Relaxed) {
            u64::MAX => u64::MAX,
            pointer => pointer.saturating_add(DIVERTED) & !7,
        }
    }

    /// The stack pointer that decides whether a call is dead: for a frame by id, that of the call
    /// around it.
    fn frame_pointer(&self, entry: u64) -> u64 {
        let below = if is_frame(self.facts(entry).code) { BY_ID_BELOW } else { 0 };
        self.own_pointer(entry).saturating_add(below)
    }

    /// The stack pointer that decides whether a jump leaves a call: for a frame by id, that of its
    /// hook.
    fn hook_pointer(&self, entry: u64) -> u64 {
        let deeper = if self.is_recorded_frame(entry) { self.stamp(entry).load(Relaxed) } else { 0 };
        self.frame_pointer(entry).saturating_sub(u64::from(deeper) * WORD)
    }

    /// Marks the innermost call, which was entered at `frame`. No exit hook then recognises it, so
    /// its exit comes to the slow path.
    pub(crate) fn divert_innermost(&self, frame: Frame) {
        if let Some(entry) = self.innermost() {
            // The mark lowers the stack pointer: otherwise hooks would take a later call at the
            // same place for a call within this one.
            if let Frame::Start(pointer) = frame {
                self.stack_pointer(entry).store(pointer.wrapping_sub(DIVERTED), Relaxed);
            }
            self.divert_entry(entry);
        }
    }

    /// Opens a call. If the stack is full, it becomes a deep call, and the result is false.
    pub(crate) fn push(&self, word: u64, ticks_high: u32, frame: Frame) -> bool {
        let (pointer, stamp) = match frame {
            Frame::ById(own) => {
                let pointer = self.pointer_by_id();
                (pointer, (pointer.saturating_add(BY_ID_BELOW).saturating_sub(own) / WORD) as u32)
            }
            _ => (frame.stack_pointer(), 0),
        };
        if self.room() == 0 || self.deep().count() > 0 {
            self.deep().push(word as u32 & !EXIT, pointer);
            return false;
        }
        let entry = self.top();
        self.control.open_top.store(entry + ENTRY, Relaxed);
        self.stack_pointer(entry).store(pointer, Relaxed);
        self.ticks_high(entry).store(ticks_high, Relaxed);
        self.stamp(entry).store(if dropped::is_timing() { 0 } else { stamp }, Relaxed);
        self.word(entry).store(word, Release);
        true
    }

    /// The stack pointer of a frame by id that is entered now: see `frames.rs` of the hooks.
    fn pointer_by_id(&self) -> u64 {
        match self.outwards_known().next() {
            Some(call) if is_frame(call.function) => call.stack_pointer,
            Some(call) => call.stack_pointer.saturating_sub(BY_ID_BELOW),
            None => (self.control.stack_high.load(Relaxed) & !7).saturating_sub(BY_ID_BELOW),
        }
    }

    /// Removes the frames that are dead when a call is entered at `frame`. Passes each that has an
    /// entry to `dead` first. Returns their number.
    pub(crate) fn drop_dead(&self, frame: Frame, dead: impl FnMut(OpenCallFacts)) -> u32 {
        let alternate = Alternate::default();
        let own = frame.stack_pointer();
        let has_handler = self.has_handler();
        let is_gone = |pointer| match has_handler && alternate.is_interrupted(own, pointer) {
            // The signal handler on the alternate stack, which lies above this one, has ended.
            true => true,
            false => frame.ends_at_entry(pointer) && !alternate.is_interrupted(pointer, own),
        };
        let count = self.drop_gone(is_gone, dead);
        let is_handlers = match self.outwards_known().next() {
            Some(innermost) => frame.ends_at_entry(innermost.stack_pointer),
            None => alternate.has(own),
        };
        if is_handlers && !has_handler && self.deep().count() == 0 {
            self.control.handler.store(self.entries() + 1, Relaxed);
        }
        count
    }

    /// Whether calls of a signal handler are open on an alternate stack that lies above the stack
    /// that it interrupted.
    pub(crate) fn has_handler(&self) -> bool {
        let handler = &self.control.handler;
        if handler.load(Relaxed) > self.entries() {
            handler.store(0, Relaxed);
        }
        handler.load(Relaxed) != 0
    }

    /// Removes the frames that are dead when the program continues at a point where a hook would
    /// have this stack pointer. Passes each that has an entry to `dead` first. Returns their
    /// number.
    pub(crate) fn drop_below(&self, hook: u64, dead: impl FnMut(OpenCallFacts)) -> u32 {
        let alternate = Alternate::default();
        let is_gone = |pointer| match alternate.is_other(hook, pointer) {
            true => !alternate.is_interrupted(pointer, hook),
            false => pointer < hook,
        };
        self.drop_gone_from(|entry| is_gone(self.hook_pointer(entry)), is_gone, dead)
    }

    /// The stack pointer of the innermost call.
    pub(crate) fn innermost_pointer(&self) -> Option<u64> {
        self.outwards().next().map(|(_, innermost)| innermost.stack_pointer)
    }

    /// Number of the innermost calls that were inlined into the function in whose frame a hook has
    /// this stack pointer: all calls at that stack pointer except the outermost.
    pub(crate) fn count_inlined(&self, hook: u64) -> u32 {
        let in_frame = self.outwards().take_while(|(_, call)| call.stack_pointer == hook).count() as u32;
        in_frame.saturating_sub(1)
    }

    /// As [`OpenCalls::count_inlined`], for the innermost frame.
    pub(crate) fn innermost_inlined(&self) -> u32 {
        self.innermost_pointer().map_or(0, |pointer| self.count_inlined(pointer))
    }

    /// Removes innermost frames as long as `is_gone` accepts their stack pointers.
    fn drop_gone(&self, is_gone: impl Fn(u64) -> bool, dead: impl FnMut(OpenCallFacts)) -> u32 {
        self.drop_gone_from(|entry| is_gone(self.frame_pointer(entry)), &is_gone, dead)
    }

    /// Like `drop_gone`, with a separate test for calls that have an entry. `is_gone`: for the
    /// others.
    fn drop_gone_from(
        &self,
        is_entry_gone: impl Fn(u64) -> bool,
        is_gone: impl Fn(u64) -> bool,
        mut dead: impl FnMut(OpenCallFacts),
    ) -> u32 {
        let depth = self.depth();
        if !self.deep().remove_gone(&is_gone) {
            return depth - self.depth();
        }
        while self.innermost().is_some_and(&is_entry_gone) {
            self.deep().remove(u32::MAX);
            self.remove_innermost(&mut dead);
        }
        depth - self.depth()
    }

    /// Number of the innermost calls in the frame of the function at `code`: the function's own
    /// call and the calls that were inlined into it, or all calls at this stack pointer. 0 if that
    /// isn't the innermost frame with hooks.
    pub(crate) fn count_in_frame(&self, hook: u64, code: Option<u32>) -> u32 {
        let mut inlined = self.outwards().take(INLINED_MAX);
        let by_code = inlined.find(|(_, call)| Some(call.function) == code).map_or(0, |(count, _)| count);
        let by_pointer = self.outwards().take_while(|(_, call)| call.stack_pointer == hook).count() as u32;
        by_code.max(by_pointer)
    }

    /// If a call of the function at `code` is already open at `frame`, where one is entered,
    /// returns the number of the innermost calls that were unwound: the open one and all inside it.
    /// (A function has only one frame at a place, unless it was inlined into itself.)
    pub(crate) fn count_from_same(&self, frame: Frame, code: u32) -> u32 {
        if let Frame::ById(_) = frame {
            return 0;
        }
        let place = frame.stack_pointer();
        let not_above = self.outwards().take_while(|(_, call)| call.stack_pointer <= place);
        let is_same = |call: &SharedCall| (call.stack_pointer, call.function) == (place, code);
        not_above.filter(|(_, call)| is_same(call)).last().map_or(0, |(count, _)| count)
    }

    /// Finds the call to which an exit at `frame` belongs. `low` is the low half of the function's
    /// entry word; it is compared only for hooks within frames.
    pub(crate) fn find_exit(&self, frame: Frame, low: u32) -> Exit {
        let unknown = self.deep().unknown();
        let innermost_pointer = self.outwards_known().next().map_or(u64::MAX, |call| call.stack_pointer);
        let is_inside = match frame {
            Frame::Start(own) | Frame::Body(own) | Frame::ById(own) => own < innermost_pointer,
            // A function that has released its frame has a stack pointer as high as that of the
            // point from which it was called.
            Frame::Left(own) => own <= innermost_pointer,
        };
        if unknown > 0 && is_inside {
            // Nothing is known about the innermost calls. The exit is taken for that of the
            // innermost one.
            return Exit::Of(0);
        }
        let alternate = Alternate::default();
        for (inside, call) in (unknown..).zip(self.outwards_known()) {
            if call.has_jumped {
                continue;
            }
            let pointer = call.stack_pointer;
            let same_function = call.function == low & !EXIT;
            let by_id = is_frame(call.function);
            let matches = match frame {
                Frame::Start(_) if by_id => false,
                Frame::Start(own) => pointer == own || pointer == own.wrapping_sub(ENTRY_BELOW_EXIT),
                Frame::Body(own) => pointer >= own && same_function,
                Frame::ById(own) => pointer.saturating_add(BY_ID_BELOW) >= own && same_function,
                Frame::Left(_) => same_function,
            };
            if matches {
                return Exit::Of(inside);
            }
            // No frame by id ends while a call in it goes on.
            if let Frame::ById(own) = frame
                && pointer >= own
                && !by_id
            {
                return Exit::Orphan;
            }
            // Frames by id end with the function that they are in.
            if by_id {
                continue;
            }
            // An outer call of the same function may be open, too.
            if let Frame::Body(own) = frame
                && call.shared != shared::NONE
                && pointer >= own
            {
                return if pointer == own { Exit::Uncounted } else { Exit::Orphan };
            }
            // If entries may be missing because functions weren't selected, the exit's call may
            // have no entry: its frame lies inside this open call. (If no entries are missing, only
            // unwound calls lie in between, and the exit is this call's, whose frame has grown.)
            if let Frame::Body(own) = frame
                && pointer > own
                && selection::may_have_left_out_entries()
            {
                return Exit::Orphan;
            }
            let outside = matches!(frame, Frame::Start(own) if pointer > own && pointer != u64::MAX);
            if outside && !alternate.is_other(frame.stack_pointer(), pointer) {
                return Exit::Orphan;
            }
        }
        Exit::Orphan
    }

    /// Removes `count` frames, those beyond the capacity first. Passes each that has an entry to
    /// `dead` first.
    pub(crate) fn drop_frames(&self, count: u32, mut dead: impl FnMut(OpenCallFacts)) {
        let entries = u64::from(count - self.deep().remove(count).min(count));
        let until = self.top().saturating_sub(entries * ENTRY).max(self.first());
        while self.top() > until {
            self.remove_innermost(&mut dead);
        }
    }
}

/// Whether the stack pointer `inner` belongs to a signal handler on the thread's alternate stack
/// that interrupted a frame at `outer`.
pub(crate) fn is_interrupted(outer: u64, inner: u64) -> bool {
    Alternate::default().is_interrupted(outer, inner)
}

/// The thread's alternate signal stack. The kernel is asked once, on first use.
#[derive(Default)]
struct Alternate(Cell<Option<(u64, u64)>>);

impl Alternate {
    fn has(&self, pointer: u64) -> bool {
        let (first, end) = self.0.get().unwrap_or_else(|| {
            let asked = crate::sys::system::alternate_stack().unwrap_or((0, 0));
            self.0.set(Some(asked));
            asked
        });
        // A function's entry hook may lie in the highest bytes of the alternate stack, if the
        // function's frame ends there. The kernel reserves these bytes for a signal's frame.
        (first..end.saturating_sub(HOOK_BELOW)).contains(&pointer)
    }

    /// Whether the stack pointer `inner` belongs to a signal handler on the alternate stack that
    /// interrupted a frame at `outer`. (In the opposite case, the handler has ended.)
    fn is_interrupted(&self, outer: u64, inner: u64) -> bool {
        self.has(inner) && !self.has(outer)
    }

    /// Whether exactly one of two stack pointers lies on the alternate stack.
    fn is_other(&self, one: u64, other: u64) -> bool {
        self.has(one) != self.has(other)
    }
}
