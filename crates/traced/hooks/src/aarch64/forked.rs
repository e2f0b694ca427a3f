//! The C library's way to call a function in forked children.
#![allow(unsafe_code)] // Assembly, and a call of a function by its address.

use core::arch::asm;

/// `__register_atfork` of glibc: what runs before a fork, in the parent and in the child, and the
/// object that they belong to. musl's `pthread_atfork` takes the first three.
type Register = unsafe extern "C" fn(usize, usize, unsafe extern "C" fn(), usize) -> i32;

/// Lets the C library call `child` in each child of its `fork`. Returns false if there is no C
/// library that can, or it has no memory.
///
/// # Safety
/// Only in an initialiser, as the C library takes a lock. `child` is never unloaded, and does only
/// what a signal handler may do.
#[must_use]
pub unsafe fn call_in_forked_children(child: unsafe extern "C" fn()) -> bool {
    let (glibc, musl): (*const u8, *const u8);
    // SAFETY: loads addresses that the linker has stored, or null.
    unsafe {
        asm!(
            ".weak __register_atfork, pthread_atfork",
            "adrp {glibc}, :got:__register_atfork",
            "ldr {glibc}, [{glibc}, #:got_lo12:__register_atfork]",
            "adrp {musl}, :got:pthread_atfork",
            "ldr {musl}, [{musl}, #:got_lo12:pthread_atfork]",
            glibc = out(reg) glibc, musl = out(reg) musl,
            options(nostack, pure, nomem, preserves_flags)
        );
    }
    let register = if glibc.is_null() { musl } else { glibc };
    // SAFETY: null, or a function of this type.
    let register: Option<Register> = unsafe { core::mem::transmute(register) };
    // SAFETY: by contract.
    register.is_some_and(|register| unsafe { register(0, 0, child, 0) } == 0)
}
