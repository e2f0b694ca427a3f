//! The guard: a word of each thread that the kernel clears when it stops the thread or delivers a
//! signal to it.
//!
//! It is the field `rseq_cs` of the thread's restartable-sequence area, which glibc registers from
//! version 2.35 on. It holds the address of a [`Sequence`], a range of code. When the kernel stops
//! a thread, it clears the word; if the thread was within the range, it continues at the abort
//! address. The kernel ends a thread whose word is the address of anything else, so sequences are
//! never freed.
#![allow(unsafe_code)] // The area of the C library, and what the kernel reads.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The signature that glibc has passed to the kernel, which compares it with the word before the
/// abort address.
pub(super) const SIGNATURE: u32 = 0x5305_3053;

/// `struct rseq`, as far as it is used: where the number of the processor is, negative where the
/// thread isn't registered, and the guard.
const CPU: u64 = 4;
const GUARD: u64 = 8;

/// `struct rseq_cs`.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Sequence {
    /// Version and flags: 0.
    head: AtomicU64,
    /// The first address.
    start: AtomicU64,
    /// Bytes.
    length: AtomicU64,
    /// The abort address: where an interrupted thread continues.
    abort: AtomicU64,
}

/// The signature before the abort address of a [`Sequence`] that is no range.
#[repr(C, align(4))]
struct Signed([u32; 2]);
static SIGNED: Signed = Signed([SIGNATURE, 0]);

impl Sequence {
    /// A sequence that isn't used.
    #[must_use]
    pub const fn new() -> Sequence {
        Sequence {
            head: AtomicU64::new(0),
            start: AtomicU64::new(0),
            length: AtomicU64::new(0),
            abort: AtomicU64::new(0),
        }
    }

    /// The range of an object's hooks. It isn't used yet.
    pub fn begin(&self, start: u64, end: u64, abort: u64) {
        self.start.store(start, Relaxed);
        self.abort.store(abort, Relaxed);
        self.length.store(end.wrapping_sub(start), Relaxed);
    }

    /// The object is about to be unloaded: threads may still have the sequence as their guard.
    pub fn end(&self) {
        self.length.store(0, Relaxed);
        self.abort.store(&raw const SIGNED.0[1] as u64, Relaxed);
    }
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence::new()
    }
}

/// The guard's offset from the thread pointer. `None` if the C library has no such area, or hasn't
/// registered it.
#[must_use]
pub fn guard_offset() -> Option<u64> {
    let (offset, size): (*const i64, *const u32);
    // SAFETY: reads addresses from the global offset table; those of weak symbols may be 0.
    unsafe {
        asm!(
            ".weak __rseq_offset, __rseq_size",
            "movq __rseq_offset@GOTPCREL(%rip), {offset}",
            "movq __rseq_size@GOTPCREL(%rip), {size}",
            offset = out(reg) offset, size = out(reg) size,
            options(att_syntax, nostack, pure, nomem, preserves_flags),
        );
    }
    // SAFETY: null, or variables of the C library, which has set them before any initialiser.
    let (offset, size) = unsafe { (offset.as_ref()?, size.as_ref()?) };
    (*size != 0).then(|| offset.cast_unsigned().wrapping_add(GUARD))
}

/// Whether the kernel clears the calling thread's guard, which is at this offset from the thread
/// pointer.
///
/// # Safety
/// The offset is that of [`guard_offset`].
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

/// Sets the calling thread's guard, lets `stop` stop the thread, and returns whether the kernel has
/// cleared the guard.
///
/// # Safety
/// The offset is that of [`guard_offset`], and the sequence is never freed.
pub unsafe fn is_cleared(offset: u64, sequence: &'static Sequence, stop: impl FnOnce()) -> bool {
    sequence.end();
    let mut guard = &raw const *sequence as u64;
    // SAFETY: as above; a word that is no sequence, 0, is valid as well.
    unsafe {
        asm!("movq {guard}, %fs:({place})", place = in(reg) offset, guard = in(reg) guard,
            options(att_syntax, nostack, preserves_flags));
    }
    stop();
    // SAFETY: as above.
    unsafe {
        asm!("movq %fs:({place}), {guard}", "movq $0, %fs:({place})", place = in(reg) offset,
            guard = out(reg) guard, options(att_syntax, nostack, preserves_flags));
    }
    guard == 0
}
