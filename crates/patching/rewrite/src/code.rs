//! Instructions, and what they do to control flow.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::image::Image;

/// The longest instruction.
pub(crate) const MAX_INSTRUCTION: u64 = 15;

/// The successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The next one.
    Plain,
    /// A known address; if conditional, or the next one.
    Branch {
        to: u64,
        is_conditional: bool,
    },
    /// An address that is computed.
    IndirectJump,
    /// A function, then the next one.
    Call,
    Return,
    /// Nothing: `ud2`, `int3`, `hlt`.
    Stop,
    /// The bytes are no instruction.
    Invalid,
}

impl Kind {
    pub(crate) fn falls_through(self) -> bool {
        match self {
            Self::Plain | Self::Call | Self::Invalid => true,
            Self::Branch { is_conditional, .. } => is_conditional,
            Self::IndirectJump | Self::Return | Self::Stop => false,
        }
    }
}

pub(crate) fn kind_of(instruction: &Instruction) -> Kind {
    let branch = |is_conditional| Kind::Branch { to: instruction.near_branch_target(), is_conditional };
    match instruction.flow_control() {
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Kind::Stop,
        FlowControl::Next => Kind::Plain,
        FlowControl::UnconditionalBranch => branch(false),
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => branch(true),
        FlowControl::IndirectBranch => Kind::IndirectJump,
        FlowControl::Return => Kind::Return,
        FlowControl::Call | FlowControl::IndirectCall => {
            if matches!(instruction.code(), Code::Syscall | Code::Sysenter) {
                Kind::Plain
            } else {
                Kind::Call
            }
        }
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int => Kind::Plain,
        FlowControl::Interrupt => Kind::Stop,
        FlowControl::Exception if instruction.is_invalid() => Kind::Invalid,
        FlowControl::Exception => Kind::Stop,
    }
}

/// Whether an instruction does its work from any place, once its displacement is changed.
pub(crate) fn is_movable(instruction: &Instruction) -> bool {
    let is_branch_as_usual = instruction.is_jmp_short_or_near()
        || instruction.is_jcc_short_or_near()
        || instruction.is_jcx_short()
        || instruction.is_loop()
        || instruction.is_loopcc();
    // Displacements of 16 bits, and addresses of 32 bits, can't be changed to reach a trampoline.
    let is_narrow = instruction.op0_kind() == OpKind::NearBranch16
        || instruction.is_ip_rel_memory_operand() && instruction.memory_base() == Register::EIP;
    let is_movable = match kind_of(instruction) {
        Kind::Plain => {
            !matches!(instruction.mnemonic(), Mnemonic::Int | Mnemonic::Syscall | Mnemonic::Sysenter)
        }
        Kind::Branch { .. } => is_branch_as_usual,
        Kind::IndirectJump => !matches!(instruction.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32),
        Kind::Return => matches!(instruction.mnemonic(), Mnemonic::Ret),
        Kind::Stop => true,
        Kind::Call | Kind::Invalid => false,
    };
    is_movable && !is_narrow
}

/// The instruction at `at`, which has to end at `end` or before.
pub(crate) fn instruction_at(image: &Image<'_>, at: u64, end: u64) -> Option<Instruction> {
    let bytes = image.bytes(at, end.min(at.saturating_add(MAX_INSTRUCTION)));
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let instruction = decoder.can_decode().then(|| decoder.decode())?;
    (!instruction.is_invalid()).then_some(instruction)
}

/// All instructions of `start..end`, one after the other.
pub(crate) fn decode(image: &Image<'_>, start: u64, end: u64) -> Vec<Instruction> {
    let bytes = image.bytes(start, end);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut all = Vec::with_capacity(bytes.len() / 4 + 1);
    while decoder.can_decode() {
        all.push(decoder.decode());
    }
    all
}

/// How many bytes from the first on do nothing and are nothing: NOPs, `int3`, zeros.
pub(crate) fn padding(bytes: &[u8]) -> usize {
    const INT3: u8 = 0xcc;
    const NOP: u8 = 0x90;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if matches!(rest[0], INT3 | NOP | 0) {
            at += 1;
            continue;
        }
        let instruction = Decoder::new(64, rest, DecoderOptions::NONE).decode();
        let is_exchange = instruction.mnemonic() == Mnemonic::Xchg
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        if instruction.is_invalid() || instruction.mnemonic() != Mnemonic::Nop && !is_exchange {
            break;
        }
        at += instruction.len();
    }
    at
}
