//! Handles exhausted memory: a sentence and an exit code, as for any other failure.
//!
//! Rust's library aborts if an infallible allocation fails. Allocations whose size comes from
//! outside are fallible; for all others, the abort becomes an exit here.
//!
//! # Safety
//!
//! The allocator forwards everything to the system's allocator. The handler of SIGABRT only calls
//! async-signal-safe functions.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The system's allocator, which records failures.
struct Noting;

#[global_allocator]
static ALLOCATOR: Noting = Noting;

static HAS_FAILED: AtomicBool = AtomicBool::new(false);
static EXIT_CODE: AtomicI32 = AtomicI32::new(1);

const SENTENCE: &[u8] =
    b"everycall: out of memory; raise the limit (ulimit -v, a control group), or ask for less\n";

fn note(address: *mut u8) -> *mut u8 {
    if address.is_null() {
        HAS_FAILED.store(true, Ordering::Relaxed);
    }
    address
}

// SAFETY: all calls are forwarded, with unchanged arguments and results.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for this function.
        note(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for this function.
        note(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: as for this function.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for this function.
        note(unsafe { System.realloc(address, layout, size) })
    }
}

extern "C" fn on_abort(_signal: libc::c_int) {
    // Other aborts stay aborts: the handler is removed after the first signal.
    if HAS_FAILED.load(Ordering::Relaxed) {
        // SAFETY: both are async-signal-safe; the sentence is static.
        unsafe {
            libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len());
            libc::_exit(EXIT_CODE.load(Ordering::Relaxed));
        }
    }
}

/// From now on, this process exits with `exit_code` if memory is exhausted. Programs that it starts
/// don't inherit this.
pub fn exit_where_none_is_left(exit_code: u8) {
    EXIT_CODE.store(exit_code.into(), Ordering::Relaxed);
    // SAFETY: all zero is a valid action; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_abort as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
    }
}
