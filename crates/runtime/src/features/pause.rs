//! Switches recording off and on again: of one thread, which the program leaves out, or of all of
//! them. How threads see that: `state::recording`.

use crate::state::process::Process;
use crate::state::recording::{self, DISABLED, DISABLED_TICKS};
use crate::threads::thread::Thread;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::process_state as arena_state;
use everycall_ring::{Control, state};

/// Leaves the calling thread out.
pub(crate) fn leave_out(thread: &Thread<'_>) {
    thread.control.left_out.store(1, Relaxed);
    recording::stop_if_asked(thread.control, &thread.slot);
}

/// Takes the calling thread back; it records again with its next event, unless tracing is off.
pub(crate) fn take_back(control: &Control) {
    control.left_out.store(0, Relaxed);
    if !recording::is_disabled() {
        control.state.store(state::ACTIVE, Relaxed);
        fence(SeqCst);
        // Where tracing has been switched off meanwhile, the next event finds that.
    }
}

/// Switches tracing off in all threads.
pub(crate) fn disable(process: &'static Process) {
    if DISABLED.swap(1, SeqCst) != 0 {
        return;
    }
    process.arena().state().store(arena_state::OFF, Relaxed);
    for control in process.controls() {
        control.end.store(0, Relaxed);
    }
    fence(SeqCst);
    // Every hook that didn't see its end as 0 has read the clock before.
    DISABLED_TICKS.store(everycall_hooks::ticks(), Relaxed);
}

/// Switches tracing on in all threads.
pub(crate) fn enable(process: &'static Process) {
    if DISABLED.swap(0, SeqCst) == 0 {
        return;
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
