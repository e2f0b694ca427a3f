//! Switches recording off and on again: for one thread, which the program leaves out, or for all of
//! them. `state::recording` describes how threads see that.

use crate::features::loaded_modules;
use crate::state::dropped;
use crate::state::process::Process;
use crate::state::recording::{self, DISABLED, DISABLED_TICKS, disabled};
use crate::state::selection;
use crate::threads::thread::Thread;
use crate::threads::{short_calls, stacks};
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::process_state as arena_state;
use everycall_ring::{Control, left_out, state};

/// Leaves the calling thread out.
pub(crate) fn leave_out(thread: &Thread<'_>) {
    thread.control.left_out.store(left_out::YES, Relaxed);
    dropped::leave_out(thread.control);
    recording::stop_if_asked(thread.control, &thread.slot);
    stacks::refit(thread.process, thread.control);
}

/// Records the calling thread again from its next event on, unless tracing is off.
pub(crate) fn take_back(process: &Process, control: &Control) {
    control.left_out.store(left_out::NO, Relaxed);
    short_calls::begin_to_count(process, control);
    stacks::refit(process, control);
    if !recording::is_disabled() {
        control.state.store(state::ACTIVE, Relaxed);
        fence(SeqCst);
        // If tracing has been switched off meanwhile, the next event finds that.
    }
}

/// The program switches tracing off for all threads.
pub(crate) fn disable(process: &'static Process) {
    selection::allow(false);
    update(process);
}

/// The program switches tracing on for all threads, also if the process was started with tracing
/// off.
pub(crate) fn enable(process: &'static Process) {
    selection::allow(true);
    selection::set_base_on(true);
    update(process);
}

/// Switches tracing on or off, as what is wanted has changed.
pub(crate) fn update(process: &'static Process) {
    loop {
        let is_wanted = selection::is_anything_wanted();
        if is_wanted {
            begin(process);
        } else {
            end(process);
        }
        fence(SeqCst);
        if selection::is_anything_wanted() == is_wanted {
            return;
        }
    }
}

/// Switches tracing off in all threads: first their hooks, then the sites.
fn end(process: &'static Process) {
    match DISABLED.swap(disabled::YES, SeqCst) {
        disabled::YES => return loaded_modules::follow(process),
        disabled::ABOUT_TO_END => {}
        _ => {
            process.arena().state().store(arena_state::OFF, Relaxed);
            for control in process.controls() {
                control.stop_hooks();
            }
            fence(SeqCst);
            // Every hook that didn't see an end of 0 read the clock before this.
            let ticks = everycall_hooks::ticks();
            DISABLED_TICKS.store(ticks, Relaxed);
            for control in process.controls() {
                if control.state.load(Relaxed) == state::ACTIVE {
                    recording::begin_gap(control, ticks);
                }
            }
        }
    }
    loaded_modules::request();
    loaded_modules::follow(process);
}

/// Switches tracing on in all threads: first the sites, then all hooks at once.
fn begin(process: &'static Process) {
    let change = |from, to| DISABLED.compare_exchange(from, to, SeqCst, Relaxed).is_ok();
    if !change(disabled::YES, disabled::ABOUT_TO_END) {
        return loaded_modules::follow(process);
    }
    loaded_modules::request();
    loaded_modules::follow(process);
    if !change(disabled::ABOUT_TO_END, disabled::NO) {
        return; // Switched off again meanwhile.
    }
    DISABLED_TICKS.store(0, Relaxed);
    process.arena().state().store(arena_state::TRACING, Relaxed);
    fence(SeqCst);
    for control in process.controls() {
        if control.left_out.load(Relaxed) == 0 {
            let _ = control.state.compare_exchange(state::OFF, state::ACTIVE, SeqCst, Relaxed);
        }
    }
}
