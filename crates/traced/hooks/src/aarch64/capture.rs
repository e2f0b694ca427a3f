//! The part of the stack in which capture hooks copy: they leave all copies to the slow path.

use everycall_format::capture::register;

/// Where hooks find a register of the traced call while they copy: nowhere.
#[must_use]
pub fn saved_at(_number: u32) -> Option<u32> {
    None
}

/// Whether a register of the traced call is a vector register.
#[must_use]
pub fn is_vector(number: u32) -> bool {
    number >= register::VECTOR
}

/// Where the function's stack begins, in bytes from a hook's stack pointer while it copies.
#[must_use]
pub fn stack_at() -> u32 {
    0
}
