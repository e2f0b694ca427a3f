//! What happens where there is no memory left: a sentence and an exit code, as for any other
//! failure.
//!
//! Rust's library aborts where memory that it can't do without isn't to be had. Allocations of
//! sizes that come from outside are asked for in ways that may fail; for all others, the abort
//! becomes an exit here.
//!
//! # Safety
//!
//! The allocator hands everything on to the system's. The handler of SIGABRT calls only what is
//! async-signal-safe.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The system's allocator, which notes that it has failed.
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

// SAFETY: everything is handed on, and what comes back is given back as it is.
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
    // An abort for another reason stays one: the handler was installed for one signal.
    if HAS_FAILED.load(Ordering::Relaxed) {
        // SAFETY: both are async-signal-safe; the sentence is static.
        unsafe {
            libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len());
            libc::_exit(EXIT_CODE.load(Ordering::Relaxed));
        }
    }
}

/// From now on, where there is no memory left, this process exits with `exit_code`. Programs that
/// are started don't inherit it.
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
