//! Recognises stacks that extend beyond their known bounds.

use crate::state::process::Process;
use crate::state::ranges::{Range, flags};
use crate::sys::system;
use crate::threads::stacks;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::thread_state;
use everycall_ring::{Control, running};

/// Whether a context's stack extends to a stack pointer beyond its known bounds. If so, the bounds
/// are updated.
pub(crate) fn is_grown(process: &'static Process, control: &'static Control, pointer: u64) -> bool {
    let Some(bounds) = stacks::grown(process, control, pointer, stacks::innermost(control)) else {
        return false;
    };
    if control.fiber.load(Relaxed) != 0 {
        let table = process.stacks.lock();
        let slot = control.slot.load(Relaxed) + 1;
        let Some(range) = table.overlapping(bounds.low, bounds.high, |range| range.slot == slot) else {
            return false;
        };
        table.remove(&range);
        table.insert(&Range { low: bounds.low, high: bounds.high, ..range });
    }
    stacks::set(process, control, bounds);
    true
}

/// The context of another thread whose own stack the calling thread runs.
pub(crate) fn other_threads(process: &'static Process, pointer: u64) -> Option<&'static Control> {
    let is_near = |control: &Control| stacks::is_near(control, pointer);
    let is_it = |control| stacks::is_within(control, pointer) || is_grown(process, control, pointer);
    of_threads(process, is_near).find(|&control| is_it(control))
}

/// The contexts of threads' own stacks that `is_meant` accepts and whose threads, by the kernel,
/// haven't ended.
pub(crate) fn of_threads(
    process: &'static Process,
    is_meant: impl Fn(&Control) -> bool,
) -> impl Iterator<Item = &'static Control> {
    let arena = process.arena();
    process.controls().filter(move |control| {
        let slot = arena.slot(control.slot.load(Relaxed));
        slot.state().load(Relaxed) == thread_state::USED
            && control.fiber.load(Relaxed) == 0
            && is_meant(control)
            && !system::thread_is_gone(process.pid.load(Relaxed), slot.tid().load(Relaxed))
    })
}

/// The context of an unregistered, suspended stack that is now resumed below its known lower end.
pub(crate) fn suspended_above(process: &'static Process, pointer: u64) -> Option<&'static Control> {
    let range = process.stacks.next_above(pointer).filter(|range| range.flags & flags::GUESSED != 0)?;
    let control = process.control(range.slot.checked_sub(1)?);
    let is_suspended = control.runner.load(Acquire) < running(0) && stacks::innermost(control).is_some();
    (is_suspended && is_grown(process, control, pointer)).then_some(control)
}
