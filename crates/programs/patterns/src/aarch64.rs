//! Instructions of 64-bit Arm.

use everycall_format::arch::aarch64::{CALL_SIZE, SITE_SIZE};
use everycall_format::site::site_kind;

use crate::code::Code;

/// A NOP that isn't a hint of another kind.
const NOP: u32 = 0xd503_201f;

/// Exits have their sites behind the function's code, each before an instruction that stood where a
/// branch to it is now.
pub(crate) fn site_size(kind: u32) -> u64 {
    let size = if kind == site_kind::ENTRY { SITE_SIZE } else { SITE_SIZE + CALL_SIZE };
    size as u64
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).filter_map(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)))
}

/// A field of `bits` bits from bit `at` on, with its sign, in bytes.
fn distance(word: u32, at: u32, bits: u32) -> i64 {
    let field = word >> at & ((1 << bits) - 1);
    i64::from((field << (32 - bits)).cast_signed() >> (32 - bits)) * 4
}

/// Calls in code at this address: where each is, and where it leads.
pub(crate) fn possible_calls(bytes: &[u8], start: u64) -> impl Iterator<Item = (u64, u64)> {
    let calls = words(bytes).zip((start..).step_by(4)).filter(|(word, _)| word >> 26 == 0b10_0101);
    calls.map(|(word, address)| (address, address.wrapping_add_signed(distance(word, 0, 26))))
}

/// Target of a branch that isn't a call.
fn branch(word: u32, address: u64) -> Option<u64> {
    let distance = match word >> 24 & 0x7f {
        _ if word >> 26 == 0b00_0101 => distance(word, 0, 26),
        // b.cond; cbz and cbnz; tbz and tbnz.
        0x54 if word >> 31 == 0 => distance(word, 5, 19),
        0x34 | 0x35 => distance(word, 5, 19),
        0x36 | 0x37 => distance(word, 5, 14),
        _ => return None,
    };
    Some(address.wrapping_add_signed(distance))
}

/// Decodes a function's bytes at this address. `site`: the bytes of the site that begins at an
/// address, if one does, and how many instructions of the function's own it replaces.
pub(crate) fn code_of(bytes: &[u8], start: u64, site: impl Fn(u64) -> Option<(u64, u32)>) -> Code {
    let mut code = Code::default();
    let mut behind = start;
    for (word, address) in words(bytes).zip((start..).step_by(4)) {
        if address < behind {
            continue;
        }
        if let Some((size, own)) = site(address) {
            code.instructions += own;
            behind = address.saturating_add(size);
            continue;
        }
        code.instructions += u32::from(word != NOP);
        code.has_loop |= branch(word, address).is_some_and(|target| (start..=address).contains(&target));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_loops_and_calls_are_found() {
        // mov x9, x30; nop; sub w0, w0, #1; cbnz w0, .-4; bl .+8; b .+4; mov x9, x30; nop; ret
        let words = [
            0xaa1e_03e9_u32,
            NOP,
            0x5100_0400,
            0x35ff_ffe0,
            0x9400_0002,
            0x1400_0001,
            0xaa1e_03e9,
            NOP,
            0xd65f_03c0,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let site = |at: u64| match at {
            0x1000 => Some((site_size(site_kind::ENTRY), 0)),
            0x1018 => Some((site_size(site_kind::EXIT), 0)),
            _ => None,
        };
        assert_eq!(code_of(&bytes, 0x1000, site), Code { instructions: 4, has_loop: true });
        assert_eq!(code_of(&bytes[16..], 0x1010, |_| None), Code { instructions: 4, has_loop: false });
        assert_eq!(possible_calls(&bytes, 0x1000).collect::<Vec<_>>(), [(0x1010, 0x1018)]);
    }
}
