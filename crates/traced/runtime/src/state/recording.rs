//! Whether threads record: one thread may be left out, or recording may be off for all.
//!
//! Hooks check nothing extra for this. To switch tracing off, each thread's `end` is set to 0, so
//! that its next event takes the slow path. That sets the thread's `state` to OFF, and from then on
//! the thread's hooks return early. To switch tracing on, these states are reset. The next event
//! takes the slow path once more, which writes the GAP record.
//!
//! A thread that writes its own `end` or `state` checks [`DISABLED`] afterwards. A thread that
//! changes [`DISABLED`] checks every `end` and `state` afterwards. So one of the two sees the
//! other's change.

use crate::state::arena::Slot;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::event::gap;
use everycall_ring::{Control, state};

/// Whether tracing is off: one of [`disabled`]. Forked children inherit it.
pub(crate) static DISABLED: AtomicU32 = AtomicU32::new(disabled::NO);
/// When tracing went off in every thread, in ticks. 0 while it is being switched off.
pub(crate) static DISABLED_TICKS: AtomicU64 = AtomicU64::new(0);

/// Values of [`DISABLED`].
pub(crate) mod disabled {
    pub const NO: u32 = 0;
    pub const YES: u32 = 1;
    /// The sites are being switched on; hooks don't record yet.
    pub const ABOUT_TO_END: u32 = 2;
}

/// Starts the process with tracing off.
pub(crate) fn begin_off() {
    DISABLED_TICKS.store(everycall_hooks::ticks(), Relaxed);
    DISABLED.store(disabled::YES, SeqCst);
}

/// Called in a forked child. The thread that was switching tracing on doesn't exist there, so
/// tracing stays off.
pub(crate) fn begin_child() {
    let _ = DISABLED.compare_exchange(disabled::ABOUT_TO_END, disabled::YES, SeqCst, Relaxed);
}

/// Whether tracing is off for the process.
pub(crate) fn is_disabled() -> bool {
    DISABLED.load(Relaxed) != disabled::NO
}

/// Whether sites should be on.
pub(crate) fn are_sites_on() -> bool {
    DISABLED.load(SeqCst) != disabled::YES
}

/// Whether the thread doesn't record at present.
pub(crate) fn is_off(control: &Control) -> bool {
    is_disabled() || control.left_out.load(Relaxed) != 0
}

/// Stops recording in the calling thread, whose ring is suspended, if requested. Returns whether it
/// did.
pub(crate) fn stop_if_asked(control: &Control, slot: &Slot) -> bool {
    let is_left_out = control.left_out.load(Relaxed) != 0;
    if !is_left_out && !is_disabled() {
        return false;
    }
    if control.gap_ticks.load(Relaxed) == 0 {
        let now = everycall_hooks::ticks();
        let (since, reason) = match DISABLED_TICKS.load(Relaxed) {
            _ if is_left_out => (now, gap::THREAD),
            0 => (now, gap::DISABLED),
            ticks => (ticks.max(slot.start_ticks().load(Relaxed)), gap::DISABLED),
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

/// Sends the calling thread's events to the slow path again if tracing is off. Called after the
/// thread has let its hooks write.
pub(crate) fn look_again(control: &Control) {
    fence(SeqCst);
    if is_disabled() {
        control.stop_hooks();
        let ticks = DISABLED_TICKS.load(Relaxed);
        begin_gap(control, if ticks == 0 { everycall_hooks::ticks() } else { ticks });
    }
}

/// Begins the gap of a thread for which tracing is switched off. Its sites are switched off, too,
/// so the thread may never notice. Its next event records the gap. (The reason is
/// [`gap::DISABLED`], unless the thread itself sets another one.)
pub(crate) fn begin_gap(control: &Control, ticks: u64) {
    if control.gap_ticks.compare_exchange(0, ticks, SeqCst, Relaxed).is_ok() && !is_disabled() {
        // Another thread has switched tracing on again: there is no gap.
        let _ = control.gap_ticks.compare_exchange(ticks, 0, SeqCst, Relaxed);
    }
}
