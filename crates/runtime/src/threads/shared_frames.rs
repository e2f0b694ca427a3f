//! Frames that inlined calls share with the one around them, where an exception gets to them: of
//! which of these calls it has left, compilers may not tell. Readers find out, who know what was
//! inlined where; here it is recorded with which code the frame goes on.
#![allow(unsafe_code)] // The stack of a frame that is there.

use crate::state::places::{self, Place};
use crate::sys::system;
use crate::threads::events::EVENT_WORDS_MAX;
use crate::threads::stacks::bounds;
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::{kind, payload_word, record_word};
use everycall_format::label;
use everycall_hooks::arch::frame;

/// Where a call was made.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The last byte of the instruction that called.
    pub(crate) code: u64,
    /// It is one of the call's own function, which was inlined: it calls the hook.
    pub(crate) is_callees: bool,
}

impl Thread<'_> {
    /// Records where the next call was made, of which open calls can't tell whose it is: the last
    /// byte of the instruction. Another stack's first call, and those that the C library makes, are
    /// made by code without hooks.
    pub(crate) fn called_at(&self, ticks: u64, caller: Caller) {
        let detail = if caller.is_callees { everycall_format::event::caller::CALLEES } else { 0 };
        match places::of(self.process, caller.code) {
            Place::Offset(code) => {
                self.ring.push(&[
                    record_word(ticks, kind::CALLER, 1, detail),
                    payload_word(code, kind::CALLER, 1),
                ]);
            }
            Place::Unknown(_) => self.ring.push(&[record_word(ticks, kind::CALLER, 0, detail)]),
        }
    }

    /// A handler of an exception has begun in the frame in which a hook has this stack pointer. Of
    /// calls that were inlined into the frame's function, those that don't handle the exception
    /// have been left, of which compilers may not tell. If the next event is the exit of one, that
    /// one has handled it; if it is another call, readers know, who know what is inlined at this
    /// address. (`watch_on` sends it to the slow path.)
    pub(crate) fn watch_inlined(&self, hook: u64, address: u64) {
        if self.open.is_shared(hook) {
            self.tell_inlined(hook, label::HANDLER);
            self.open.handle(hook);
            self.control.handled.store(address, Relaxed);
        }
    }

    /// How many of the calls that are open were inlined into the function in whose frame a hook has
    /// this stack pointer: a label of this class says it.
    pub(crate) fn tell_inlined(&self, hook: u64, class: u8) {
        let inlined = self.open.count_inlined(hook);
        let record = |ticks| label::record(class, ticks, Some(inlined.into()), &[]);
        let ticks = self.prepare(EVENT_WORDS_MAX + record(0).words().len());
        self.ring.push(record(ticks).words());
    }

    /// Where the innermost frame has called what is running now, a library perhaps, if it has
    /// pushed no arguments: the word below its stack pointer, as far as a module has that.
    ///
    /// # Safety
    /// The calling thread runs below.
    pub(crate) unsafe fn call_in_frame(&self) -> Option<Caller> {
        let below = frame::return_address_below(self.open.innermost_pointer()?);
        if self.control.bounds.load(Relaxed) == bounds::GUESSED && !system::is_readable(below, 8) {
            // That may be another stack by now.
            return None;
        }
        // SAFETY: by contract, the stack of a frame that is there.
        let behind = unsafe { *(below as *const u64) };
        let code = behind.saturating_sub(1);
        let is_code = matches!(places::of(self.process, code), Place::Offset(_));
        is_code.then_some(Caller { code, is_callees: false })
    }

    /// In the frame in which a hook has this stack pointer, or around it, the program goes on
    /// elsewhere: a handler that has begun there, or further inside, is over.
    pub(crate) fn forget_handler(&self, hook: u64) {
        if self.open.innermost_pointer().is_none_or(|pointer| pointer <= hook) {
            self.control.handled.store(0, Relaxed);
        }
    }

    /// Removes the calls that were inlined into the innermost frame, and records that, with code of
    /// the frame that readers know which of them are around: where a handler has begun, or from
    /// where the frame that cleans up makes the next call. `how` is one of [`unwound`].
    pub(crate) fn drop_inlined(&self, ticks: u64, code: Caller, how: u8) {
        self.called_at(ticks, code);
        self.leave_innermost(ticks, self.open.innermost_inlined(), how);
    }
}
