//! Actions on the calling thread: its signals are blocked, its context is found, and its hooks are
//! kept from interfering.

use crate::features::{fork, keeper};
use crate::state::process::{Process, traced};
use crate::state::{local, recording};
use crate::sys::errors::error;
use crate::sys::system;
use crate::threads::open_calls::Frame;
use crate::threads::thread::Thread;
use crate::threads::{begin, contexts};
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::label;
use everycall_ring::{Control, state};

/// Words that may precede a label: epoch 2, gap 5.
pub(crate) const WORDS_BEFORE: usize = 7;

/// Records a mark of the runtime's own, if the calling thread already records. `stack_pointer`:
/// frames below it are dead.
pub(crate) fn note(class: u8, name: &[u8], stack_pointer: u64) {
    let Some(process) = traced().filter(|_| !recording::is_disabled()) else { return };
    let is_active = |control: &&Control| control.state.load(Relaxed) == state::ACTIVE;
    uninterrupted(process, || {
        if let Some(control) = own_control(process).filter(is_active) {
            within(process, control, |thread| {
                thread.ring.suspend();
                if !recording::stop_if_asked(thread.control, &thread.slot) {
                    let empty = label::record(class, 0, None, name);
                    let ticks = thread.prepare(WORDS_BEFORE + empty.words().len());
                    thread.drop_dead(ticks, Frame::Body(stack_pointer));
                    thread.ring.push(label::record(class, ticks, None, name).words());
                    thread.resume();
                }
            });
        }
    });
}

/// The control block of the stack that the calling thread runs, whose signals are blocked. `None`
/// if the thread hasn't recorded anything. (The only thread of a forked child finds its parent's,
/// wiped.)
pub(crate) fn own_control(process: &'static Process) -> Option<&'static Control> {
    local::last()?;
    contexts::current(process, everycall_hooks::stack_pointer()).map(|found| found.control)
}

/// Whether the calling thread has begun and isn't left out.
pub(crate) fn is_recording() -> bool {
    traced().is_some() && local::last().is_some_and(|control| !begin::is_left_out(control))
}

/// Whether calls of the calling thread are recorded, also if it hasn't begun.
pub(crate) fn is_included() -> bool {
    traced().is_some()
        && !recording::is_disabled()
        && local::last().is_none_or(|control| !begin::is_left_out(control) && !recording::is_off(control))
}

/// Runs `work` while the calling thread's signals are blocked. If a call was posted meanwhile, its
/// helper is started afterwards.
pub(crate) fn uninterrupted<T>(process: &Process, work: impl FnOnce() -> T) -> T {
    let mask = system::block_signals();
    let result = work();
    keeper::start_if_due(process);
    system::set_signal_mask(mask);
    result
}

/// As [`uninterrupted`], on one of the slow path's stacks. Returns the result of `work`, or an
/// error.
pub(crate) fn aside(process: &Process, work: impl FnOnce() -> i32) -> i32 {
    uninterrupted(process, || local::run_on_slow_stack(work))
}

/// Runs `change` with the calling thread, which begins if it hasn't yet. So does a forked child.
pub(crate) fn with_control(change: impl FnOnce(&Thread<'_>, &'static Process)) -> Result<(), i32> {
    let process = fork::traced().ok_or(error::NOT_TRACED)?;
    let pointer = everycall_hooks::stack_pointer();
    let result = aside(process, || match contexts::current(process, pointer).map(|found| found.control) {
        Some(control) if !begin::is_left_out(control) => {
            within(process, control, |thread| change(thread, process))
        }
        _ => error::NO_THREAD,
    });
    if result == 0 { Ok(()) } else { Err(result) }
}

/// As [`with_control`], with space in the ring to write. Does nothing if the thread doesn't record.
pub(crate) fn with_thread(write: impl FnOnce(&Thread<'_>)) -> Result<(), i32> {
    if traced().is_some() && local::last().is_some_and(begin::is_left_out) {
        return Ok(());
    }
    with_control(|thread, _| {
        if thread.control.state.load(Relaxed) == state::OFF {
            return;
        }
        thread.ring.suspend();
        if !recording::stop_if_asked(thread.control, &thread.slot) {
            write(thread);
            thread.resume();
            thread.divert_in_handler();
        }
    })
}

/// Runs something with a thread, unless its slow path is running.
pub(crate) fn within(
    process: &'static Process,
    control: &'static Control,
    work: impl FnOnce(&Thread<'_>),
) -> i32 {
    if control.busy.swap(1, Relaxed) != 0 {
        return error::BUSY;
    }
    let thread = Thread::new(process, control);
    work(&thread);
    thread.divert_again();
    recording::look_again(control);
    control.busy.store(0, Relaxed);
    0
}
