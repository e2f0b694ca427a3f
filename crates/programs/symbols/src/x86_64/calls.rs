//! Which functions a function's instructions may call.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use crate::instruction::Target;

/// The targets of all calls in a function's code, and of jumps out of it: `None` where one is
/// computed, or the code can't be decoded.
pub(crate) fn targets(code: &[u8], start: u64) -> Option<Vec<Target>> {
    let within: Range<u64> = start..start.checked_add(code.len() as u64)?;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut targets = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                if instruction.op0_kind() == OpKind::NearBranch64 =>
            {
                targets.push(Target::Address(instruction.near_branch_target()));
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RIP =>
            {
                targets.push(Target::Slot(instruction.memory_displacement64()));
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => return None,
            FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                return None;
            }
            _ => {}
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

    #[test]
    fn calls_and_jumps_out_of_the_code_are_found() {
        // call +0; jne +0; call [rip+0x10]; jmp 0x2000; ret
        let code = [0xe8, 0, 0, 0, 0, 0x75, 0, 0xff, 0x15, 0x10, 0, 0, 0, 0xe9, 0xee, 0x0f, 0, 0, 0xc3];
        let found = targets(&code, 0x1000);
        assert_eq!(found, Some(vec![Target::Address(0x2000), Target::Slot(0x101d)]));
        // Through a register, through a table.
        assert_eq!(targets(&[0xff, 0xd0, 0xc3], 0x1000), None);
        assert_eq!(targets(&[0xff, 0x53, 8, 0xc3], 0x1000), None);
        assert_eq!(targets(&[0xff, 0x24, 0xc5, 0, 0, 0, 0], 0x1000), None);
        // No code.
        assert_eq!(targets(&[0x06], 0x1000), None);
        assert_eq!(targets(&[], u64::MAX), Some(Vec::new()));
    }
}
