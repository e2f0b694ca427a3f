//! The guard: a word of each thread that the kernel clears when it stops the thread or delivers a
//! signal to it.
//!
//! It is the field `rseq_cs` of the thread's restartable-sequence area, which glibc registers from
//! version 2.35 on. It holds the address of a descriptor of a range of code. When the kernel stops a
//! thread outside that range, it clears the word. Our range is never run.
#![allow(unsafe_code)] // The area of the C library, and a descriptor that the kernel reads.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

global_asm!(
    "
    .section .text.everycall_guarded, \"ax\", @progbits
    .p2align 3
    .type   everycall_guarded, @function
    .hidden everycall_guarded
everycall_guarded:
    ud2
    .p2align 2
    .long   {SIGNATURE}                             # the kernel compares it
    .size   everycall_guarded, . - everycall_guarded
    .weak   __rseq_offset, __rseq_size
    .text
    ",
    SIGNATURE = const SIGNATURE,
    options(att_syntax)
);

/// What glibc has passed to the kernel.
const SIGNATURE: u32 = 0x5305_3053;
/// Bytes from the beginning of the range to the address behind the signature.
const BEHIND: u64 = 8;

/// `struct rseq`, as far as it is used: where the number of the processor is, negative where the
/// thread isn't registered, and the guard.
const CPU: u64 = 4;
const GUARD: u64 = 8;

/// `struct rseq_cs`.
#[repr(C, align(32))]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

struct Shared(UnsafeCell<Descriptor>);

// SAFETY: written once, before any thread has its address.
unsafe impl Sync for Shared {}

static DESCRIPTOR: Shared =
    Shared(UnsafeCell::new(Descriptor { version: 0, flags: 0, start: 0, length: 0, abort: 0 }));

/// The guard's offset from the thread pointer, and what to write there. `None` if the C library has
/// no such area, or if the kernel doesn't know it.
///
/// # Safety
/// Not for several threads at once.
#[must_use]
pub unsafe fn guard() -> Option<(u64, u64)> {
    let (offset, size, range): (*const i64, *const u32, u64);
    // SAFETY: reads addresses from the global offset table; those of weak symbols may be 0.
    unsafe {
        asm!(
            "movq __rseq_offset@GOTPCREL(%rip), {offset}",
            "movq __rseq_size@GOTPCREL(%rip), {size}",
            "leaq everycall_guarded(%rip), {range}",
            offset = out(reg) offset, size = out(reg) size, range = out(reg) range,
            options(att_syntax, nostack, pure, nomem, preserves_flags),
        );
    }
    // SAFETY: null, or variables of the C library, which has set them before any initialiser.
    let (offset, size) = unsafe { (offset.as_ref()?, size.as_ref()?) };
    if *size == 0 {
        return None;
    }
    // SAFETY: by contract.
    unsafe {
        *DESCRIPTOR.0.get() =
            Descriptor { version: 0, flags: 0, start: range, length: 1, abort: range + BEHIND };
    }
    Some((offset.cast_unsigned().wrapping_add(GUARD), DESCRIPTOR.0.get() as u64))
}

/// Whether the kernel clears the calling thread's guard, which is at this offset from the thread
/// pointer.
///
/// # Safety
/// The offset is that of [`guard`].
#[must_use]
pub unsafe fn is_guarded(offset: u64) -> bool {
    let cpu: i32;
    // SAFETY: in the area that the C library reserves in each thread's memory.
    unsafe {
        asm!(
            "movl %fs:({place}), {cpu:e}",
            place = in(reg) offset.wrapping_sub(GUARD - CPU), cpu = out(reg) cpu,
            options(att_syntax, nostack, readonly, preserves_flags),
        );
    }
    cpu >= 0
}
