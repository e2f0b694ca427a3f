//! Reads the counter that the hooks read, so that both speak of the same ticks.
//!
//! # Safety
//!
//! Both instructions only read a register that user code may read. The hooks of the traced program need them
//! too: where they are forbidden, nothing can be traced.
#![allow(unsafe_code)]

/// The time-stamp counter.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has `rdtsc`, and it changes nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The virtual counter.
#[cfg(target_arch = "aarch64")]
pub fn ticks() -> u64 {
    let value: u64;
    // SAFETY: Linux lets user code read `cntvct_el0`, and reading changes nothing.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
    value
}
