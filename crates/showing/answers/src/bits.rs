//! Facts about a call, as bits.

/// It began before the recorded range.
pub const CUT_START: u8 = 1;
/// It ended after the recorded range, or its end isn't known.
pub const CUT_END: u8 = 2;
/// It was left without an exit.
pub const UNWOUND: u8 = 4;
/// It ended by jumping into another function.
pub const TAIL: u8 = 8;
/// Its duration is an upper bound.
pub const AT_MOST: u8 = 16;
/// The call around it may not have made it.
pub const CALLER_UNSURE: u8 = 32;
/// In pages of their own: no call, but code that isn't traced, to which a tail call led.
pub const UNTRACED: u8 = 64;
/// In pages of their own: the call before it made it by a tail call, or may have.
pub const BY_TAIL: u8 = 128;
