//! The virtual counter, which the hooks read, too: both speak of the same ticks.
#![allow(unsafe_code)] // One instruction, which the traced program's hooks need as well.

/// The counter.
pub fn ticks() -> u64 {
    let value: u64;
    // SAFETY: Linux lets user code read `cntvct_el0`, and reading changes nothing.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
    value
}

/// Whether the counter runs at one rate: the generic timer always does.
pub(crate) fn is_invariant(_flags: Option<&str>) -> bool {
    true
}
