//! Recording off and on again: of one thread, which the program leaves out, or of all of them.
//!
//! Hooks look at nothing more for it than they do anyway. Whoever switches tracing off sets every thread's `end` to 0, so that its
//! next event comes to the slow path, which turns its `state` to OFF: from then on hooks return as soon as they have seen that. Whoever
//! switches it on turns those states back; the next event comes to the slow path once more, which writes the GAP record.
//!
//! A thread that writes its own `end` or `state` looks at the switch afterwards, and who turns the switch looks at them afterwards:
//! so one of the two sees the other.

use crate::live;
use crate::process::Process;
use crate::slow::Thread;
use crate::stacks;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::arena::process_state as arena_state;
use everycall_format::event::gap;
use everycall_ring::{Control, left_out, state};

/// Whether tracing is off: [`disabled`]. Forked children begin with what it is.
static DISABLED: AtomicU32 = AtomicU32::new(disabled::NO);
/// When it went off in every thread, ticks; 0 while that is being done.
static DISABLED_TICKS: AtomicU64 = AtomicU64::new(0);

mod disabled {
    pub const NO: u32 = 0;
    pub const YES: u32 = 1;
    /// The sites are being switched on; hooks don't record yet.
    pub const ABOUT_TO_END: u32 = 2;
}

/// The process starts with tracing off.
pub(crate) fn begin_off() {
    DISABLED_TICKS.store(everycall_hooks::ticks(), Relaxed);
    DISABLED.store(disabled::YES, SeqCst);
}

/// In a forked child, where whoever was switching tracing on doesn't run.
pub(crate) fn begin_child() {
    let _ = DISABLED.compare_exchange(disabled::ABOUT_TO_END, disabled::YES, SeqCst, Relaxed);
}

/// Whether tracing is off for the process.
pub(crate) fn is_disabled() -> bool {
    DISABLED.load(Relaxed) != disabled::NO
}

/// Whether sites are to be on.
pub(crate) fn are_sites_on() -> bool {
    DISABLED.load(SeqCst) != disabled::YES
}

/// Whether the thread doesn't record now.
pub(crate) fn is_off(control: &Control) -> bool {
    is_disabled() || control.left_out.load(Relaxed) != 0
}

/// Stops the calling thread, whose ring is held, where it has to: true then.
pub(crate) fn stop_if_asked(thread: &Thread<'_>) -> bool {
    let control = thread.control;
    let is_left_out = control.left_out.load(Relaxed) != 0;
    if !is_left_out && !is_disabled() {
        return false;
    }
    if control.gap_ticks.load(Relaxed) == 0 {
        let now = everycall_hooks::ticks();
        let (since, reason) = match DISABLED_TICKS.load(Relaxed) {
            _ if is_left_out => (now, gap::THREAD),
            0 => (now, gap::DISABLED),
            ticks => (ticks.max(thread.slot.start_ticks().load(Relaxed)), gap::DISABLED),
        };
        control.gap_ticks.store(since, Relaxed);
        control.gap_reason.store(reason.into(), Relaxed);
    }
    control.state.store(state::OFF, Relaxed);
    fence(SeqCst);
    if !is_off(control) {
        control.state.store(state::ACTIVE, Relaxed);
    }
    true
}

/// After the calling thread has let its hooks write again.
pub(crate) fn look_again(control: &Control) {
    fence(SeqCst);
    if is_disabled() {
        control.end.store(0, Relaxed);
        let now = || everycall_hooks::ticks();
        begin_gap(
            control,
            match DISABLED_TICKS.load(Relaxed) {
                0 => now(),
                ticks => ticks,
            },
        );
    }
}

/// A thread that is switched off misses calls from now on, though it may never notice: its sites go
/// off, too. It says so with its next event. (Its reason is [`gap::DISABLED`], unless the thread
/// itself says another one.)
fn begin_gap(control: &Control, ticks: u64) {
    if control.gap_ticks.compare_exchange(0, ticks, SeqCst, Relaxed).is_ok() && !is_disabled() {
        // On again, in another thread: what was recorded since is no gap.
        let _ = control.gap_ticks.compare_exchange(ticks, 0, SeqCst, Relaxed);
    }
}

/// Leaves the calling thread out.
pub(crate) fn leave_out(thread: &Thread<'_>) {
    thread.control.left_out.store(left_out::YES, Relaxed);
    stop_if_asked(thread);
    stacks::refit(thread.process, thread.control);
}

/// Takes the calling thread back; it records again with its next event, unless tracing is off.
pub(crate) fn take_back(process: &Process, control: &Control) {
    control.left_out.store(left_out::NO, Relaxed);
    stacks::refit(process, control);
    if !is_disabled() {
        control.state.store(state::ACTIVE, Relaxed);
        fence(SeqCst);
        // Where tracing has been switched off meanwhile, the next event finds that.
    }
}

/// Switches tracing off in all threads: their hooks at once, then the sites.
pub(crate) fn disable(process: &'static Process) {
    match DISABLED.swap(disabled::YES, SeqCst) {
        disabled::YES => return,
        disabled::ABOUT_TO_END => {}
        _ => {
            process.arena().state().store(arena_state::OFF, Relaxed);
            for control in process.controls() {
                control.end.store(0, Relaxed);
            }
            fence(SeqCst);
            // Every hook that didn't see its end as 0 has read the clock before.
            let ticks = everycall_hooks::ticks();
            DISABLED_TICKS.store(ticks, Relaxed);
            for control in process.controls() {
                if control.state.load(Relaxed) == state::ACTIVE {
                    begin_gap(control, ticks);
                }
            }
        }
    }
    live::follow(process);
}

/// Switches tracing on in all threads: the sites, then all hooks at once.
pub(crate) fn enable(process: &'static Process) {
    let change = |from, to| DISABLED.compare_exchange(from, to, SeqCst, Relaxed).is_ok();
    if !change(disabled::YES, disabled::ABOUT_TO_END) {
        return;
    }
    live::follow(process);
    if !change(disabled::ABOUT_TO_END, disabled::NO) {
        return; // Off again meanwhile.
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
