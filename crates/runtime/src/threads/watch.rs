//! What the next event of a thread is watched for: all of its calls come to the slow path then.

use crate::state::cancelled;
use crate::threads::stacks;
use crate::threads::thread::Thread;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};

impl Thread<'_> {
    /// A thread that goes on for one or two segments after it was asked to end isn't slowed down
    /// any longer.
    pub(crate) fn forget_cancellation(&self) {
        let thread = self.control.thread.load(Relaxed);
        if thread & cancelled::LONG_AGO != 0 {
            self.control.thread.store(thread & !(cancelled::CANCELLED | cancelled::LONG_AGO), Relaxed);
            stacks::refit(self.process, self.control);
        } else if thread & cancelled::CANCELLED != 0 {
            self.control.thread.fetch_or(cancelled::LONG_AGO, Relaxed);
        }
    }

    /// When the thread has ended, frames that it left may be entered again, and what they call is
    /// theirs; but the thread's last destructors are nobody's. Both come to the slow path, so that
    /// it is known where they were called, but not what they call.
    pub(crate) fn watch_end(&self) {
        // Another thread that asks this one to end either is seen here or has the last word.
        fence(SeqCst);
        if self.has_ended() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// What the next event is watched for, it still is where something else has happened between
    /// two events, which may have set anew what hooks take for the stack.
    pub(crate) fn watch_on(&self) {
        self.watch_end();
        self.watch_cleanup();
        if self.control.handled.load(Relaxed) != 0 {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }

    /// While a handler's calls are open on an alternate stack above the context's own, hooks take
    /// no stack for the context's: a call below may be made within the handler or after it was
    /// left, which only the slow path can tell.
    pub(crate) fn watch_handler(&self) {
        if self.control.handler.load(Relaxed) == 0 {
            return;
        }
        if self.open.has_handler() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        } else {
            stacks::refit(self.process, self.control);
        }
    }

    /// Where a frame cleans up that inlined calls share, its calls tell where they were made, as
    /// compilers may not tell that an inlined one is over: one landing pad may clean up for it and
    /// for those around it. What these calls make in turn is as fast as ever.
    pub(crate) fn watch_cleanup(&self) {
        if self.open.cleans_up() {
            self.control.stack_low.store(u64::MAX, Relaxed);
        }
    }
}
