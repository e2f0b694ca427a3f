//! Decodes the jump of a tail call: its target, and whether a hook belongs to the target.
#![allow(unsafe_code)] // Code, and what a hook has saved, by their addresses.

use crate::arch::frame::HOOK_BELOW;

/// Limit on the bytes of an instruction.
pub const INSTRUCTION_MAX: usize = 15;
/// Bytes from a function's start that are searched for the call of its hook, or for a thunk's jump.
pub const HEAD: usize = 32;

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// This address.
    To(u64),
    /// The address that is stored at this address.
    Through(u64),
    /// Unknown.
    Somewhere,
}

/// The registers at the call of a hook, by their numbers. `None` if a value isn't known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers([Option<u64>; 16]);

impl Registers {
    /// The registers that a hook has saved, itself or on its way into the slow path.
    ///
    /// # Safety
    /// `hook` is the stack pointer of a hook that is in the slow path.
    #[must_use]
    pub unsafe fn saved(hook: u64) -> Registers {
        // SAFETY: by contract.
        let at = |offset: i64| Some(unsafe { *(hook.wrapping_add_signed(offset) as *const u64) });
        Registers([
            at(24),
            at(8),
            at(16),
            at(-48),
            Some(hook.wrapping_add(HOOK_BELOW)),
            at(-56),
            at(0),
            at(-8),
            at(-16),
            at(-24),
            at(-32),
            at(-40),
            at(-72),
            at(-80),
            at(-88),
            at(-96),
        ])
    }

    /// The value of the register to which DWARF gives this number.
    ///
    /// # Safety
    /// As [`Registers::saved`].
    #[must_use]
    pub unsafe fn by_dwarf(hook: u64, number: u32) -> Option<u64> {
        const RSP: u32 = 7;
        const PLACES: [i8; 16] = [24, 16, 8, -48, 0, -8, -56, 0, -16, -24, -32, -40, -72, -80, -88, -96];
        if number == RSP {
            return Some(hook.wrapping_add(HOOK_BELOW));
        }
        let place = *PLACES.get(number as usize)?;
        // SAFETY: by contract.
        Some(unsafe { *(hook.wrapping_add_signed(place.into()) as *const u64) })
    }

    /// The lower and upper halves of the vector registers, by number.
    ///
    /// # Safety
    /// As [`Registers::saved`]; the result is valid until the slow path returns.
    #[must_use]
    pub unsafe fn vectors<'a>(hook: u64) -> &'a [[u64; 2]; 16] {
        // SAFETY: by contract, the address that the way into the slow path has put there.
        unsafe { &**(hook.wrapping_sub(104) as *const *const [[u64; 2]; 16]) }
    }

    /// A hash of the registers that every function leaves as it found them, other than the stack
    /// pointer. Between a function's end and its caller's next call, only the caller changes them.
    #[must_use]
    pub fn preserved(&self) -> u64 {
        [3, 5, 12, 13, 14, 15].into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, number| {
            (hash ^ self.get(number).unwrap_or(0)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }

    fn get(&self, number: u8) -> Option<u64> {
        self.0.get(usize::from(number)).copied().flatten()
    }
}

/// Decodes the jump that follows the call of an exit hook. `code` begins at `address`, after the
/// call. `None` if there is no jump. `registers` are those before it.
#[must_use]
pub fn behind_exit(code: &[u8], address: u64, registers: &Registers) -> Option<Jump> {
    let mut registers = *registers;
    let mut rest = code;
    // The last bytes of an XRay sled.
    rest = rest.strip_prefix(&[0x0f, 0x1f, 0x00]).unwrap_or(rest);
    // gcc's nested functions save r10 around the call of their hooks: `pop %r10`.
    if let [0x41, 0x5a, after @ ..] = rest {
        registers.0[10] = None;
        rest = after;
    }
    // Prefixes that don't change where a jump leads.
    while let [0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26, after @ ..] = rest {
        rest = after;
    }
    let mut rex = 0;
    if let [prefix @ 0x40..=0x4f, after @ ..] = rest {
        (rex, rest) = (*prefix, after);
    }
    let behind = |after: &[u8]| address.wrapping_add((code.len() - after.len()) as u64);
    match rest {
        [0xeb, distance, after @ ..] => {
            Some(Jump::To(behind(after).wrapping_add_signed(distance.cast_signed().into())))
        }
        [0xe9, a, b, c, d, after @ ..] => {
            let distance = i32::from_le_bytes([*a, *b, *c, *d]);
            Some(Jump::To(behind(after).wrapping_add_signed(distance.into())))
        }
        [0xff, operand, after @ ..] if operand >> 3 & 7 == 4 => {
            Some(indirect(*operand, after, rex, &registers, behind))
        }
        _ => None,
    }
}

/// `jmp *operand`.
fn indirect(
    operand: u8,
    after: &[u8],
    rex: u8,
    registers: &Registers,
    behind: impl Fn(&[u8]) -> u64,
) -> Jump {
    let (mode, low) = (operand >> 6, operand & 7);
    let extended = (rex & 1) << 3;
    if mode == 3 {
        return registers.get(low | extended).map_or(Jump::Somewhere, Jump::To);
    }
    if (mode, low) == (0, 5) {
        let [a, b, c, d, after @ ..] = after else { return Jump::Somewhere };
        let distance = i32::from_le_bytes([*a, *b, *c, *d]);
        return Jump::Through(behind(after).wrapping_add_signed(distance.into()));
    }
    let mut after = after;
    let mut address = if low == 4 {
        let [scaled, rest @ ..] = after else { return Jump::Somewhere };
        after = rest;
        let (base, index) = (scaled & 7 | extended, scaled >> 3 & 7 | (rex & 2) << 2);
        let base = if (mode, scaled & 7) == (0, 5) { None } else { registers.get(base) };
        let index = if index == 4 { Some(0) } else { registers.get(index) };
        let (Some(base), Some(index)) = (base, index) else { return Jump::Somewhere };
        base.wrapping_add(index << (scaled >> 6))
    } else {
        let Some(base) = registers.get(low | extended) else { return Jump::Somewhere };
        base
    };
    match (mode, after) {
        (0, _) => {}
        (1, [distance, ..]) => address = address.wrapping_add_signed(distance.cast_signed().into()),
        (2, [a, b, c, d, ..]) => {
            address = address.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into());
        }
        _ => return Jump::Somewhere,
    }
    Jump::Through(address)
}

/// Bytes of [`direct_call`]'s instruction.
pub const CALL_SIZE: usize = 5;

/// Where a direct call leads, whose instruction is `code` and whose return address is `behind`.
/// `None` if it is another instruction.
#[must_use]
pub fn direct_call(code: [u8; CALL_SIZE], behind: u64) -> Option<u64> {
    let [0xe8, a, b, c, d] = code else { return None };
    Some(behind.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()))
}

/// The address through which a stub of the procedure linkage table jumps. `code` begins at
/// `address`. `None` if it isn't such a stub.
#[must_use]
pub fn stub_slot(code: &[u8], address: u64) -> Option<u64> {
    let mut rest = code;
    rest = rest.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(rest);
    rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
    let [0xff, 0x25, a, b, c, d, after @ ..] = rest else { return None };
    let behind = address.wrapping_add((code.len() - after.len()) as u64);
    Some(behind.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into()))
}

/// Whether `code` is the thunk that compilers use instead of `ret` against speculation.
#[must_use]
pub fn is_return_thunk(code: &[u8]) -> bool {
    code.starts_with(&[0xe8, 7, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9, 0x48, 0x8d, 0x64, 0x24, 8])
}

/// Whether an entry hook belongs to the function whose `code` begins at `start`: nothing precedes
/// the hook's call except instructions without effect here. `hook` is the hook's return address.
#[must_use]
pub fn is_entry_of(code: &[u8], start: u64, hook: u64) -> bool {
    /// Bytes of the call.
    const CALL: usize = 5;
    let Some(place) = hook.checked_sub(start).and_then(|size| usize::try_from(size).ok()?.checked_sub(CALL))
    else {
        return false;
    };
    let (Some(mut rest), Some(0xe8)) = (code.get(..place), code.get(place)) else { return false };
    const NOTHING: [&[u8]; 13] = [
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0x41, 0x52],
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x2e],
        &[0x66],
        &[0x67],
    ];
    while !rest.is_empty() {
        let Some(next) = NOTHING.iter().find_map(|bytes| rest.strip_prefix(*bytes)) else { return false };
        rest = next;
    }
    true
}

/// The targets of the direct jumps in `code`, which begins at `start` and may be a thunk.
pub fn direct_jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    (0..code.len()).filter_map(move |at| {
        let behind = |size: usize| start.wrapping_add((at + size) as u64);
        match code.get(at..)? {
            [0xe9, a, b, c, d, ..] => {
                Some(behind(5).wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into()))
            }
            [0xeb, distance, ..] => Some(behind(2).wrapping_add_signed(distance.cast_signed().into())),
            _ => None,
        }
    })
}

/// Whether `code`, at `address`, is an object's `__return__` or `__fentry__`, which tests a word and
/// continues at `next`, the object's exit or entry hook for what is always called.
#[must_use]
pub fn is_plain_hook(code: &[u8], address: u64, next: u64) -> bool {
    let [0x48, 0x83, 0x3d, _, _, _, _, 1, rest @ ..] = code else { return false };
    let (size, distance) = match rest {
        [0x74, distance, ..] => (10, i64::from(distance.cast_signed())),
        [0x0f, 0x84, a, b, c, d, ..] => (14, i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        _ => return false,
    };
    address.wrapping_add(size).wrapping_add_signed(distance) == next
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    fn jump(code: &[u8]) -> Option<Jump> {
        let mut registers = Registers::default();
        for number in 0..12 {
            registers.0[number] = Some(0x100 * number as u64);
        }
        behind_exit(code, AT, &registers)
    }

    #[test]
    fn jumps_are_read_with_their_registers() {
        assert_eq!(jump(&[0xeb, 0xfe]), Some(Jump::To(AT)));
        assert_eq!(jump(&[0x0f, 0x1f, 0x00, 0xe9, 0, 1, 0, 0]), Some(Jump::To(AT + 0x108)));
        assert_eq!(jump(&[0xff, 0x25, 0xfa, 0, 0, 0]), Some(Jump::Through(AT + 0x100)));
        assert_eq!(jump(&[0xff, 0xe0]), Some(Jump::To(0)));
        assert_eq!(jump(&[0x3e, 0xff, 0xe2]), Some(Jump::To(0x200)));
        assert_eq!(jump(&[0x41, 0xff, 0xe3]), Some(Jump::To(0xb00)));
        assert_eq!(jump(&[0x41, 0xff, 0xe4]), Some(Jump::Somewhere), "r12");
        assert_eq!(jump(&[0xff, 0x60, 0x10]), Some(Jump::Through(0x10)));
        assert_eq!(jump(&[0xff, 0x20]), Some(Jump::Through(0)));
        assert_eq!(jump(&[0x41, 0xff, 0xa2, 0, 1, 0, 0]), Some(Jump::Through(0xb00)));
        assert_eq!(jump(&[0xff, 0x64, 0xca, 8]), Some(Jump::Through(0x200 + 0x100 * 8 + 8)));
        assert_eq!(jump(&[0x41, 0x5a, 0x41, 0xff, 0xe2]), Some(Jump::Somewhere), "r10 comes from the stack");
        for other in [&[0xc3][..], &[], &[0xff], &[0xe9, 0], &[0xff, 0xd0], &[0x0f, 0x84, 0, 0, 0, 0]] {
            assert_eq!(jump(other), None, "{other:x?}");
        }
    }

    #[test]
    fn callers_change_what_functions_preserve() {
        let registers = Registers([Some(7); 16]);
        for number in 0..16 {
            let mut changed = registers;
            changed.0[number] = Some(8);
            let is_preserved = [3, 5, 12, 13, 14, 15].contains(&number);
            assert_eq!(changed.preserved() != registers.preserved(), is_preserved, "{number}");
        }
        let mut swapped = registers;
        (swapped.0[3], swapped.0[12]) = (Some(8), Some(9));
        let mut other = registers;
        (other.0[3], other.0[12]) = (Some(9), Some(8));
        assert_ne!(swapped.preserved(), other.preserved());
        assert_eq!(direct_call([0xe8, 0xfb, 0xff, 0xff, 0xff], AT), Some(AT - 5));
        assert_eq!(direct_call([0x90, 0xff, 0xd0, 0x90, 0x90], AT), None);
    }

    #[test]
    fn entries_are_known_by_what_precedes_their_hooks() {
        assert!(is_entry_of(&[0xe8, 1, 2, 3, 4, 0x90], AT, AT + 5));
        assert!(is_entry_of(&[0xf3, 0x0f, 0x1e, 0xfa, 0x2e, 0x2e, 0xe8, 0, 0, 0, 0], AT, AT + 11));
        assert!(is_entry_of(&[0x0f, 0x1f, 0x00, 0xe8, 0, 0, 0, 0, 0x0f, 0x1f, 0x00], AT, AT + 8));
        assert!(!is_entry_of(&[0xc3, 0xe8, 0, 0, 0, 0], AT, AT + 6), "a function before it");
        assert!(!is_entry_of(&[0x90, 0xe9, 0, 0, 0, 0], AT, AT + 6));
        assert!(!is_entry_of(&[0xe8, 0, 0, 0, 0], AT, AT));
        assert!(!is_entry_of(&[0xe8, 0, 0, 0, 0], AT, AT - 9));
    }

    #[test]
    fn stubs_and_thunks_are_recognised() {
        assert_eq!(stub_slot(&[0xff, 0x25, 0xfa, 0, 0, 0], AT), Some(AT + 0x100));
        assert_eq!(stub_slot(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1, 0, 0, 0], AT), Some(AT + 12));
        assert_eq!(stub_slot(&[0xe9, 0, 0, 0, 0], AT), None);
        let thunk = [0x48, 0x83, 0xef, 0x10, 0xe9, 0, 1, 0, 0];
        assert!(direct_jumps(&thunk, AT).any(|target| target == AT + 0x109));
        assert!(is_plain_hook(&[0x48, 0x83, 0x3d, 1, 2, 3, 4, 1, 0x74, 0x36], AT, AT + 0x40));
        assert!(!is_plain_hook(&[0x48, 0x83, 0x3d, 1, 2, 3, 4, 1, 0x74, 0x36], AT, AT + 0x41));
    }
}
