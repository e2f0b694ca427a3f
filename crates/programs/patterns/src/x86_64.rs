//! Instructions of x86-64.

use everycall_format::arch::x86_64::CALL_SIZE;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use memchr::memchr_iter;

use crate::code::Code;

/// Opcode of a call with a 32-bit displacement.
const CALL: u8 = 0xe8;

/// Possible calls in bytes at this address: where each is, and where it leads. One may be part of
/// another instruction.
pub(crate) fn possible_calls(bytes: &[u8], start: u64) -> impl Iterator<Item = (u64, u64)> {
    memchr_iter(CALL, bytes).filter_map(move |at| {
        let displacement = i32::from_le_bytes(*bytes.get(at + 1..)?.first_chunk()?);
        let address = start + at as u64;
        Some((address, (address + CALL_SIZE as u64).wrapping_add_signed(displacement.into())))
    })
}

/// Decodes a function's bytes at this address. `site`: the bytes of the site that begins at an
/// address, if one does, and how many instructions of the function's own it replaces.
pub(crate) fn code_of(bytes: &[u8], start: u64, site: impl Fn(u64) -> Option<(u64, u32)>) -> Code {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut code = Code::default();
    while decoder.can_decode() {
        let at = decoder.ip();
        if let Some((size, own)) = site(at) {
            code.instructions += own;
            let next = at + size;
            let Ok(position) = usize::try_from(next - start) else { break };
            if decoder.set_position(position).is_err() {
                break;
            }
            decoder.set_ip(next);
            continue;
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        code.instructions += u32::from(instruction.mnemonic() != Mnemonic::Nop);
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let target = instruction.near_branch_target();
        code.has_loop |= is_jump && (start..=at).contains(&target);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_loops_are_found() {
        // inc eax; cmp eax, 9; jl back; ret
        let looping = [0xff, 0xc0, 0x83, 0xf8, 0x09, 0x7c, 0xf9, 0xc3];
        assert_eq!(code_of(&looping, 0x1000, |_| None), Code { instructions: 4, has_loop: true });
        // test eax, eax; jne +1; nop; nop word ptr [rax]; ret
        let straight = [0x85, 0xc0, 0x75, 0x01, 0x90, 0x66, 0x0f, 0x1f, 0x00, 0xc3];
        assert_eq!(code_of(&straight, 0x1000, |_| None), Code { instructions: 3, has_loop: false });
    }

    #[test]
    fn sites_are_left_out() {
        // a site; ret, replaced by a site; ret
        let sited = [0x0f, 0x1f, 0x44, 0, 0, 0xff, 0xc0, 0xc3, 0x0f, 0x1f, 0x40, 0, 0xc3];
        let site = |at: u64| match at {
            0x1000 => Some((5, 0)),
            0x1007 => Some((5, 0)),
            _ => None,
        };
        assert_eq!(code_of(&sited, 0x1000, site).instructions, 2);
    }
}
