//! Exit codes and their meanings. If you change this, change `docs/reference/exit-codes.md`.

use std::process::ExitCode;

/// Something could not be read or written.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The condition of `report --fail-if` holds.
pub const CONDITION_HOLDS: u8 = 3;
/// The runs don't decide whether the condition of `report --fail-if` holds.
pub const UNDECIDED: u8 = 4;
/// `record` failed: the program wasn't started, or it ran and its trace could not be written.
pub const NOT_RECORDED: u8 = 125;
/// The program exists, but can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program doesn't exist.
pub const NOT_FOUND: u8 = 127;

/// The exit code if the reader of a pipe has closed it: it has read what it needs.
pub fn closed_pipe() -> ExitCode {
    ExitCode::SUCCESS
}

// Both mean that a program can't be executed.
const _: () = assert!(NOT_EXECUTABLE == everycall_compiler::EXIT_NOT_RUN);
const _: () = assert!(NOT_FOUND == everycall_compiler::EXIT_NOT_FOUND);
const _: () = assert!(USAGE == everycall_compiler::EXIT_REFUSED);
