//! Which conditions send a thread's next calls to the slow path.

use crate::state::cancelled;
use crate::threads::stacks;
use crate::threads::thread::Thread;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};

impl Thread<'_> {
    /// Stops diverting a cancelled thread after one or two more segments, so that the thread isn't
    /// slowed down for ever.
    pub(crate) fn forget_cancellation(&self) {
        let thread = self.control.thread.load(Relaxed);
        if thread & cancelled::LONG_AGO != 0 {
            self.control.thread.store(thread & !(cancelled::CANCELLED | cancelled::LONG_AGO), Relaxed);
            stacks::refit(self.process, self.control);
        } else if thread & cancelled::CANCELLED != 0 {
            self.control.thread.fetch_or(cancelled::LONG_AGO, Relaxed);
        }
    }

    /// Diverts a thread that has ended. Cleanups in unwound frames may still make calls, attributed
    /// to those frames; TLS destructors have no traced caller. Both take the slow path, which
    /// records where they were called from. The calls that they make in turn stay fast.
    pub(crate) fn divert_if_ended(&self) {
        // Ordered with a thread that cancels this one: either its flag is seen here, or its store
        // to `stack_low` comes last.
        fence(SeqCst);
        if self.has_ended() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// Re-arms the slow path for the next event: an intervening runtime call may have reset the
    /// stack bounds that hooks compare.
    pub(crate) fn divert_again(&self) {
        self.divert_if_ended();
        self.divert_in_cleanup();
        if self.control.handled.load(Relaxed) != 0 {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// Diverts all calls while calls of a signal handler are open on an alternate stack above the
    /// context's own. A call on the context's stack may then be made within the handler, or after
    /// the handler was left by a jump. Only the slow path can distinguish these.
    pub(crate) fn divert_in_handler(&self) {
        if self.control.handler.load(Relaxed) == 0 {
            return;
        }
        if self.open.has_handler() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        } else {
            stacks::refit(self.process, self.control);
        }
    }

    /// Diverts the calls of a frame that inlined calls share while the frame cleans up. The slow
    /// path records where these calls are made, because the compiler may not report the end of an
    /// inlined call: one landing pad may clean up for that call and for the calls around it. The
    /// calls that these calls make in turn stay fast.
    pub(crate) fn divert_in_cleanup(&self) {
        if self.open.cleans_up() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }
}
