//! The stacks that the slow path runs on, and whatever else the runtime does in the middle of the
//! program's work: the thread's own may be small, such as an alternate signal stack.
#![allow(unsafe_code)] // Calls functions on other stacks.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use everycall_hooks::{SLOW_FRAME_SIZE, SLOW_STACK_SIZE, SLOW_STACKS};

/// Bytes of all stacks: for as many threads at a time as are in the slow path, which are hardly
/// more than there are CPUs. A thread that finds none stays on its own stack.
pub(crate) const SIZE: u64 = (SLOW_STACKS * SLOW_STACK_SIZE) as u64;

/// Those that nobody is on: their highest addresses, else 0. A forked child has them, too, for its
/// first event, but for those that other threads of its parent were on at the fork.
static FREE: [AtomicU64; SLOW_STACKS] = [const { AtomicU64::new(0) }; SLOW_STACKS];

/// The stacks are there, from `low` on, [`SIZE`] bytes.
pub(crate) fn begin(low: u64) {
    for (stack, number) in FREE.iter().zip(1..) {
        stack.store(low + number * SLOW_STACK_SIZE as u64, Relaxed);
    }
}

/// Where they are listed, for hooks.
pub(crate) fn list() -> u64 {
    FREE.as_ptr() as u64
}

/// Does something on one of them, for a thread whose signals are blocked. What it returned.
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
        // SAFETY: the one below, which nobody else has.
        let call = unsafe { &mut *call.cast::<Call<F>>() };
        if let Some(work) = call.work.take() {
            call.result = work();
        }
    }
    let mut call = Call { work: Some(work), result: 0 };
    // SAFETY: the stack was taken, so that it is this thread's alone.
    unsafe {
        everycall_hooks::call_on_stack((&raw mut call).cast(), entry::<F>, top - SLOW_FRAME_SIZE as u64)
    };
    call.result
}
