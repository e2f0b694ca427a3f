//! Finds the context to which an event belongs, by the stack that the thread runs.
//!
//! A *context* is a stack with a slot, a ring and an open-call stack: a thread's own, or a fiber's,
//! which any thread may run. Hooks compare the stack pointer with the bounds of the context that
//! the thread ran last. If it lies outside, the slow path comes here:
//!
//! - It finds the context by the stack pointer.
//! - It puts the context's control block into the thread-local slot.
//! - Calls that are open on the previous stack stay open.
//!
//! The program doesn't have to announce a context switch, whether `swapcontext`, `longjmp`,
//! assembly or a signal handler makes it.

use crate::state::local::{last, live, local, set_current, set_home, thread_id};
use crate::state::process::Process;
use crate::state::ranges::{Range, flags};
use crate::sys::system;
use crate::threads::begin;
use crate::threads::contexts::growth::{is_grown, other_threads, suspended_above};
use crate::threads::contexts::over::{known, retire_idle};
use crate::threads::contexts::switch::{Found, begin_home, enter, on_fiber, refit};
use crate::threads::stacks::{self, Bounds, bounds};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::counter;
use everycall_hooks::arch::frame::HOOK_BELOW;
use everycall_hooks::arch::interrupted;
use everycall_ring::{Control, running};

/// Returns the context of the stack that the calling thread runs at this stack pointer, and makes
/// it the thread's current context. A new stack gets a context. `None` if the stack isn't recorded.
/// The thread's signals are blocked.
pub(crate) fn current(process: &'static Process, pointer: u64) -> Option<Found> {
    let known = |control| Some(Found { control, is_new: false });
    match last() {
        Some(control) if stacks::is_seen(control, pointer) => known(control),
        last => find(process, pointer, last),
    }
}

/// The stack on which a stack pointer lies.
enum Stack {
    /// One in the table of stacks: a fiber's.
    Known(Range),
    /// The thread's own stack, within its known bounds.
    Home(&'static Control),
    /// The thread's own stack, which has no context yet.
    NewHome(Bounds),
    /// The thread's own stack, whose bounds weren't known because it began in a handler on the
    /// alternate stack.
    HomeAtLast(&'static Control, Bounds),
    /// The thread's alternate signal stack. The handler has interrupted the thread at a point where
    /// a hook would have this stack pointer.
    Interrupted(u64),
    /// The thread's alternate signal stack; it is unknown which stack the handler interrupted.
    Handler,
    /// The stack of a context that extends beyond its known bounds, or another thread's own stack.
    Other(&'static Control),
    /// A stack that isn't registered.
    Unknown,
}

/// The search for a thread's context.
struct Search {
    process: &'static Process,
    pointer: u64,
    tid: u32,
    /// The context that the thread ran last, and the context of its own stack.
    last: Option<&'static Control>,
    home: Option<&'static Control>,
}

fn find(process: &'static Process, pointer: u64, last: Option<&'static Control>) -> Option<Found> {
    let Some(tid) = thread_id(process) else {
        process.arena().count(counter::THREADS_UNTRACED, 1);
        begin::leave_out();
        return None;
    };
    let home = live(local().home);
    if home.is_none() {
        // In a forked child, the slot still names the parent's context.
        set_home(core::ptr::null());
    }
    let search = Search { process, pointer, tid, last, home };
    match search.stack() {
        Stack::Known(range) => on_fiber(process, last, &range, tid),
        Stack::Home(home) => {
            refit(process, home);
            search.entered(home)
        }
        Stack::NewHome(bounds) => begin_home(process, bounds, tid),
        Stack::HomeAtLast(home, bounds) => {
            stacks::set(process, home, bounds);
            search.entered(home)
        }
        // A handler's calls nest within the calls that it interrupted.
        Stack::Interrupted(hook) => find(process, hook, last),
        Stack::Handler => search.on_alternate_stack(),
        Stack::Other(control) => search.entered(control),
        Stack::Unknown => search.on_unknown_stack(),
    }
}

impl Search {
    /// The context that the thread ran last. A context now running on another thread, or belonging
    /// to another stack, must not be reused.
    fn own(&self) -> Option<&'static Control> {
        self.last.filter(|last| last.runner.load(Acquire) == running(self.tid))
    }

    /// Classifies the stack, and updates the known bounds of stacks on the way.
    fn stack(&self) -> Stack {
        let Search { process, pointer, tid, home, .. } = *self;
        if let Some(range) = known(process, pointer, home).filter(|range| !self.is_new_threads(range)) {
            return Stack::Known(range);
        }
        if let Some(home) = home.filter(|home| stacks::is_within(home, pointer)) {
            return Stack::Home(home);
        }
        let has_bounds = home.is_some_and(|home| home.stack_high.load(Relaxed) != 0);
        let of_thread = if has_bounds { None } else { stacks::of_thread(process, pointer, tid) };
        if let Some(bounds) = of_thread.filter(|_| home.is_none()) {
            return Stack::NewHome(bounds);
        }
        if let Some(handler) = self.handler() {
            return handler;
        }
        let goes_on = |control: &&'static Control| is_grown(process, control, pointer);
        if let Some(control) = [self.own(), home].into_iter().flatten().find(goes_on) {
            return Stack::Other(control);
        }
        if let (Some(home), Some(bounds)) = (home, of_thread) {
            return Stack::HomeAtLast(home, bounds);
        }
        let others = other_threads(process, pointer).or_else(|| suspended_above(process, pointer));
        others.map_or(Stack::Unknown, Stack::Other)
    }

    /// Whether the thread's own stack has since begun in the memory of a known range.
    fn is_new_threads(&self, range: &Range) -> bool {
        self.home.is_none() && range.contains(everycall_hooks::thread_pointer())
    }

    /// The alternate signal stack, if the stack pointer lies there.
    fn handler(&self) -> Option<Stack> {
        let (first, end) = system::alternate_stack()?;
        if !(first..end).contains(&self.pointer) {
            return None;
        }
        let interrupted = interrupted::stack_pointer(self.pointer, first, end);
        // After a stack overflow, there is no memory at the interrupted stack pointer, and it is
        // unknown how far beyond the stack it lies.
        let interrupted = interrupted.filter(|interrupted| system::is_readable(*interrupted, 8));
        Some(interrupted.map_or(Stack::Handler, |pointer| {
            // The stack pointer that a hook would have had.
            Stack::Interrupted(pointer.saturating_sub(HOOK_BELOW))
        }))
    }

    fn entered(&self, control: &'static Control) -> Option<Found> {
        let control = enter(self.process, self.last, control, self.tid);
        Some(Found { control, is_new: false })
    }

    /// A handler's calls belong to the context that ran last.
    fn on_alternate_stack(&self) -> Option<Found> {
        match self.own().or(self.home) {
            Some(control) => self.entered(control),
            None => {
                let nowhere = Bounds { low: u64::MAX, high: 0, how: bounds::THREAD };
                begin_home(self.process, nowhere, self.tid)
            }
        }
    }

    /// Adds the stack to the table, with guessed bounds.
    fn on_unknown_stack(&self) -> Option<Found> {
        let process = self.process;
        let guess = stacks::guess(process, self.pointer);
        let flags = if guess.how == bounds::GUESSED { flags::GUESSED } else { 0 };
        let range = Range { low: guess.low, high: guess.high, flags, tid: self.tid, ..Range::default() };
        let take_in = || process.stacks.lock().insert(&range);
        if !(take_in() || retire_idle(process) && take_in()) {
            process.arena().count(counter::FIBER_EVENTS, 1);
            set_current(core::ptr::null());
            return None;
        }
        on_fiber(process, self.last, &range, self.tid)
    }
}
