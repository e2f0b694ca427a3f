//! Whether threads record: one thread may be left out, or recording may be off for all.
//!
//! Hooks check nothing extra for this. Switching tracing off sets every thread's `end` to 0, so
//! that its next event comes to the slow path. That sets its `state` to OFF, and from then on hooks
//! return as soon as they have read it. Switching tracing on resets those states. The next event
//! comes to the slow path once more, which writes the GAP record.
//!
//! A thread that writes its own `end` or `state` checks the switch afterwards. A thread that
//! changes the switch checks `end` and `state` afterwards. So one of the two sees the other's
//! change.

use crate::state::arena::Slot;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_format::event::gap;
use everycall_ring::{Control, state};

/// Whether tracing is off: [`disabled`]. Forked children inherit it.
pub(crate) static DISABLED: AtomicU32 = AtomicU32::new(disabled::NO);
/// When it was off in every thread, in ticks. 0 while it is being switched off.
pub(crate) static DISABLED_TICKS: AtomicU64 = AtomicU64::new(0);

/// [`DISABLED`].
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

/// In a forked child, the thread that was switching tracing on doesn't exist.
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

/// Stops recording in the calling thread, whose ring is suspended, if requested. Returns whether it did.
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

/// Called after the calling thread has let its hooks write again.
pub(crate) fn look_again(control: &Control) {
    fence(SeqCst);
    if is_disabled() {
        control.end.store(0, Relaxed);
        let ticks = DISABLED_TICKS.load(Relaxed);
        begin_gap(control, if ticks == 0 { everycall_hooks::ticks() } else { ticks });
    }
}

/// Begins the gap of a thread that is switched off: it misses calls from now on, although it may
/// never see that, because its sites are switched off, too. Its next event records the gap. (The
/// reason is [`gap::DISABLED`], unless the thread itself sets another one.)
pub(crate) fn begin_gap(control: &Control, ticks: u64) {
    if control.gap_ticks.compare_exchange(0, ticks, SeqCst, Relaxed).is_ok() && !is_disabled() {
        // Another thread has switched tracing on again. What was recorded since then isn't a gap.
        let _ = control.gap_ticks.compare_exchange(ticks, 0, SeqCst, Relaxed);
    }
}
