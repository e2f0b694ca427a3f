//! Exit codes of the prefix and the assembler step, as shells have them.

/// Exit code where the request can't be done: wrong arguments, or a mode that the compiler can't do.
pub const EXIT_REFUSED: u8 = 2;
/// Exit code where the compiler or the kit is there but couldn't be used.
pub const EXIT_NOT_RUN: u8 = 126;
/// Exit code where the compiler isn't found.
pub const EXIT_NOT_FOUND: u8 = 127;
