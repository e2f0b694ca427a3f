//! Threads that the program cancels (`pthread_cancel`). If none of their frames cleans up, the
//! runtime isn't notified when they end. After the cancellation, all their calls take the slow
//! path, which records where they were made.

use crate::state::cancelled::{CANCELLED, Cancelled, LONG_AGO};
use crate::state::process::Process;
use crate::sys::system;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use everycall_ring::Control;

/// A cancelled thread that makes no call for this many ticks, a second or two, has ended. Another
/// thread may have its thread pointer by then.
const CANCELLED_MAX: u64 = 1 << 32;

/// The program cancels the thread with this thread pointer. From now on, the thread may end at any
/// call, and all its calls take the slow path.
#[inline(never)] // It would enlarge the frame of `unwinding`, on the thread's own stack.
pub(crate) fn cancel(process: &'static Process, thread: u64) {
    let arena = process.arena();
    let is_gone = |control: &Control| {
        let tid = arena.slot(control.slot.load(Relaxed)).tid().load(Relaxed);
        system::thread_is_gone(process.pid.load(Relaxed), tid)
    };
    let tell = || {
        let mut has_context = false;
        for control in process.controls() {
            let known = control.thread.load(Relaxed);
            let is_it = known & !(CANCELLED | LONG_AGO) == thread && !is_gone(control);
            // This fails if another thread has got the context meanwhile.
            if is_it && control.thread.compare_exchange(known, known | CANCELLED, SeqCst, Relaxed).is_ok() {
                has_context = true;
                // Ordered with the thread's own stores: see `Thread::divert_if_ended`.
                fence(SeqCst);
                control.stack_low.store(u64::MAX, Relaxed);
            }
        }
        has_context
    };
    if !tell() {
        let next = process.next_cancelled.fetch_add(1, Relaxed) as usize % process.cancelled.len();
        let Some(Cancelled { thread: place, ticks }) = process.cancelled.get(next) else { return };
        ticks.store(everycall_hooks::ticks(), Relaxed);
        place.store(thread, SeqCst);
        // The thread's first call may come meanwhile. Either it finds this entry, or its context is
        // found here.
        fence(SeqCst);
        if tell() {
            let _ = place.compare_exchange(thread, 0, Relaxed, Relaxed);
        }
    }
}

/// Whether the calling thread, whose context begins, was cancelled before.
pub(crate) fn was_cancelled(process: &Process, thread: u64) -> bool {
    fence(SeqCst);
    let now = everycall_hooks::ticks();
    let is_it = |asked: &Cancelled| {
        asked.thread.compare_exchange(thread, 0, Relaxed, Relaxed).is_ok()
            && now.saturating_sub(asked.ticks.load(Relaxed)) < CANCELLED_MAX
    };
    process.cancelled.iter().any(is_it)
}
