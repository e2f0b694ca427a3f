//! Decodes the jump of a tail call: its target, and whether a hook belongs to the target.
//!
//! A call's return address is in a register here, so nothing on the stack tells whether a jump's
//! target still runs. Therefore triggers follow no tail calls: a call ends where it jumps.
#![allow(unsafe_code)] // Registers that a hook has saved, by their addresses.

use super::frame::{REGISTERS, VECTORS_AT, registers_of};

/// Limit on the bytes of an instruction.
pub const INSTRUCTION_MAX: usize = 4;
/// Bytes from a function's start that are searched for the call of its hook, or for a thunk's jump.
pub const HEAD: usize = 32;
/// Bytes of [`direct_call`]'s instruction.
pub const CALL_SIZE: usize = 4;

/// `mov x9, x30`, with which a site begins.
const SITE: u32 = 0xaa1e_03e9;
const NOP: u32 = 0xd503_201f;
/// `bti c`, `bti j`, `bti jc`.
const LANDING: [u32; 3] = [0xd503_245f, 0xd503_249f, 0xd503_24df];

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

/// The registers at the call of a hook, by their numbers: x0 to x30.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers([u64; 31]);

impl Registers {
    /// The registers that a hook has saved on its way into the slow path.
    ///
    /// # Safety
    /// `hook` is the stack pointer of a hook that is in the slow path.
    #[must_use]
    pub unsafe fn saved(hook: u64) -> Registers {
        // SAFETY: by contract.
        Registers(unsafe { *(registers_of(hook) as *const [u64; 31]) })
    }

    /// The value of the register to which DWARF gives this number. x9 to x15 are `None`: the hook
    /// uses them.
    ///
    /// # Safety
    /// As [`Registers::saved`].
    #[must_use]
    pub unsafe fn by_dwarf(hook: u64, number: u32) -> Option<u64> {
        const STACK_POINTER: u32 = 31;
        // SAFETY: by contract.
        let saved = |number: usize| unsafe { Registers::saved(hook) }.0.get(number).copied();
        match number {
            9..=15 => None,
            // The function's own is where the site has put it.
            30 => saved(9),
            STACK_POINTER => Some(hook.wrapping_add(15) & !15),
            _ => saved(number as usize),
        }
    }

    /// The lower and upper halves of the vector registers v0 to v15, by number.
    ///
    /// # Safety
    /// As [`Registers::saved`]; the result is valid until the slow path returns.
    #[must_use]
    pub unsafe fn vectors<'a>(hook: u64) -> &'a [[u64; 2]; 16] {
        let place = registers_of(hook).wrapping_sub((REGISTERS - VECTORS_AT) as u64);
        // SAFETY: by contract, the address that the way into the slow path has put there.
        unsafe { &**(place as *const *const [[u64; 2]; 16]) }
    }

    /// A hash of the registers that every function leaves as it found them, other than the stack
    /// pointer. Between a function's end and its caller's next call, only the caller changes them.
    #[must_use]
    pub fn preserved(&self) -> u64 {
        self.0.iter().skip(19).take(11).fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| {
            (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }
}

/// The instructions in `code`, each with its address; the first one is at `address`.
fn instructions(code: &[u8], address: u64) -> impl Iterator<Item = (u64, u32)> {
    let words = code.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    (address..).step_by(4).zip(words)
}

/// The target of a branch with a 26-bit distance in words: `b`, `bl`.
fn target(word: u32, address: u64) -> u64 {
    let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
    address.wrapping_add_signed(distance)
}

/// The jump that follows the call of an exit hook: none that could be followed.
#[must_use]
pub fn behind_exit(_code: &[u8], _address: u64, _registers: &Registers) -> Option<Jump> {
    None
}

/// Where a direct call leads, whose instruction is `code` and whose return address is `behind`.
/// `None` if it is another instruction.
#[must_use]
pub fn direct_call(code: [u8; CALL_SIZE], behind: u64) -> Option<u64> {
    let word = u32::from_le_bytes(code);
    (word >> 26 == 0b10_0101).then(|| target(word, behind.wrapping_sub(CALL_SIZE as u64)))
}

/// The address through which a stub of the procedure linkage table jumps: `adrp x16`, `ldr x17,
/// [x16, ...]`. `code` begins at `address`. `None` if it isn't such a stub.
#[must_use]
pub fn stub_slot(code: &[u8], address: u64) -> Option<u64> {
    let mut rest = instructions(code, address).skip_while(|(_, word)| LANDING.contains(word));
    let (at, page) = rest.next().filter(|(_, word)| word & 0x9f00_001f == 0x9000_0010)?;
    let (_, load) = rest.next().filter(|(_, word)| word & 0xffc0_03ff == 0xf940_0211)?;
    let pages = i64::from(((page >> 5 & 0x7_ffff) << 13 | (page >> 29 & 3) << 11).cast_signed() >> 11);
    let base = (at & !0xfff).wrapping_add_signed(pages << 12);
    Some(base.wrapping_add(u64::from(load >> 10 & 0xfff) * 8))
}

/// Whether `code` is a thunk that compilers use instead of `ret` against speculation.
#[must_use]
pub fn is_return_thunk(_code: &[u8]) -> bool {
    false
}

/// Whether an entry hook belongs to the function whose `code` begins at `start`: nothing precedes
/// the hook's site except instructions without effect here. `hook` is the hook's return address.
#[must_use]
pub fn is_entry_of(code: &[u8], start: u64, hook: u64) -> bool {
    let mut rest = instructions(code, start).skip_while(|(_, word)| LANDING.contains(word) || *word == NOP);
    rest.next().is_some_and(|(at, word)| word == SITE && at.wrapping_add(8) == hook)
}

/// The targets of the direct jumps in `code`, which begins at `start` and may be a thunk.
pub fn direct_jumps(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    instructions(code, start).filter(|(_, word)| word >> 26 == 0b00_0101).map(|(at, word)| target(word, at))
}

/// Whether `code` is an object's `__return__` or `__fentry__`: there are none.
#[must_use]
pub fn is_plain_hook(_code: &[u8], _address: u64, _next: u64) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    const AT: u64 = 0x41_1000;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn branches_are_decoded() {
        assert_eq!(direct_call(0x97ff_ffff_u32.to_le_bytes(), AT), Some(AT - 8));
        assert_eq!(direct_call(0x9400_0002_u32.to_le_bytes(), AT), Some(AT + 4));
        assert_eq!(direct_call(0x1400_0002_u32.to_le_bytes(), AT), None, "b");
        let thunk = code(&[0xd100_4000, 0x17ff_fffe]);
        assert!(direct_jumps(&thunk, AT).eq([AT - 4]));
    }

    #[test]
    fn stubs_are_recognised() {
        // adrp x16, 0x421000; ldr x17, [x16, #24]
        let stub = [0x9000_0090, 0xf940_0e11];
        assert_eq!(stub_slot(&code(&stub), AT), Some(0x42_1018));
        assert_eq!(stub_slot(&code(&[&[0xd503_245f], &stub[..]].concat()), AT), Some(0x42_1018));
        assert_eq!(stub_slot(&code(&[0xf0ff_fff0, 0xf940_0211]), AT), Some(0x41_0000), "backwards");
        assert_eq!(stub_slot(&code(&[NOP, NOP]), AT), None);
    }

    #[test]
    fn entries_are_known_by_what_precedes_their_hooks() {
        assert!(is_entry_of(&code(&[SITE, 0x9400_0002]), AT, AT + 8));
        assert!(is_entry_of(&code(&[0xd503_245f, SITE, 0x9400_0002]), AT, AT + 12));
        assert!(!is_entry_of(&code(&[0xd65f_03c0, SITE, 0x9400_0002]), AT, AT + 12));
        assert!(!is_entry_of(&code(&[SITE, 0x9400_0002]), AT, AT + 12));
    }
}
