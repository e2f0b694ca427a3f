//! Instructions, by another decoder than the planner's.

use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

/// The successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next one.
    Plain,
    Jump(u64),
    /// A conditional jump, or a loop.
    Branch(u64),
    IndirectJump,
    /// A function; its address, if it is in the instruction.
    Call(Option<u64>),
    Return,
    Stop,
}

impl Next {
    pub(super) fn continues(self) -> bool {
        matches!(self, Self::Plain | Self::Branch(_) | Self::Call(_))
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) length: u64,
    pub(super) next: Next,
    pub(super) opcode: Opcode,
    /// The target of a displacement from the instruction pointer.
    pub(super) relative: Option<u64>,
    /// It only computes that address.
    pub(super) is_lea: bool,
    /// A number in it, which may be an address where code isn't moved.
    pub(super) immediate: Option<u64>,
}

impl Decoded {
    pub(super) fn is_nop(&self) -> bool {
        self.opcode == Opcode::NOP || self.opcode == Opcode::XCHG && self.next == Next::Plain
    }
}

pub(super) struct Decoder(InstDecoder);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(InstDecoder::default())
    }

    /// The first instruction in `bytes`, which are at `at`.
    pub(super) fn decode(&self, bytes: &[u8], at: u64) -> Option<Decoded> {
        let Ok(instruction) = self.0.decode_slice(bytes.get(..15).unwrap_or(bytes)) else {
            return vector(bytes, at);
        };
        let length = instruction.len().to_const();
        let end = at.wrapping_add(length);
        let opcode = instruction.opcode();
        let target = near_target(&instruction, end);
        let next = match (opcode, target) {
            (Opcode::JMP, Some(target)) => Next::Jump(target),
            (Opcode::JMP | Opcode::JMPF, None) => Next::IndirectJump,
            (Opcode::CALL, _) => Next::Call(target),
            (Opcode::CALLF, _) => Next::Call(None),
            (Opcode::RETURN, _) => Next::Return,
            (Opcode::RETF | Opcode::IRET | Opcode::IRETD | Opcode::IRETQ, _) => Next::Stop,
            (Opcode::UD0 | Opcode::UD1 | Opcode::UD2 | Opcode::HLT, _) => Next::Stop,
            (Opcode::INT, _) if bytes.first() == Some(&0xcc) => Next::Stop,
            (_, Some(target)) if is_branch(opcode) => Next::Branch(target),
            _ => Next::Plain,
        };
        let operands = (0..instruction.operand_count()).map(|index| instruction.operand(index));
        let (mut relative, mut immediate) = (None, None);
        for operand in operands {
            match operand {
                Operand::Disp { base, disp } if base == RegSpec::rip() => {
                    relative = Some(end.wrapping_add_signed(disp.into()));
                }
                Operand::MemDeref { base } if base == RegSpec::rip() => relative = Some(end),
                Operand::ImmediateI32 { imm } => immediate = Some(imm as u32 as u64),
                Operand::ImmediateU32 { imm } => immediate = Some(imm.into()),
                Operand::ImmediateU64 { imm } => immediate = Some(imm),
                Operand::ImmediateI64 { imm } => immediate = Some(imm as u64),
                _ => {}
            }
        }
        let immediate = immediate.filter(|_| next == Next::Plain);
        Some(Decoded { length, next, opcode, relative, is_lea: opcode == Opcode::LEA, immediate })
    }
}

fn is_branch(opcode: Opcode) -> bool {
    let is_counted = matches!(
        opcode,
        Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ | Opcode::JECXZ | Opcode::XBEGIN
    );
    opcode.is_jcc() || is_counted
}

fn near_target(instruction: &Instruction, end: u64) -> Option<u64> {
    match instruction.operand(0) {
        Operand::ImmediateI8 { imm } => Some(end.wrapping_add_signed(imm.into())),
        Operand::ImmediateI32 { imm } => Some(end.wrapping_add_signed(imm.into())),
        _ => None,
    }
}

/// Vector instructions that the decoder doesn't know, such as those on masks, and AMD's FMA4.
fn vector(bytes: &[u8], at: u64) -> Option<Decoded> {
    let (map, opcode_at) = match *bytes.first()? {
        0xc5 => (1, 2),
        0xc4 => (bytes.get(1)? & 31, 3),
        0x62 => (bytes.get(1)? & 7, 4),
        _ => return None,
    };
    let (opcode, form) = (*bytes.get(opcode_at)?, *bytes.get(opcode_at + 1)?);
    let (mode, register) = (form >> 6, form & 7);
    let has_scale = mode != 3 && register == 4;
    let base = bytes.get(opcode_at + 2).map_or(0, |scale| scale & 7);
    let displacement = match mode {
        // From the instruction pointer, or without a base.
        0 if register == 5 || has_scale && base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    let has_number = map == 3 || map == 1 && matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6);
    let length = opcode_at + 2 + usize::from(has_scale) + displacement + usize::from(has_number);
    bytes.get(..length)?;
    let is_relative = mode == 0 && register == 5;
    let field = bytes.get(opcode_at + 2..opcode_at + 6).and_then(|field| field.try_into().ok());
    let target = |field| at.wrapping_add(length as u64).wrapping_add_signed(i32::from_le_bytes(field).into());
    Some(Decoded {
        length: length as u64,
        next: Next::Plain,
        opcode: Opcode::Invalid,
        relative: field.filter(|_| is_relative).map(target),
        is_lea: false,
        immediate: None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Decoder, Next};

    #[test]
    fn vector_instructions_have_lengths() {
        // kmovd eax, k1; vpsrldq ymm1, ymm2, 8; vpslld zmm1{k1}, [rax+64], 3;
        // vfmaddsd xmm0, xmm6, xmm0, [rip+0x3714e]
        for bytes in [
            &[0xc5, 0xfb, 0x93, 0xc1][..],
            &[0x62, 0xf1, 0x75, 0x28, 0x73, 0xda, 0x08],
            &[0x62, 0xf1, 0x75, 0x49, 0x72, 0x70, 0x01, 0x03],
            &[0xc4, 0xe3, 0xc9, 0x6b, 0x05, 0x4e, 0x71, 0x03, 0x00, 0x00],
        ] {
            let longer = [bytes, &[0x90; 15]].concat();
            let decoded = Decoder::new().decode(&longer, 0).unwrap();
            assert_eq!((decoded.length, decoded.next), (bytes.len() as u64, Next::Plain));
            let target = bytes.ends_with(&[0x03, 0, 0]).then_some(10 + 0x3714e);
            assert_eq!(decoded.relative, target);
        }
    }
}
