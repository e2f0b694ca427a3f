//! Frames that inlined calls share with the one around them, where an exception gets to them: of which of these calls it has left, compilers may not tell. Readers find out,
//! who know what was inlined where; here it is recorded with which code the frame goes on.

use crate::open_calls::HOOK_BELOW;
use crate::slow::{EVENT_WORDS_MAX, Place, Thread};
use crate::stacks::bounds;
use crate::{modules, system};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::unwound;
use everycall_format::label;

/// Where a call was made.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The last byte of the instruction that called.
    pub(crate) code: u64,
    /// It is one of the call's own function, which was inlined: it calls the hook.
    pub(crate) is_callees: bool,
}

impl Thread<'_> {
    /// A handler of an exception has begun in the frame in which a hook has this stack pointer. Of calls that were inlined into the frame's function, those
    /// that don't handle the exception have been left, of which compilers may not tell. If the next event is the exit of one, that one has handled it; if it is another
    /// call, readers know, who know what is inlined at this address. (`watch_on` sends it to the slow path.)
    pub(crate) fn watch_inlined(&self, hook: u64, address: u64) {
        if self.open.is_shared(hook) {
            self.tell_inlined(hook, label::HANDLER);
            self.open.handle(hook);
            self.control.handled.store(address, Relaxed);
        }
    }

    /// How many of the calls that are open were inlined into the function in whose frame a hook has this stack pointer: a label of this class says it.
    pub(crate) fn tell_inlined(&self, hook: u64, class: u8) {
        let inlined = self.open.count_inlined(hook);
        let record = |ticks| label::record(class, ticks, Some(inlined.into()), &[]);
        let ticks = self.prepare(EVENT_WORDS_MAX + record(0).words().len());
        self.ring.push(record(ticks).words());
    }

    /// Where the innermost frame has called what is running now, a library perhaps, if it has pushed no arguments: the word below its stack pointer, as far as a module
    /// has that.
    ///
    /// # Safety
    /// The calling thread runs below.
    pub(crate) unsafe fn call_in_frame(&self) -> Option<Caller> {
        let below = self.open.innermost_pointer()? + HOOK_BELOW - size_of::<u64>() as u64;
        if self.control.bounds.load(Relaxed) == bounds::GUESSED && !system::is_readable(below, 8) {
            // That may be another stack by now.
            return None;
        }
        // SAFETY: by contract, the stack of a frame that is there.
        let behind = unsafe { *(below as *const u64) };
        let code = behind.saturating_sub(1);
        let is_code = matches!(modules::place_anywhere(self.process, code), Place::Offset(_));
        is_code.then_some(Caller { code, is_callees: false })
    }

    /// In the frame in which a hook has this stack pointer, or around it, the program goes on elsewhere: a handler that has begun there, or further inside, is over.
    pub(crate) fn forget_handler(&self, hook: u64) {
        if self.open.innermost_pointer().is_none_or(|pointer| pointer <= hook) {
            self.control.handled.store(0, Relaxed);
        }
    }

    /// The exit of a call comes that isn't counted: those that are counted in its frame were inside it, and have been left.
    pub(crate) fn drop_inside_uncounted(&self, ticks: u64) {
        self.leave_innermost(ticks, self.open.innermost_inlined(), unwound::NOTICED);
    }

    /// Removes the calls that were inlined into the innermost frame, and records that, with code of the frame that readers know which of them are around: where a
    /// handler has begun, or from where the frame that cleans up makes the next call. `how` is one of [`unwound`].
    pub(crate) fn drop_inlined(&self, ticks: u64, code: Caller, how: u8) {
        self.called_at(ticks, code);
        self.leave_innermost(ticks, self.open.innermost_inlined(), how);
    }

    /// Where a frame cleans up that inlined calls share, its calls tell where they were made, as compilers may not tell that an inlined one is over: one landing pad
    /// may clean up for it and for those around it. What these calls make in turn is as fast as ever.
    pub(crate) fn watch_cleanup(&self) {
        if self.open.cleans_up() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }
}
