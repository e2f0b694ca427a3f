//! The encoding of instructions.
#![allow(unsafe_code)] // Cache maintenance.

/// Bytes of a call instruction.
pub const CALL_MAX: u64 = 4;

/// Whether code ends in a call instruction.
#[must_use]
pub fn ends_in_call(code: [u8; CALL_MAX as usize]) -> bool {
    let word = u32::from_le_bytes(code);
    let is_direct = word & 0xfc00_0000 == 0x9400_0000;
    let is_indirect = word & 0xffff_fc1f == 0xd63f_0000;
    // With an authenticated target.
    let is_authenticated = word & 0xfeff_f800 == 0xd63f_0800;
    is_direct || is_indirect || is_authenticated
}

/// Whether the architecture guarantees that other processors, which run the code, see a store of an
/// aligned word to that code as a whole: of a word that is an instruction, before and after, and of
/// those instructions that may change at all (Arm ARM, B2.2.5).
#[must_use]
pub fn are_stored_words_whole() -> bool {
    true
}

/// Lets processors fetch code that was just written: cleans it out of the data cache, and removes it
/// from the instruction caches. Threads that run it meanwhile need a barrier of their own.
///
/// # Safety
/// The addresses are mapped.
pub unsafe fn publish(start: u64, end: u64) {
    let sizes: u64;
    // SAFETY: reads a register that Linux lets programs read, or answers for.
    unsafe {
        core::arch::asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags));
    }
    let line = |shift: u32| 4_u64 << (sizes >> shift & 15);
    for (is_data, line) in [(true, line(16)), (false, line(0))] {
        for address in (start & !(line - 1)..end).step_by(line as usize) {
            // SAFETY: changes no memory.
            unsafe {
                match is_data {
                    true => {
                        core::arch::asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags))
                    }
                    false => {
                        core::arch::asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags))
                    }
                }
            }
        }
        // SAFETY: barriers.
        unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
}

/// Whether code returns, of which `byte` reads the byte at an offset. It reads no further than the
/// instruction.
pub fn is_return(byte: impl Fn(u64) -> u8) -> bool {
    let word = u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
    word & 0xffff_fc1f == 0xd65f_0000 || matches!(word, 0xd65f_0bff | 0xd65f_0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_are_recognised() {
        // bl, blr x3, blraa x1, x2, blraaz x1
        for word in [0x97ff_ffff_u32, 0xd63f_0060, 0xd73f_0822, 0xd63f_083f] {
            assert!(ends_in_call(word.to_le_bytes()), "{word:x}");
        }
        // b, br x3, ret, svc, nop
        for word in [0x17ff_ffff_u32, 0xd61f_0060, 0xd65f_03c0, 0xd400_0001, 0xd503_201f] {
            assert!(!ends_in_call(word.to_le_bytes()), "{word:x}");
        }
        let returns = |word: u32| is_return(|at| word.to_le_bytes()[at as usize]);
        assert!(returns(0xd65f_03c0) && returns(0xd65f_0bff) && returns(0xd65f_0140));
        assert!(!returns(0xd61f_0060) && !returns(0xd503_201f));
    }
}
