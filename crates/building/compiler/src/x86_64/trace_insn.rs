//! The bytes of the TRACE instruction (`docs/design/trace-instruction.md`): `0f 19` with a register
//! operand, a NOP that Intel and AMD reserve. `everycall.h` has those that take a register.

/// A call begins here.
pub(crate) const ENTER: &str = ".byte 15,25,192";
/// The function returns.
pub(crate) const LEAVE: &str = ".byte 15,25,200";
/// The function jumps to another one, which returns in its place.
pub(crate) const LEAVE_BY_JUMP: &str = ".byte 15,25,208";

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess};

    use super::*;

    /// A disassembler of others takes them for reserved NOPs that change nothing.
    #[test]
    fn they_are_reserved_nops() {
        for text in [ENTER, LEAVE, LEAVE_BY_JUMP] {
            let bytes = text.strip_prefix(".byte ").unwrap().split(',');
            let bytes: Vec<u8> = bytes.map(|byte| byte.parse().unwrap()).collect();
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            assert_eq!((instruction.mnemonic(), instruction.len()), (Mnemonic::Reservednop, 3));
            assert_eq!(instruction.flow_control(), FlowControl::Next);
            let mut factory = InstructionInfoFactory::new();
            let info = factory.info(&instruction);
            assert!(info.used_memory().is_empty());
            let reads = |access| matches!(access, OpAccess::None | OpAccess::Read | OpAccess::NoMemAccess);
            assert!(info.used_registers().iter().all(|register| reads(register.access())));
        }
    }
}
