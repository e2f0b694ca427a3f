//! Clearing many words at once.
//!
//! # Safety
//!
//! The words are atomics, so other threads may read them meanwhile. For Rust, the string
//! instruction stores zeros into the words in an unknown order. The processor stores aligned words
//! or larger units, after all stores before the instruction and before all stores after it (Intel
//! SDM, volume 3, "Fast-String Operation and Out-of-Order Stores"; AMD APM, volume 2, 7.1). That is
//! enough: the ring clears between two fences, where any order is allowed.
#![allow(unsafe_code)] // One instruction, a fifth of the loop's time.

use crate::primitive::AtomicU64;

/// Stores zero into each word, in no particular order.
pub(crate) fn clear(words: &[AtomicU64]) {
    // SAFETY: writes the slice's words only, which may be written through a shared reference. The
    // direction flag is clear in Rust code.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rcx") words.len() => _,
            inout("rdi") words.as_ptr() => _,
            in("rax") 0_u64,
            options(nostack, preserves_flags),
        );
    }
}
