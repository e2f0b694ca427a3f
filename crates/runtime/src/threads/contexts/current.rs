//! Which stack a thread runs, and whose events its hooks write: those of its own stack, or of a
//! fiber's.
//!
//! A *context* is a stack with a slot, a ring and an open-call stack: a thread's own, or a fiber's,
//! which any thread may run. Hooks compare the stack pointer with the bounds of the context that
//! the thread ran last; where it is another one's, the slow path comes here. It finds the context
//! by the stack pointer and puts its control block into the thread-local slot. Calls that are open
//! on the stack that was left stay open.
//!
//! Nobody has to tell of a switch, be it made by `swapcontext`, `longjmp`, assembly or a signal
//! handler.

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

/// The context that the calling thread, whose signals are blocked, runs at this stack pointer. It
/// begins if it hasn't yet. `None` where the stack isn't recorded.
pub(crate) fn current(process: &'static Process, pointer: u64) -> Option<Found> {
    let known = |control| Some(Found { control, is_new: false });
    match last() {
        Some(control) if stacks::is_seen(control, pointer) => known(control),
        last => find(process, pointer, last),
    }
}

/// What a stack pointer is found to lie on.
enum Stack {
    /// One of the table: a fiber's.
    Known(Range),
    /// The thread's own, within its known bounds.
    Home(&'static Control),
    /// The thread's own, which has no context yet.
    NewHome(Bounds),
    /// The thread's own, whose bounds weren't known: it began in a handler on its alternate stack.
    HomeAtLast(&'static Control, Bounds),
    /// The thread's alternate signal stack: a handler has interrupted it where a hook would have
    /// this stack pointer.
    Interrupted(u64),
    /// The same, where nobody knows what was interrupted.
    Handler,
    /// Another context's, which goes on beyond its known bounds or in this thread.
    Other(&'static Control),
    /// One that nobody has told of.
    Unknown,
}

/// A thread that looks for its context.
struct Search {
    process: &'static Process,
    pointer: u64,
    tid: u32,
    /// The context that it ran last, and that of its own stack.
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
        // Its parent's, after a fork.
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
        // A handler's calls nest within what it interrupted.
        Stack::Interrupted(hook) => find(process, hook, last),
        Stack::Handler => search.on_alternate_stack(),
        Stack::Other(control) => search.entered(control),
        Stack::Unknown => search.on_unknown_stack(),
    }
}

impl Search {
    /// The context that the thread ran last, unless another thread runs it by now, or it is another
    /// stack's: that one isn't this thread's to go on in.
    fn own(&self) -> Option<&'static Control> {
        self.last.filter(|last| last.runner.load(Acquire) == running(self.tid))
    }

    /// Which stack it is. What is known of stacks is brought up to date on the way.
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

    /// Whether a known range is memory in which the thread's own stack has begun since.
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
        // Nothing is there where a stack has overflowed: by how much, nobody knows.
        let interrupted = interrupted.filter(|interrupted| system::is_readable(*interrupted, 8));
        Some(interrupted.map_or(Stack::Handler, |pointer| {
            // Where a hook would have been.
            Stack::Interrupted(pointer.saturating_sub(HOOK_BELOW))
        }))
    }

    fn entered(&self, control: &'static Control) -> Option<Found> {
        let control = enter(self.process, self.last, control, self.tid);
        Some(Found { control, is_new: false })
    }

    /// A handler's calls are those of the context that ran last.
    fn on_alternate_stack(&self) -> Option<Found> {
        match self.own().or(self.home) {
            Some(control) => self.entered(control),
            None => {
                let nowhere = Bounds { low: u64::MAX, high: 0, how: bounds::THREAD };
                begin_home(self.process, nowhere, self.tid)
            }
        }
    }

    /// The stack comes into the table, with bounds that are guessed.
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
