//! Access to the processor: registers, system calls, other stacks.
#![allow(unsafe_code)] // Assembly.

use super::number;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The virtual counter of the generic timer.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter; user mode may, otherwise the hooks could not work either.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// The thread pointer. Offsets of thread-local slots are relative to it.
#[inline(always)]
#[must_use]
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// A stack pointer in the frame of the calling function.
#[inline(always)]
#[must_use]
pub fn stack_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Changes a word from `from` to `to` if only the calling thread writes it. Returns whether it did.
/// No signal splits it.
#[inline(always)]
#[must_use]
pub fn exchange_own(word: &AtomicU64, from: u64, to: u64) -> bool {
    word.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
}

/// Adds to such a word.
#[inline(always)]
pub fn add_own(word: &AtomicU64, count: u64) {
    word.fetch_add(count, Relaxed);
}

/// Whether the calling thread single-steps: programs can't step themselves here.
#[inline(always)]
#[must_use]
pub fn is_stepping() -> bool {
    false
}

/// A system call.
///
/// # Safety
/// Callers fulfil the contract of the system call.
#[inline(always)]
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves every general register except the result's.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack, preserves_flags),
        );
    }
    result
}

/// Calls `entry` with `argument` on another stack.
///
/// # Safety
/// `top` is the upper end of a stack that only the calling thread uses meanwhile, aligned to 16.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(
    argument: *mut core::ffi::c_void,
    entry: unsafe extern "C" fn(*mut core::ffi::c_void),
    top: u64,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x2",
        "blr x1",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    );
}

/// Starts a thread by `clone` with these flags, on a stack of its own. The thread calls `entry`,
/// and ends when that returns. Returns the thread's id, or an error. If the flags request it, the
/// kernel sets `ended` to 0 when the thread is gone.
///
/// # Safety
/// `top` is the upper end of a stack that only the thread uses, aligned to 16. `entry` gets
/// `argument`, and must not need thread-local storage of its own: it has the caller's.
pub unsafe fn spawn(
    flags: usize,
    top: u64,
    ended: *mut u32,
    entry: unsafe extern "C" fn(u64),
    argument: u64,
) -> isize {
    let result: isize;
    // SAFETY: by contract. The caller's side preserves every register except the result's; the
    // other side never leaves this block.
    unsafe {
        let place = (top - 16) as *mut u64;
        place.write(entry as usize as u64);
        place.add(1).write(argument);
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "ldp x1, x0, [sp], #16",
            "blr x1",
            "mov x0, xzr",
            "mov x8, #{EXIT}",
            "svc #0",
            "udf #0",
            "2:",
            EXIT = const number::EXIT,
            in("x8") number::CLONE,
            inlateout("x0") flags => result,
            inlateout("x1") place => _,
            in("x2") 0,
            in("x3") 0,
            in("x4") ended,
            lateout("x30") _,
        );
    }
    result
}

// The return from a signal handler. Debuggers and unwinders recognise exactly these bytes.
#[cfg(any(feature = "executable", feature = "shared"))]
core::arch::global_asm!(
    "
    .text
    .p2align 4
    nop
    .globl  everycall_handler_end
    .hidden everycall_handler_end
    .type   everycall_handler_end, %function
everycall_handler_end:
    mov     x8, #139
    svc     #0
    .size   everycall_handler_end, . - everycall_handler_end
    "
);

/// The address to which signal handlers return.
#[cfg(any(feature = "executable", feature = "shared"))]
#[must_use]
pub fn handler_end() -> u64 {
    let address: u64;
    // SAFETY: an address in this object.
    unsafe {
        core::arch::asm!(
            "adrp {address}, everycall_handler_end",
            "add {address}, {address}, #:lo12:everycall_handler_end",
            address = out(reg) address,
            options(nostack, pure, nomem, preserves_flags)
        );
    }
    address
}

// The thread-local slot: first the address of the control block of the stack that the thread runs,
// then the runtime's other data for the thread.
#[cfg(any(feature = "executable", feature = "shared"))]
core::arch::global_asm!(
    "
    .section .tbss.everycall_thread, \"awT\", @nobits
    .p2align 3
    .type   everycall_thread, %object
    .size   everycall_thread, {SIZE}
    .globl  everycall_thread
    .hidden everycall_thread
everycall_thread:
    .zero   {SIZE}
    .text
    ",
    SIZE = const crate::THREAD_SLOT_SIZE,
);

/// Offset of the process's thread-local slot from the thread pointer.
#[cfg(any(feature = "executable", feature = "shared"))]
#[must_use]
pub fn local_thread_slot() -> u64 {
    let offset: u64;
    // SAFETY: loads a constant that the linker or the dynamic linker has stored.
    unsafe {
        core::arch::asm!(
            "adrp {offset}, :gottprel:everycall_thread",
            "ldr {offset}, [{offset}, #:gottprel_lo12:everycall_thread]",
            offset = out(reg) offset,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    offset
}
