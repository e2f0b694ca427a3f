//! The encoding of instructions.

/// Bytes of the longest call instruction that is recognised: opcode, operand and a 32-bit offset.
pub const CALL_MAX: u64 = 7;

/// Whether code ends in a call instruction.
#[must_use]
pub fn ends_in_call(code: [u8; CALL_MAX as usize]) -> bool {
    // An indirect call: the length of its operand varies.
    let is_indirect = |length: usize| match code.get(CALL_MAX as usize - length..) {
        Some([0xff, operand, ..]) => operand & 0x38 == 0x10,
        _ => false,
    };
    matches!(code, [_, _, 0xe8, ..]) || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

/// Whether the processor's manufacturer guarantees that other processors, which run the code, see a
/// store of an aligned word to that code as a whole.
#[must_use]
pub fn are_stored_words_whole() -> bool {
    let leaf = core::arch::x86_64::__cpuid(0);
    let [a, b, c] = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    let is = |name: &[u8; 12]| a == name[..4] && b == name[4..8] && c == name[8..];
    // AMD's manual, volume 2, section 7.6.1: "asynchronous modification". Hygon's processors are
    // AMD's design.
    is(b"AuthenticAMD") || is(b"HygonGenuine")
}

/// Lets processors fetch code that was just written: they notice it themselves here.
///
/// # Safety
/// The addresses are mapped.
#[allow(unsafe_code)] // As on machines where it is done.
pub unsafe fn publish(_start: u64, _end: u64) {}

/// Whether code returns, of which `byte` reads the byte at an offset. It reads no further than the
/// instruction.
pub fn is_return(byte: impl Fn(u64) -> u8) -> bool {
    match byte(0) {
        0xc2 | 0xc3 => true,
        // With a prefix.
        0xf2 | 0xf3 => byte(1) == 0xc3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognised() {
        for code in [
            [0x90, 0x90, 0xe8, 1, 2, 3, 4],             // call rel32
            [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0], // call *%rax
            [0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4], // call *%r12
            [0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18], // call *24(%rax)
            [0x90, 0x90, 0x90, 0xff, 0x54, 0x24, 0x08], // call *8(%rsp)
            [0x90, 0xff, 0x15, 1, 2, 3, 4],             // call *x(%rip)
            [0xff, 0x94, 0x24, 1, 2, 3, 4],             // call *x(%rsp)
        ] {
            assert!(ends_in_call(code), "{code:x?}");
        }
        for code in [
            [0x90, 0x90, 0xe9, 1, 2, 3, 4],             // jmp rel32
            [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0], // jmp *%rax
            [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53],
            [0; 7],
        ] {
            assert!(!ends_in_call(code), "{code:x?}");
        }
    }
}
