//! The open-call stack of the calling thread, as the slow path sees it.
//!
//! An entry's stack pointer is that of its hook. Stacks grow downwards, so an entry whose stack
//! pointer isn't above that of a new call belongs to a frame that is gone: left by an exception, by
//! longjmp, or by a signal handler that never returned. (An entry whose word is 0 was raised by a
//! hook that was interrupted before it wrote the word; its stack pointer is there already.)
#![allow(unsafe_code)] // Entries of open-call stacks, by their addresses.

use crate::threads::deep_calls::DeepCalls;
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use everycall_format::arena::OpenCall;
use everycall_format::event::EXIT;
use everycall_hooks::arch::frame::{ENTRY_BELOW_EXIT, HOOK_BELOW};
use everycall_ring::Control;

const ENTRY: u64 = size_of::<OpenCall>() as u64;
/// How far from a multiple of 8 are stack pointers of calls whose exit the slow path has to see,
/// above or below.
const WATCHED: u64 = 1;

/// Bytes that a frame may have pushed as arguments.
const PUSHED_MAX: u64 = 64 << 10;
/// How many calls inlined into one frame are looked through.
const INLINED_MAX: usize = 64;

/// What is known of a frame that inlined calls share. It stands in the outermost one's stack
/// pointer, by so much above the multiple of 8 that this is: hooks within the frame take it for the
/// same.
pub(crate) mod shared {
    /// Nothing.
    pub(crate) const NONE: u64 = 0;
    /// An exception has got here, and is going to be handled; what it leaves is cleaned up before.
    pub(crate) const CATCHES: u64 = 2;
    /// The same, and in what cleans up another one.
    pub(crate) const CATCHES_WITHIN: u64 = 3;
    /// An exception is leaving the frame, which cleans up.
    pub(crate) const LEFT: u64 = 4;
    /// One was handled. Some of the inlined calls may go on that aren't among the open ones any
    /// more.
    pub(crate) const HANDLED: u64 = 6;
}

/// A call that is open.
#[derive(Clone, Copy)]
struct Known {
    stack_pointer: u64,
    /// The low half of its entry's word.
    function: u32,
    /// One of [`shared`].
    shared: u64,
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
}

/// How an exit was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// So many frames inside its call are gone.
    Of(u32),
    /// Of a call that was inlined into the innermost frame and goes on, but isn't among the open
    /// ones any more.
    Uncounted,
    /// Of none that is open.
    Stray,
}

/// The open calls of one thread.
pub(crate) struct OpenCalls<'a> {
    control: &'a Control,
}

/// How a hook's stack pointer compares.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// It is that of the function's first instruction: no other open frame has it.
    Start(u64),
    /// It is one within the function's frame, which inlined calls share.
    Body(u64),
    /// The function has given up its frame and jumped to its exit hook: it is above the frame.
    Left(u64),
}

impl Frame {
    pub(crate) fn stack_pointer(self) -> u64 {
        match self {
            Frame::Start(pointer) | Frame::Body(pointer) | Frame::Left(pointer) => pointer,
        }
    }

    pub(crate) fn is_start(self) -> bool {
        matches!(self, Frame::Start(_))
    }

    /// Whether an entry with this stack pointer is gone when a call is entered here.
    fn ends_at_entry(self, entry: u64) -> bool {
        match self {
            Frame::Start(pointer) => entry <= pointer,
            Frame::Body(pointer) | Frame::Left(pointer) => entry < pointer,
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

    /// Open calls, those beyond the stack's capacity included.
    pub(crate) fn depth(&self) -> u32 {
        self.entries().saturating_add(self.deep().count())
    }

    /// Those beyond the stack's capacity.
    fn deep(&self) -> DeepCalls<'a> {
        DeepCalls::of(self.control)
    }

    /// The open calls that are known, innermost first.
    fn outwards_known(&self) -> impl Iterator<Item = Known> {
        // Read once: a forked child's are wiped.
        let top = self.top();
        let count = top.saturating_sub(self.first()) / ENTRY;
        let entries = (1..=count).map(move |count| {
            let entry = top - count * ENTRY;
            Known {
                stack_pointer: self.own_pointer(entry),
                function: self.facts(entry).code,
                shared: self.shared(entry),
            }
        });
        let deep = self.deep().innermost();
        deep.map(|(stack_pointer, function)| Known { stack_pointer, function, shared: shared::NONE })
            .chain(entries)
    }

    /// The same, with how many calls they are up to each; none where the innermost ones aren't
    /// known.
    fn outwards(&self) -> impl Iterator<Item = (u32, Known)> {
        let count = if self.deep().unknown() == 0 { usize::MAX } else { 0 };
        (1..).zip(self.outwards_known()).take(count)
    }

    /// Entries that still fit.
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

    /// Upper half of an entry's ticks, and above it its stamp: hooks write both at once.
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
        OpenCallFacts {
            code: word as u32 & !EXIT,
            ticks: u64::from(self.ticks_high(entry).load(Relaxed)) << 32 | word >> 32,
            stamp: self.stamp(entry).load(Relaxed),
        }
    }

    /// Entries that there are; calls beyond the stack's capacity have none.
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

    /// The call at a place.
    pub(crate) fn call_at(&self, place: u32) -> Option<OpenCallFacts> {
        (place < self.entries()).then(|| self.facts(self.first() + u64::from(place) * ENTRY))
    }

    /// The innermost call around memory of this stack that ends at `high`: its place, word and
    /// stack pointer. Its frame, or those of what it had called then, hold that memory.
    pub(crate) fn around(&self, high: u64) -> Option<(u32, u64, u64)> {
        let alternate = Alternate::default();
        (0..self.entries()).rev().find_map(|place| {
            let entry = self.first() + u64::from(place) * ENTRY;
            // Without its word it is yet to begin.
            let word = self.word(entry).load(Relaxed) & !u64::from(EXIT);
            let pointer = self.own_pointer(entry);
            let is_around =
                word != 0 && pointer.saturating_add(HOOK_BELOW) >= high && !alternate.has(pointer);
            is_around.then_some((place, word, pointer))
        })
    }

    /// The stack pointer of the call at a place, while it is the one with this word.
    pub(crate) fn pointer_of(&self, place: u32, word: u64) -> Option<u64> {
        let entry = self.first() + u64::from(place) * ENTRY;
        let is_it = place < self.entries() && self.word(entry).load(Relaxed) & !u64::from(EXIT) == word;
        is_it.then(|| self.own_pointer(entry))
    }

    /// Gives each call from place `from` on, outermost first, with its place.
    pub(crate) fn each_from(&self, from: u32, mut each: impl FnMut(u32, OpenCallFacts)) {
        for (place, entry) in (from..).zip(self.entries_from(from)) {
            each(place, self.facts(entry));
        }
    }

    /// Stamps each call from place `from` on that has no stamp and gets one for its word.
    pub(crate) fn stamp_from(&self, from: u32, mut stamp: impl FnMut(u64) -> Option<u32>) {
        for entry in self.entries_from(from).filter(|entry| self.stamp(*entry).load(Relaxed) == 0) {
            if let Some(stamp) = stamp(self.word(entry).load(Relaxed)) {
                self.stamp(entry).store(stamp, Relaxed);
            }
        }
    }

    /// Marks the calls whose code is wanted, as [`OpenCalls::watch_innermost`] does.
    pub(crate) fn watch(&self, is_wanted: impl Fn(u32) -> bool) {
        for entry in self.entries_from(0) {
            if is_wanted(self.facts(entry).code) {
                self.watch_entry(entry);
            }
        }
    }

    fn watch_entry(&self, entry: u64) {
        let pointer = self.stack_pointer(entry);
        // Hooks that compare stack pointers for equality have no shared frames.
        if self.shared(entry) == shared::NONE {
            pointer.store(pointer.load(Relaxed) | WATCHED, Relaxed);
        }
        let word = self.word(entry);
        word.store(word.load(Relaxed) | u64::from(EXIT), Relaxed);
    }

    /// The innermost entry.
    fn innermost(&self) -> Option<u64> {
        (self.top() > self.first()).then(|| self.top() - ENTRY)
    }

    /// Takes back the entry that a hook has raised the top for and left unfilled.
    pub(crate) fn take_back(&self) {
        self.pop();
    }

    fn pop(&self) {
        if let Some(entry) = self.innermost() {
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

    /// The entry of the call in whose frame a hook has this stack pointer, where that is the
    /// innermost frame: the outermost of those that were entered there.
    fn in_frame(&self, hook: u64) -> Option<u64> {
        let inlined = self.count_inlined(hook);
        let entry = self.top().wrapping_sub(u64::from(inlined + 1) * ENTRY);
        let is_there =
            self.deep().count() == 0 && inlined < self.entries() && self.own_pointer(entry) == hook;
        is_there.then_some(entry)
    }

    /// What is known of the innermost frame, where a hook in it has this stack pointer: one of
    /// [`shared`].
    pub(crate) fn shared_at(&self, hook: u64) -> u64 {
        self.in_frame(hook).map_or(shared::NONE, |entry| self.shared(entry))
    }

    /// Whether inlined calls share this frame, or did.
    pub(crate) fn is_shared(&self, hook: u64) -> bool {
        self.count_inlined(hook) > 0 || self.shared_at(hook) != shared::NONE
    }

    /// An exception has got to this frame. `is_handled`: it is going to be handled there; else it
    /// leaves the frame.
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

    /// The program goes on in this frame, whatever was being cleaned up there.
    pub(crate) fn settle(&self, hook: u64) {
        if self.shared_at(hook) != shared::NONE {
            self.set_shared(hook, shared::HANDLED);
        }
    }

    /// The same of all frames.
    pub(crate) fn settle_all(&self) {
        for entry in self.entries_from(0).filter(|entry| self.shared(*entry) != shared::NONE) {
            self.stack_pointer(entry).store(self.own_pointer(entry) | shared::HANDLED, Relaxed);
        }
    }

    /// The stack pointer that a hook has in a frame of the function at `code`. The unwinder says
    /// `told`, which is lower where the frame had pushed arguments.
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

    /// Whether the innermost frame is being cleaned up in, so that inlined calls may end of which
    /// nobody tells.
    pub(crate) fn cleans_up(&self) -> bool {
        let shared = self.innermost_pointer().map_or(shared::NONE, |pointer| self.shared_at(pointer));
        matches!(shared, shared::CATCHES | shared::CATCHES_WITHIN | shared::LEFT)
    }

    /// What the stack pointer of an entry was, whatever is noted with it.
    fn own_pointer(&self, entry: u64) -> u64 {
        match self.stack_pointer(entry).load(Relaxed) {
            u64::MAX => u64::MAX,
            pointer => pointer.saturating_add(WATCHED) & !7,
        }
    }

    /// Marks the innermost call, which was entered at `frame`, so that no exit hook takes it for
    /// its own: its exit comes to the slow path.
    pub(crate) fn watch_innermost(&self, frame: Frame) {
        if let Some(entry) = self.innermost() {
            // Below, so that hooks don't take a later call at the same place for one within it.
            if let Frame::Start(pointer) = frame {
                self.stack_pointer(entry).store(pointer.wrapping_sub(WATCHED), Relaxed);
            }
            self.watch_entry(entry);
        }
    }

    /// Opens a call. Where the stack is full it is counted only; false then.
    pub(crate) fn push(&self, word: u64, ticks_high: u32, frame: Frame) -> bool {
        if self.room() == 0 || self.deep().count() > 0 {
            self.deep().push(word as u32 & !EXIT, frame.stack_pointer());
            return false;
        }
        let entry = self.top();
        self.control.open_top.store(entry + ENTRY, Relaxed);
        self.stack_pointer(entry).store(frame.stack_pointer(), Relaxed);
        self.ticks_high(entry).store(ticks_high, Relaxed);
        self.stamp(entry).store(0, Relaxed);
        self.word(entry).store(word, Relaxed);
        true
    }

    /// Removes the frames that are gone when a call is entered at `frame`, and gives each that has
    /// an entry before. How many they were.
    pub(crate) fn drop_dead(&self, frame: Frame, dead: impl FnMut(OpenCallFacts)) -> u32 {
        let alternate = Alternate::default();
        let own = frame.stack_pointer();
        let has_handler = self.has_handler();
        let is_gone = |pointer| match has_handler && alternate.is_interrupted(own, pointer) {
            // A handler has been left whose stack lies above this one.
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

    /// Whether calls are open of a handler on an alternate stack that lies above what it
    /// interrupted.
    pub(crate) fn has_handler(&self) -> bool {
        let handler = &self.control.handler;
        if handler.load(Relaxed) > self.entries() {
            handler.store(0, Relaxed);
        }
        handler.load(Relaxed) != 0
    }

    /// Removes the frames that are gone when the program goes on in a frame in which a hook would
    /// have this stack pointer, and gives each that has an entry before. How many they were.
    pub(crate) fn drop_below(&self, hook: u64, dead: impl FnMut(OpenCallFacts)) -> u32 {
        let alternate = Alternate::default();
        let is_gone = |pointer| match alternate.is_other(hook, pointer) {
            true => !alternate.is_interrupted(pointer, hook),
            false => pointer < hook,
        };
        self.drop_gone(is_gone, dead)
    }

    /// The stack pointer of the innermost call.
    pub(crate) fn innermost_pointer(&self) -> Option<u64> {
        self.outwards().next().map(|(_, innermost)| innermost.stack_pointer)
    }

    /// How many of the innermost calls were inlined into the function in whose frame a hook has
    /// this stack pointer: all at that stack pointer but the outermost one.
    pub(crate) fn count_inlined(&self, hook: u64) -> u32 {
        let in_frame = self.outwards().take_while(|(_, call)| call.stack_pointer == hook).count() as u32;
        in_frame.saturating_sub(1)
    }

    /// The same of the innermost frame.
    pub(crate) fn innermost_inlined(&self) -> u32 {
        self.innermost_pointer().map_or(0, |pointer| self.count_inlined(pointer))
    }

    /// Removes the innermost frames as far as they are gone, by their stack pointers.
    fn drop_gone(&self, is_gone: impl Fn(u64) -> bool, mut dead: impl FnMut(OpenCallFacts)) -> u32 {
        let depth = self.depth();
        if !self.deep().remove_gone(&is_gone) {
            return depth - self.depth();
        }
        while let Some(entry) = self.innermost().filter(|&entry| is_gone(self.own_pointer(entry))) {
            self.deep().remove(u32::MAX);
            dead(self.facts(entry));
            self.pop();
        }
        depth - self.depth()
    }

    /// How many of the innermost calls share the frame of the function at `code`, into which they
    /// were inlined, itself included; or were entered at this stack pointer. None where that isn't
    /// the innermost frame with hooks.
    pub(crate) fn count_in_frame(&self, hook: u64, code: Option<u32>) -> u32 {
        let mut inlined = self.outwards().take(INLINED_MAX);
        let by_code = inlined.find(|(_, call)| Some(call.function) == code).map_or(0, |(count, _)| count);
        let by_pointer = self.outwards().take_while(|(_, call)| call.stack_pointer == hook).count() as u32;
        by_code.max(by_pointer)
    }

    /// How many of the innermost calls have been left if a call of the function at `code` is
    /// entered at `frame` and one is open there: that one and all inside it. A function has its
    /// frame once, unless it was inlined into itself.
    pub(crate) fn count_from_same(&self, frame: Frame, code: u32) -> u32 {
        let place = frame.stack_pointer();
        let not_above = self.outwards().take_while(|(_, call)| call.stack_pointer <= place);
        let is_same = |call: &Known| (call.stack_pointer, call.function) == (place, code);
        not_above.filter(|(_, call)| is_same(call)).last().map_or(0, |(count, _)| count)
    }

    /// The call that an exit at `frame` belongs to: with `low` the low half of an entry's word
    /// (only compared for frames within a function).
    pub(crate) fn find_exit(&self, frame: Frame, low: u32) -> Exit {
        let unknown = self.deep().unknown();
        let innermost_pointer = self.outwards_known().next().map_or(u64::MAX, |call| call.stack_pointer);
        let is_inside = match frame {
            Frame::Start(own) | Frame::Body(own) => own < innermost_pointer,
            // What a function was called from lies as high as it does when it has given up its
            // frame.
            Frame::Left(own) => own <= innermost_pointer,
        };
        if unknown > 0 && is_inside {
            // Nothing is known of it: exits are believed.
            return Exit::Of(0);
        }
        let alternate = Alternate::default();
        for (inside, call) in (unknown..).zip(self.outwards_known()) {
            let pointer = call.stack_pointer;
            let same_function = call.function == low & !EXIT;
            let matches = match frame {
                Frame::Start(own) => pointer == own || pointer == own.wrapping_sub(ENTRY_BELOW_EXIT),
                Frame::Body(own) => pointer >= own && same_function,
                Frame::Left(_) => same_function,
            };
            if matches {
                return Exit::Of(inside);
            }
            // An outer call of the same function may be open, too.
            if let Frame::Body(own) = frame
                && call.shared != shared::NONE
                && pointer >= own
            {
                return if pointer == own { Exit::Uncounted } else { Exit::Stray };
            }
            let outside = matches!(frame, Frame::Start(own) if pointer > own && pointer != u64::MAX);
            if outside && !alternate.is_other(frame.stack_pointer(), pointer) {
                return Exit::Stray;
            }
        }
        Exit::Stray
    }

    /// Removes `count` frames, the ones beyond the capacity first, and gives each that has an entry
    /// before.
    pub(crate) fn drop_frames(&self, count: u32, mut dead: impl FnMut(OpenCallFacts)) {
        for _ in self.deep().remove(count)..count {
            if let Some(call) = self.innermost_call() {
                dead(call);
            }
            self.pop();
        }
    }
}

/// The thread's alternate signal stack. The kernel is asked once, if anybody wants to know.
#[derive(Default)]
struct Alternate(Cell<Option<(u64, u64)>>);

impl Alternate {
    fn has(&self, pointer: u64) -> bool {
        let (first, end) = self.0.get().unwrap_or_else(|| {
            let asked = crate::sys::system::alternate_stack().unwrap_or((0, 0));
            self.0.set(Some(asked));
            asked
        });
        // The entry hook of a function in whose frame it ends may lie in its highest bytes, which
        // the kernel has for the frame of a signal.
        (first..end.saturating_sub(HOOK_BELOW)).contains(&pointer)
    }

    /// Whether a frame at `outer` was interrupted by a signal handler on the alternate stack, to
    /// which `inner` belongs. (The other way round, a handler on the alternate stack has been
    /// left.)
    fn is_interrupted(&self, outer: u64, inner: u64) -> bool {
        self.has(inner) && !self.has(outer)
    }

    /// Whether exactly one of two stack pointers lies on it.
    fn is_other(&self, one: u64, other: u64) -> bool {
        self.has(one) != self.has(other)
    }
}
