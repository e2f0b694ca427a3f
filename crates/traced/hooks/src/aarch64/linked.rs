//! Symbols of other objects, resolved by the dynamic linker if it finds them.
#![allow(unsafe_code)] // Assembly.

use crate::descriptor::RuntimeTable;
use core::arch::{asm, global_asm};

global_asm!(".weak everycall_runtime_v1", ".weak _r_debug");

/// The runtime of the process, by its symbol, or null if there is none.
#[must_use]
pub fn linked_runtime() -> *const RuntimeTable {
    let table: *const RuntimeTable;
    // SAFETY: loads an address that the dynamic linker has stored, or null.
    unsafe {
        asm!(
            "adrp {table}, :got:everycall_runtime_v1",
            "ldr {table}, [{table}, #:got_lo12:everycall_runtime_v1]",
            table = out(reg) table,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    table
}

/// The dynamic linker's list of objects for debuggers, a `struct r_debug`, or null if there is
/// none.
#[must_use]
pub fn debugger_objects() -> *const u8 {
    let debug: *const u8;
    // SAFETY: as above.
    unsafe {
        asm!(
            "adrp {debug}, :got:_r_debug",
            "ldr {debug}, [{debug}, #:got_lo12:_r_debug]",
            debug = out(reg) debug,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    debug
}
