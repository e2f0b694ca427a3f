//! The time-stamp counter, which the hooks read, too: both speak of the same ticks.
#![allow(unsafe_code)] // One instruction, which the traced program's hooks need as well.

/// The counter.
pub fn ticks() -> u64 {
    // SAFETY: every CPU has `rdtsc`, and it changes nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the counter runs at one rate in all states of a CPU with these flags.
pub(crate) fn is_invariant(flags: Option<&str>) -> bool {
    let has = |flag| flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|each| each == flag));
    has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_flags_make_an_invariant_counter() {
        assert!(is_invariant(Some("fpu constant_tsc nonstop_tsc")));
        assert!(!is_invariant(Some("fpu constant_tsc")));
        assert!(!is_invariant(None));
    }
}
