//! How functions are left, and the calls of their hooks.

use everycall_format::arch::x86_64::CALL_SIZE;

use crate::instruction::Leaves;

/// Bytes that one instruction may have.
pub(crate) const INSTRUCTION_SIZE_MAX: u64 = 15;
/// Bytes of the longest call of a hook.
pub(crate) const LONGEST_CALL: u64 = CALL_SIZE as u64 + 1;

/// Whether code ends in the call of a hook.
pub(crate) fn ends_in_call(code: &[u8]) -> bool {
    matches!(code, [.., 0xe8, _, _, _, _] | [.., 0xff, 0x15, _, _, _, _])
}

/// Target of the call that begins a function at `start`, as the call of an entry hook does: an
/// address, or the slot with one.
pub(crate) fn first_call(code: &[u8], start: u64) -> Option<u64> {
    let mut rest = code;
    // A register for indirect jumps, and the register that nested functions save around their
    // hooks.
    for before in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0x41, 0x52]] {
        rest = rest.strip_prefix(before).unwrap_or(rest);
    }
    while let [0x90, after @ ..] = rest {
        rest = after;
    }
    // The linker's prefix for calls that led through a slot.
    rest = rest.strip_prefix(&[0x67]).unwrap_or(rest);
    let ([0xe8, a, b, c, d, after @ ..] | [0xff, 0x15, a, b, c, d, after @ ..]) = rest else {
        return None;
    };
    let behind = start.wrapping_add((code.len() - after.len()) as u64);
    Some(behind.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into()))
}

/// Classifies the jump or return at `address`; `None` for any other instruction. Conditional jumps
/// count if `is_untouched`.
pub(crate) fn leaving(code: &[u8], address: u64, is_untouched: bool) -> Option<Leaves> {
    let mut rest = code;
    // Nested functions save a register around their hooks.
    rest = rest.strip_prefix(&[0x41, 0x5a]).unwrap_or(rest);
    // Prefixes that don't change jumps and returns, or that processors without their extension
    // ignore; then REX.
    while let [0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65, after @ ..] = rest {
        rest = after;
    }
    if let [0x40..=0x4f, after @ ..] = rest {
        rest = after;
    }
    let target = |after: &[u8], distance: i64| {
        address.wrapping_add((code.len() - after.len()) as u64).wrapping_add_signed(distance)
    };
    let near = |after: &[u8], distance: u8| target(after, distance.cast_signed().into());
    let far = |after: &[u8], distance: [u8; 4]| target(after, i32::from_le_bytes(distance).into());
    match *rest {
        [0xc3 | 0xc2, ..] => Some(Leaves::Returns),
        [0xeb, distance, ref after @ ..] => Some(Leaves::JumpsTo(near(after, distance))),
        [0xe9, a, b, c, d, ref after @ ..] => Some(Leaves::JumpsTo(far(after, [a, b, c, d]))),
        [0xff, 0x25, a, b, c, d, ref after @ ..] => Some(Leaves::JumpsThrough(far(after, [a, b, c, d]))),
        // Conditional tail calls.
        [0x70..=0x7f, distance, ref after @ ..] if is_untouched => {
            Some(Leaves::JumpsTo(near(after, distance)))
        }
        [0x0f, 0x80..=0x8f, a, b, c, d, ref after @ ..] if is_untouched => {
            Some(Leaves::JumpsTo(far(after, [a, b, c, d])))
        }
        [0xff, operands, ..] if operands >> 3 & 7 == 4 => Some(Leaves::JumpsAnywhere),
        _ => None,
    }
}

/// Whether a jump to this function is a return.
pub(crate) fn is_return_thunk(name: &[u8]) -> bool {
    name == b"__x86_return_thunk"
}

/// Whether a jump to this function continues at an address in a register.
pub(crate) fn is_indirect_thunk(name: &[u8]) -> bool {
    name.starts_with(b"__x86_indirect_thunk") || name.starts_with(b"__llvm_retpoline")
}
