//! Exceptions through a physical frame shared by inlined calls: the compiler may not report which
//! inlined calls were unwound. Readers decide that, because they know what was inlined where. The
//! runtime only records at which code address the frame continues.
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

/// The address from which a call was made.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The last byte of the calling instruction.
    pub(crate) code: u64,
    /// Whether the address belongs to the called function itself, which was inlined: the
    /// instruction calls the hook.
    pub(crate) is_callees: bool,
}

impl Thread<'_> {
    /// Records the code address from which the next call was made. Called if the open calls don't
    /// determine the caller: the first call on another stack, and calls that the C library makes,
    /// come from code without hooks.
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

    /// Records that an exception handler has begun in the frame in which a hook has this stack
    /// pointer. Calls that were inlined into the frame's function and don't handle the exception
    /// were unwound, but the compiler may not report which. The next event decides:
    ///
    /// - If it is the exit of an inlined call, that call has handled the exception.
    /// - If it is another call, readers decide, because they know what is inlined at this address.
    ///
    /// ([`Thread::divert_again`] sends that event to the slow path.)
    pub(crate) fn divert_inlined(&self, hook: u64, address: u64) {
        if self.open.is_shared(hook) {
            self.tell_inlined(hook, label::HANDLER);
            self.open.handle(hook);
            self.control.handled.store(address, Relaxed);
        }
    }

    /// Records, in a label of this class, how many open calls were inlined into the function in
    /// whose frame a hook has this stack pointer.
    pub(crate) fn tell_inlined(&self, hook: u64, class: u8) {
        let inlined = self.open.count_inlined(hook);
        let record = |ticks| label::record(class, ticks, Some(inlined.into()), &[]);
        let ticks = self.prepare(EVENT_WORDS_MAX + record(0).words().len());
        self.ring.push(record(ticks).words());
    }

    /// The code address from which the innermost frame has made the call that is running now,
    /// perhaps to a library. It is the word below the frame's stack pointer, if the frame has
    /// pushed no arguments. `None` if that word is no address in a module.
    ///
    /// # Safety
    /// The calling thread runs below.
    pub(crate) unsafe fn call_in_frame(&self) -> Option<Caller> {
        let below = frame::return_address_below(self.open.innermost_pointer()?)?;
        if self.control.bounds.load(Relaxed) == bounds::GUESSED && !system::is_readable(below, 8) {
            // This address may belong to another stack by now.
            return None;
        }
        // SAFETY: by contract, the stack of a frame that is there.
        let behind = unsafe { *(below as *const u64) };
        let code = behind.saturating_sub(1);
        let is_code = matches!(places::of(self.process, code), Place::Offset(_));
        is_code.then_some(Caller { code, is_callees: false })
    }

    /// Forgets a handler that has begun in the frame in which a hook has this stack pointer, or
    /// further inside: the program continues in that frame or around it.
    pub(crate) fn forget_handler(&self, hook: u64) {
        if self.open.innermost_pointer().is_none_or(|pointer| pointer <= hook) {
            self.control.handled.store(0, Relaxed);
        }
    }

    /// Removes the calls that were inlined into the innermost frame, and records that together with
    /// a code address of the frame, which shows readers which of the calls continue. The address is
    /// that of a handler that has begun, or of the next call that the frame makes while it cleans
    /// up. `how` is one of [`everycall_format::event::unwound`].
    pub(crate) fn drop_inlined(&self, ticks: u64, code: Caller, how: u8) {
        self.called_at(ticks, code);
        self.leave_innermost(ticks, self.open.innermost_inlined(), how);
    }
}
