//! The part of the stack in which capture hooks copy.

use crate::descriptor::COPY_ROOM;
use everycall_format::capture::register;

/// The part of the stack in which a hook copies, from its stack pointer on: the capture's bytes,
/// with room for the whole of a word or of 16 bytes of a text behind them.
pub(super) const FRAME: usize = SAVED + 32;
/// The event's ticks.
pub(super) const TICKS: usize = COPY_ROOM + 16;
/// Bytes of the capture, up to the end of the last word.
pub(super) const END: usize = TICKS + 4;
/// The lower halves of the vector registers in which arguments are passed.
pub(super) const VECTORS: usize = (END + 4).next_multiple_of(16);
/// Those that the hook uses, whole.
pub(super) const SAVED: usize = VECTORS + 8 * 8;
/// Above that: the registers that the hook has saved and its return address.
const REGISTERS: usize = 10;

/// Where hooks find a register of the traced call while they copy, in bytes from their stack
/// pointer; `None` if they haven't saved it.
#[must_use]
pub fn saved_at(number: u32) -> Option<u32> {
    let place = match number {
        // rax, rdx, rcx, rsi, rdi, r8 to r11.
        0 => 8,
        1 => 7,
        2 => 6,
        4 => 5,
        5 => 4,
        8..=11 => 11 - number as usize,
        _ => {
            let number = number.checked_sub(register::VECTOR).filter(|number| *number < 8)?;
            return Some((VECTORS + 8 * number as usize) as u32);
        }
    };
    Some((FRAME + 8 * place) as u32)
}

/// Whether a register of the traced call is a vector register.
#[must_use]
pub fn is_vector(number: u32) -> bool {
    number >= register::VECTOR
}

/// Where the function's stack begins, in bytes from a hook's stack pointer while it copies.
#[must_use]
pub fn stack_at() -> u32 {
    (FRAME + 8 * REGISTERS) as u32
}
