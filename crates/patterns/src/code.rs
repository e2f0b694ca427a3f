//! Facts about a function's instructions.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// A function's code, as far as patterns need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Instructions, without those of the sites and without NOPs, which align loops.
    pub instructions: u32,
    /// Whether a jump leads backward within the function.
    pub has_loop: bool,
}

impl Code {
    /// Decodes a function's bytes at this address. `site`: the bytes of the site that begins at an
    /// address, if one does, and how many instructions of the function's own it replaces.
    pub(crate) fn of(bytes: &[u8], start: u64, site: impl Fn(u64) -> Option<(u64, u32)>) -> Code {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_loops_are_found() {
        // inc eax; cmp eax, 9; jl back; ret
        let looping = [0xff, 0xc0, 0x83, 0xf8, 0x09, 0x7c, 0xf9, 0xc3];
        assert_eq!(Code::of(&looping, 0x1000, |_| None), Code { instructions: 4, has_loop: true });
        // test eax, eax; jne +1; nop; nop word ptr [rax]; ret
        let straight = [0x85, 0xc0, 0x75, 0x01, 0x90, 0x66, 0x0f, 0x1f, 0x00, 0xc3];
        assert_eq!(Code::of(&straight, 0x1000, |_| None), Code { instructions: 3, has_loop: false });
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
        assert_eq!(Code::of(&sited, 0x1000, site).instructions, 2);
    }
}
