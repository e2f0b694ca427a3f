//! 64-bit Arm, Linux.
#![allow(unsafe_code)] // Rust has no weak references, and no way to read the stack pointer.

use std::ffi::c_void;

/// Address of the runtime's table; null if this process has none.
#[inline(always)]
pub(crate) fn table() -> *const c_void {
    let address;
    // SAFETY: it reads the address of a weak symbol, which is null where nothing defines it.
    unsafe {
        std::arch::asm!(
            ".weak everycall_runtime_v1",
            "adrp {address}, :got:everycall_runtime_v1",
            "ldr {address}, [{address}, #:got_lo12:everycall_runtime_v1]",
            address = out(reg) address,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    address
}

#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: it copies a register.
    unsafe { std::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The counter that hooks read.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets programs read it.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}
