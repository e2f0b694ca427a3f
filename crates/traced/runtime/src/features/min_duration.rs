//! From which duration on calls are recorded: see [`everycall_format::dropped`].

use crate::state::arena::Arena;
use crate::state::dropped;
use crate::state::process::Process;
use crate::sys::clock;
use crate::sys::errors::error;
use crate::sys::system::{self, CLOCK_MONOTONIC_RAW};
use crate::threads::thread::Thread;
use everycall_format::dropped::{NS_MAX, threshold};

/// The clock's rate is measured since the process's start, for at least this many nanoseconds: its
/// relative error is then some thousandths.
const MEASURED_NS: u64 = 300_000;

/// Sets the duration in an arena whose start is noted. Threads that have begun adopt it by
/// themselves, within two seconds.
pub(crate) fn set(arena: &Arena, nanoseconds: u64) {
    let first = arena.start().unwrap_or_default();
    let elapsed = || system::clock_ns(CLOCK_MONOTONIC_RAW).saturating_sub(first.monotonic_raw_ns);
    while nanoseconds != 0 && elapsed() < MEASURED_NS {}
    let now = clock::reading();
    let ticks = now.ticks.saturating_sub(first.ticks);
    let elapsed = now.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns);
    dropped::set_threshold(arena, threshold(nanoseconds, ticks, elapsed), nanoseconds);
}

/// Sets it while the process runs: threads adopt it at their next event.
pub(crate) fn change(process: &'static Process, nanoseconds: u64) -> i32 {
    if nanoseconds > NS_MAX {
        return error::ARGUMENT;
    }
    set(process.arena(), nanoseconds);
    for control in process.controls() {
        // The next event comes to the slow path.
        control.stop_hooks();
    }
    0
}

/// The calling thread adopts it at once.
pub(crate) fn adopt(thread: &Thread<'_>) {
    thread.ring.suspend();
    thread.adopt_thresholds();
    thread.resume();
}
