//! Kinds of instructions in text for the assembler, in AT&T syntax.

use everycall_format::site::site_kind;

/// The registers that functions have to restore, by their DWARF numbers, and how clang writes them.
pub(crate) const CALLEE_SAVED: [(u8, &str); 6] =
    [(3, "%rbx"), (6, "%rbp"), (12, "%r12"), (13, "%r13"), (14, "%r14"), (15, "%r15")];

/// The register in which nested functions get their caller's frame. gcc pushes it before the call
/// of an entry hook, and pops it afterwards; sites keep it.
const CHAIN: &[u8] = b"%r10";

/// Prefixes that are written like instructions.
const PREFIXES: [&[u8]; 10] =
    [b"rep", b"repz", b"repnz", b"repe", b"repne", b"lock", b"bnd", b"notrack", b"data16", b"rex64"];

/// Where a site of this kind is placed, and its bytes: in front of a plain `ret`, a `ret` and four
/// bytes that never run; else the 5-byte NOP within one aligned 8-byte word, so that one store
/// switches it. Padding becomes prefixes of the NOP (`cs`, without effect on a NOP or a call)
/// instead of another NOP: one instruction less while tracing is off.
pub(crate) fn site(kind: u32) -> (&'static str, &'static str) {
    match kind {
        site_kind::RETURN => ("\t", "195,15,31,64,0"),
        _ => ("\t.p2align 3,0x2e,4;", "15,31,68,0,0"),
    }
}

/// The function that an instruction calls, also in the forms for position-independent code and
/// `-fno-plt`; `None` if it is no call.
pub(crate) fn called(instruction: &[u8]) -> Option<&[u8]> {
    let operand = instruction.strip_prefix(b"call")?;
    if !operand.first()?.is_ascii_whitespace() {
        return None;
    }
    let operand = operand.trim_ascii_start();
    let operand = operand.strip_prefix(b"*").unwrap_or(operand);
    let end =
        operand.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'#').unwrap_or(operand.len());
    let name = &operand[..end];
    let suffixes: [&[u8]; 2] = [b"@PLT", b"@GOTPCREL(%rip)"];
    Some(suffixes.iter().find_map(|suffix| name.strip_suffix(*suffix)).unwrap_or(name))
}

/// Whether an instruction saves the caller's frame of a nested function.
pub(crate) fn saves_chain(instruction: &[u8]) -> bool {
    instruction.strip_prefix(b"pushq").is_some_and(|operand| operand.trim_ascii() == CHAIN)
}

/// Whether an instruction restores it.
pub(crate) fn restores_chain(instruction: &[u8]) -> bool {
    instruction.strip_prefix(b"popq").is_some_and(|operand| operand.trim_ascii() == CHAIN)
}

/// Whether an instruction may stand between a function's label and the call of its entry hook.
pub(crate) fn may_precede_hook(instruction: &[u8]) -> bool {
    matches!(instruction, b"endbr64" | b"nop")
}

/// Whether an instruction does nothing.
pub(crate) fn is_nop(instruction: &[u8]) -> bool {
    instruction.starts_with(b"nop")
}

/// Whether an instruction, without prefixes, returns.
pub(crate) fn is_return(instruction: &[u8]) -> bool {
    instruction.starts_with(b"ret")
}

/// The kind of the exit site in front of the instruction that leaves the function: a return, or a
/// jump into another function.
pub(crate) fn kind_of_exit(instruction: &[u8]) -> u32 {
    let mut words =
        instruction.split(|byte| byte.is_ascii_whitespace() || *byte == b';').filter(|word| !word.is_empty());
    if words.clone().eq([&b"ret"[..]]) {
        return site_kind::RETURN;
    }
    match words.find(|word| !matches!(*word, b"rep" | b"repz" | b"bnd" | b"notrack")) {
        Some(word) if word.starts_with(b"jmp") => {
            let target = words.next().unwrap_or_default();
            if target == b"__x86_return_thunk" { site_kind::EXIT } else { site_kind::TAIL_EXIT }
        }
        _ => site_kind::EXIT,
    }
}

/// An instruction, as far as patterns need it.
pub(crate) enum Instruction<'t> {
    /// A jump to this label; `None` where the target isn't one word.
    Jump(Option<&'t [u8]>),
    /// Any other that does something.
    Other,
}

/// Reads an instruction; `None` if it does nothing.
pub(crate) fn instruction(text: &[u8]) -> Option<Instruction<'_>> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mnemonic = words.find(|word| !PREFIXES.contains(word))?;
    if is_nop(mnemonic) || text == b"xchgw\t%ax, %ax" {
        return None;
    }
    let is_jump = mnemonic.starts_with(b"j") || mnemonic.starts_with(b"loop");
    // Past a branch hint, as in `jne,pt`.
    Some(if is_jump { Instruction::Jump(words.next()) } else { Instruction::Other })
}
