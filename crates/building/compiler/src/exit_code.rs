//! Exit codes of the prefix and the assembler step, as in shells.

/// Exit code for wrong arguments, or a mode that the compiler doesn't support.
pub const EXIT_REFUSED: u8 = 2;
/// Exit code if the compiler or the kit exists but couldn't be used.
pub const EXIT_NOT_RUN: u8 = 126;
/// Exit code if the compiler isn't found.
pub const EXIT_NOT_FOUND: u8 = 127;
