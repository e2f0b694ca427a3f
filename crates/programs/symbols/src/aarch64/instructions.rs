//! How functions are left, and which functions they may call.

use std::ops::Range;

use crate::instruction::{Leaves, Target};

/// Bytes of an instruction.
pub(crate) const INSTRUCTION_SIZE: u64 = 4;

/// How an instruction continues.
enum Flow {
    Returns,
    /// A call of an address.
    Calls(u64),
    /// A call of the address in a register.
    CallsAnywhere,
    Jumps(u64),
    JumpsIf(u64),
    JumpsAnywhere,
    Next,
}

/// A field of `bits` bits from bit `at` on, with its sign, in instructions.
fn distance(word: u32, at: u32, bits: u32) -> i64 {
    let field = word >> at & ((1 << bits) - 1);
    i64::from((field << (32 - bits)).cast_signed() >> (32 - bits)) * INSTRUCTION_SIZE.cast_signed()
}

fn flow(word: u32, address: u64) -> Flow {
    let to = |distance: i64| address.wrapping_add_signed(distance);
    // `ret`, `br`, `blr` and their forms that check a signature: register in bits 5 to 9.
    match word & 0xffff_fc1f {
        0xd65f_0000 => return Flow::Returns,
        0xd61f_0000 => return Flow::JumpsAnywhere,
        0xd63f_0000 => return Flow::CallsAnywhere,
        _ => {}
    }
    match word {
        // retaa, retab
        0xd65f_0bff | 0xd65f_0fff => return Flow::Returns,
        _ => {}
    }
    // braa, brab, blraa, blrab, with a zero or a register as modifier.
    match word & 0xfeff_f800 {
        0xd61f_0800 => return Flow::JumpsAnywhere,
        0xd63f_0800 => return Flow::CallsAnywhere,
        _ => {}
    }
    match word >> 26 {
        0b00_0101 => return Flow::Jumps(to(distance(word, 0, 26))),
        0b10_0101 => return Flow::Calls(to(distance(word, 0, 26))),
        _ => {}
    }
    match word >> 24 & 0x7f {
        // b.cond, cbz and cbnz
        0x54 if word >> 31 == 0 => Flow::JumpsIf(to(distance(word, 5, 19))),
        0x34 | 0x35 => Flow::JumpsIf(to(distance(word, 5, 19))),
        // tbz and tbnz
        0x36 | 0x37 => Flow::JumpsIf(to(distance(word, 5, 14))),
        _ => Flow::Next,
    }
}

fn first_word(code: &[u8]) -> Option<u32> {
    code.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Whether code ends in the call of a hook.
pub(crate) fn ends_in_call(code: &[u8]) -> bool {
    let word = code.last_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    word.is_some_and(|word| matches!(flow(word, 0), Flow::Calls(_) | Flow::CallsAnywhere))
}

/// Classifies the jump or return at `address`; `None` for any other instruction. Conditional jumps
/// count if `is_untouched`.
pub(crate) fn leaving(code: &[u8], address: u64, is_untouched: bool) -> Option<Leaves> {
    match flow(first_word(code)?, address) {
        Flow::Returns => Some(Leaves::Returns),
        Flow::Jumps(target) => Some(Leaves::JumpsTo(target)),
        Flow::JumpsIf(target) if is_untouched => Some(Leaves::JumpsTo(target)),
        Flow::JumpsAnywhere => Some(Leaves::JumpsAnywhere),
        _ => None,
    }
}

/// The targets of all calls in a function's code, and of jumps out of it: `None` where one is
/// computed.
pub(crate) fn targets(code: &[u8], start: u64) -> Option<Vec<Target>> {
    let within: Range<u64> = start..start.checked_add(code.len() as u64)?;
    let mut targets = Vec::new();
    for (bytes, address) in code.chunks_exact(4).zip((start..).step_by(4)) {
        match flow(first_word(bytes)?, address) {
            Flow::Calls(target) | Flow::Jumps(target) | Flow::JumpsIf(target) => {
                targets.push(Target::Address(target));
            }
            Flow::CallsAnywhere | Flow::JumpsAnywhere => return None,
            Flow::Returns | Flow::Next => {}
        }
    }
    targets.retain(|target| !matches!(target, Target::Address(at) if within.contains(at)));
    targets.sort_unstable();
    targets.dedup();
    Some(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn functions_are_left_by_returns_and_branches() {
        let left = |word: u32| leaving(&bytes(&[word]), 0x1000, false);
        for returns in [0xd65f_03c0, 0xd65f_0bff, 0xd65f_0fff] {
            assert_eq!(left(returns), Some(Leaves::Returns), "{returns:x}");
        }
        // b .+0x10; b .-4; br x16; braa x1, x2; b.eq .+8; cbz w0, .+8; tbnz x3, #63, .-8; bl; nop
        assert_eq!(left(0x1400_0004), Some(Leaves::JumpsTo(0x1010)));
        assert_eq!(left(0x17ff_ffff), Some(Leaves::JumpsTo(0xffc)));
        assert_eq!(left(0xd61f_0200), Some(Leaves::JumpsAnywhere));
        assert_eq!(left(0xd71f_0822), Some(Leaves::JumpsAnywhere));
        for stays in [0x5400_0040, 0x3400_0040, 0xb7ff_ffc3, 0x9400_0000, 0xd503_201f] {
            assert_eq!(left(stays), None, "{stays:x}");
        }
        let untouched = |word: u32| leaving(&bytes(&[word]), 0x1000, true);
        assert_eq!(untouched(0x5400_0040), Some(Leaves::JumpsTo(0x1008)));
        assert_eq!(untouched(0xb7ff_ffc3), Some(Leaves::JumpsTo(0xff8)));
        assert_eq!(leaving(&[0xc0, 3], 0, false), None);
    }

    #[test]
    fn calls_and_jumps_out_of_the_code_are_found() {
        // bl .+0x100; b.eq .+4; b .+0x200; ret
        let code = bytes(&[0x9400_0040, 0x5400_0020, 0x1400_0080, 0xd65f_03c0]);
        let found = targets(&code, 0x1000);
        assert_eq!(found, Some(vec![Target::Address(0x1100), Target::Address(0x1208)]));
        assert_eq!(targets(&bytes(&[0xd63f_0020]), 0x1000), None);
        assert!(ends_in_call(&code[..4]) && !ends_in_call(&code) && !ends_in_call(&[]));
        assert!(ends_in_call(&bytes(&[0xd63f_0020])));
    }
}
