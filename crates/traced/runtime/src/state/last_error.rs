//! Where threads have the C library's `errno`.
#![allow(unsafe_code)] // A thread's own memory, by its address.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_hooks::arch;

/// In bytes from the thread pointer; 0 if it isn't known.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Finds the place.
///
/// # Safety
/// Only in an initialiser, on a thread of the C library.
pub(crate) unsafe fn find() {
    // SAFETY: by contract.
    OFFSET.store(unsafe { arch::error_offset() }.unwrap_or(0), Relaxed);
}

/// The calling thread's `errno`. `None` if it isn't known, or if there may be several C libraries.
pub(crate) fn of_this_thread() -> Option<u32> {
    let offset = OFFSET.load(Relaxed);
    if offset == 0 || arch::has_namespaces() {
        return None;
    }
    let place = arch::thread_pointer().wrapping_add(offset);
    // SAFETY: the C library has it there in each of its threads' memory. A signal handler may write
    // it.
    Some(unsafe { (place as *const u32).read_volatile() })
}
