//! The C library's number of the last error, `errno`, which each thread has.
#![allow(unsafe_code)] // Assembly, and a call of a function by its address.

use super::processor::thread_pointer;
use core::arch::asm;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Where each thread has its `errno`, in bytes from its thread pointer; `None` if there is no C
/// library that tells.
///
/// # Safety
/// Only in an initialiser, on a thread of the C library.
#[must_use]
pub unsafe fn error_offset() -> Option<u64> {
    let location: *const u8;
    // SAFETY: loads an address that the linker has stored, or null.
    unsafe {
        asm!(
            ".weak __errno_location",
            "movq __errno_location@GOTPCREL(%rip), {location}",
            location = out(reg) location,
            options(att_syntax, nostack, pure, nomem, preserves_flags)
        );
    }
    // SAFETY: null, or a function of this type.
    let location: Option<unsafe extern "C" fn() -> *const i32> = unsafe { core::mem::transmute(location) };
    // SAFETY: by contract.
    location.map(|location| (unsafe { location() } as u64).wrapping_sub(thread_pointer()))
}

/// Whether the dynamic linker has loaded objects into a namespace of their own, where they may have
/// another C library, and so another `errno`. Linkers that don't say so (glibc before 2.35) count as
/// having none.
#[must_use]
pub fn has_namespaces() -> bool {
    let debug: *const AtomicI32;
    // SAFETY: loads an address that the linker has stored, or null.
    unsafe {
        asm!(
            ".weak _r_debug",
            "movq _r_debug@GOTPCREL(%rip), {debug}",
            debug = out(reg) debug,
            options(att_syntax, nostack, pure, nomem, preserves_flags)
        );
    }
    // SAFETY: null, or `struct r_debug`, which begins with its version: 2 once there is another
    // namespace.
    unsafe { debug.as_ref() }.is_some_and(|version| version.load(Relaxed) > 1)
}
