//! The stacks for the slow path, and for everything else that the runtime does in a thread of the
//! program. The thread's own stack may be small, as an alternate signal stack is.
#![allow(unsafe_code)] // Calls functions on other stacks.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use everycall_hooks::{SLOW_FRAME_SIZE, SLOW_STACK_SIZE, SLOW_STACKS};

/// Bytes of all stacks. The number of threads in the slow path at a time is hardly higher than the
/// number of CPUs. A thread that finds no free stack stays on its own.
pub(crate) const SIZE: u64 = (SLOW_STACKS * SLOW_STACK_SIZE) as u64;

/// The highest addresses of free stacks; 0 for those in use. A forked child has them, too, for its
/// first event, except for those that other threads of its parent used at the fork.
static FREE: [AtomicU64; SLOW_STACKS] = [const { AtomicU64::new(0) }; SLOW_STACKS];

/// Registers the stacks: [`SIZE`] bytes from `low` on.
pub(crate) fn begin(low: u64) {
    for (stack, number) in FREE.iter().zip(1..) {
        stack.store(low + number * SLOW_STACK_SIZE as u64, Relaxed);
    }
}

/// The address of the list, for hooks.
pub(crate) fn list() -> u64 {
    FREE.as_ptr() as u64
}

/// Runs `work` on one of these stacks. The thread's signals are blocked. Returns its result.
pub(crate) fn run(work: impl FnOnce() -> i32) -> i32 {
    let take = |stack: &AtomicU64| match stack.load(Relaxed) {
        0 => 0,
        _ => stack.swap(0, AcqRel),
    };
    let taken = FREE.iter().map(|stack| (stack, take(stack))).find(|(_, top)| *top != 0);
    let Some((stack, top)) = taken else { return work() };
    let result = run_on(top, work);
    stack.store(top, Release);
    result
}

fn run_on<F: FnOnce() -> i32>(top: u64, work: F) -> i32 {
    struct Call<F> {
        work: Option<F>,
        result: i32,
    }
    unsafe extern "C" fn entry<F: FnOnce() -> i32>(call: *mut c_void) {
        // SAFETY: the one below, which no other thread has.
        let call = unsafe { &mut *call.cast::<Call<F>>() };
        if let Some(work) = call.work.take() {
            call.result = work();
        }
    }
    let mut call = Call { work: Some(work), result: 0 };
    // SAFETY: the stack was taken, so only this thread uses it.
    unsafe {
        everycall_hooks::call_on_stack((&raw mut call).cast(), entry::<F>, top - SLOW_FRAME_SIZE as u64)
    };
    call.result
}
