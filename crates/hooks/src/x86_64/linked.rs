//! Symbols of other objects, as far as the dynamic linker has found them.
#![allow(unsafe_code)] // Assembly.

use crate::descriptor::RuntimeTable;
use core::arch::{asm, global_asm};

global_asm!(".weak everycall_runtime_v1", ".weak _r_debug");

/// The runtime of the process, by its symbol; null where there is none.
#[must_use]
pub fn linked_runtime() -> *const RuntimeTable {
    let table: *const RuntimeTable;
    // SAFETY: loads an address that the dynamic linker has put in, or null.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + everycall_runtime_v1@GOTPCREL]",
            out(reg) table,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    table
}

/// Where the dynamic linker lists objects for debuggers, a `struct r_debug`; null where it doesn't.
#[must_use]
pub fn debugger_objects() -> *const u8 {
    let debug: *const u8;
    // SAFETY: as above.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            out(reg) debug,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    debug
}
