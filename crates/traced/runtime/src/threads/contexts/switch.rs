//! Begins contexts, and switches a thread from one to another.

use crate::state::local::{last, live, local, set_current, set_home};
use crate::state::process::Process;
use crate::state::ranges::{Range, flags};
use crate::threads::begin;
use crate::threads::contexts::over::{forget_if_over, retire, retire_idle};
use crate::threads::stacks::{self, Bounds, bounds};
use crate::threads::thread::{Thread, UNSEEN};
use core::sync::atomic::{Ordering::AcqRel, Ordering::Relaxed};
use everycall_format::arena::counter;
use everycall_format::event::unwound;
use everycall_ring::{Control, running};

/// A context, and whether it is new.
pub(crate) struct Found {
    pub(crate) control: &'static Control,
    pub(crate) is_new: bool,
}

/// Begins the context of the calling thread's own stack. Stacks that were known in this memory have
/// ended, except those that this thread itself registered.
pub(crate) fn begin_home(process: &'static Process, bounds: Bounds, tid: u32) -> Option<Found> {
    if !process.stacks.is_empty() && bounds.high != 0 {
        retire(process, bounds.low, bounds.high, unwound::NOTICED, |range| range.tid != tid);
    }
    let control = begin_context(process, bounds, tid, None)?;
    set_home(control);
    if let Some(last) = last() {
        leave(last, tid);
    }
    control.runner.store(running(tid), Relaxed);
    set_current(control);
    Some(Found { control, is_new: true })
}

/// Switches to the context of a stack in the table. Begins the context if the stack has none.
pub(crate) fn on_fiber(
    process: &'static Process,
    last: Option<&'static Control>,
    range: &Range,
    tid: u32,
) -> Option<Found> {
    if let Some(slot) = range.slot.checked_sub(1) {
        let control = enter(process, last, process.control(slot), tid);
        if range.flags & flags::BEGUN_ANEW != 0 {
            process.stacks.lock().update(range, |range| range.flags &= !flags::BEGUN_ANEW);
            control.resumed.store(0, Relaxed);
            Thread::new(process, control).leave_all(unwound::NOTICED);
        }
        refit(process, control);
        return Some(Found { control, is_new: false });
    }
    let how = if range.flags & flags::GUESSED != 0 { bounds::GUESSED } else { bounds::TOLD };
    let bounds = Bounds { low: range.low, high: range.high, how };
    let begun = (range.flags & flags::REFUSED == 0)
        .then(|| begin_context(process, bounds, tid, Some(range.name)))
        .flatten();
    let Some(control) = begun else {
        process.stacks.lock().update(range, |range| range.flags |= flags::REFUSED);
        process.arena().count(counter::FIBER_EVENTS, 1);
        if let Some(last) = last {
            leave(last, tid);
        }
        set_current(core::ptr::null());
        return None;
    };
    let slot = control.slot.load(Relaxed) + 1;
    process.stacks.lock().update(range, |range| {
        range.slot = slot;
        range.flags &= !flags::BEGUN_ANEW;
    });
    enter(process, last, control, tid);
    Some(Found { control, is_new: true })
}

/// Sets the bounds that hooks compare, after removing the stacks within them whose function has
/// returned.
pub(crate) fn refit(process: &'static Process, control: &'static Control) {
    let home = live(local().home);
    loop {
        let (end, high) = (control.stack_end.load(Relaxed), control.stack_high.load(Relaxed));
        let highest = if process.stacks.is_empty() { None } else { process.stacks.highest_within(end, high) };
        if !highest.is_some_and(|range| forget_if_over(process, &range, home)) {
            break;
        }
    }
    stacks::refit(process, control);
}

/// Switches to `control`, if the thread ran another context last.
pub(crate) fn enter(
    process: &'static Process,
    last: Option<&'static Control>,
    control: &'static Control,
    tid: u32,
) -> &'static Control {
    if last.is_some_and(|last| core::ptr::eq(last, control)) {
        return control;
    }
    if let Some(last) = last {
        leave(last, tid);
    }
    let before = control.runner.swap(running(tid), AcqRel);
    if before >= running(0) {
        if before != running(tid) {
            control.resumed.store(UNSEEN, Relaxed);
        }
    } else {
        control.resumed.store(before, Relaxed);
    }
    if control.fiber.load(Relaxed) != 0 {
        // A thread's own context keeps its thread id, by which the runtime asks whether that thread
        // has ended.
        process.arena().slot(control.slot.load(Relaxed)).tid().store(tid, Relaxed);
    }
    set_current(control);
    Thread::new(process, control).leave_below_jump();
    control
}

/// Suspends a context, unless another thread already runs it.
pub(crate) fn leave(last: &Control, tid: u32) {
    let now = everycall_hooks::ticks();
    let _ = last.runner.compare_exchange(running(tid), now, AcqRel, Relaxed);
}

/// Begins a context in a free place. If there is none, ends unused fibers first.
fn begin_context(
    process: &'static Process,
    bounds: Bounds,
    tid: u32,
    fiber: Option<begin::Name>,
) -> Option<&'static Control> {
    let take_place = || process.retired.take_place(process);
    let place = take_place().or_else(|| if retire_idle(process) { take_place() } else { None });
    begin::begin(process, place, bounds, tid, fiber)
}
