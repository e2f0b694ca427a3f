//! What exit codes mean. If you change this, change `docs/exit-codes.md`.

use std::process::ExitCode;

/// Something could not be read or written.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// What `report --fail-if` asks about is so.
pub const CONDITION_HOLDS: u8 = 3;
/// `record` did not do its part: the program wasn't started, or ran and its trace could not be
/// written.
pub const NOT_RECORDED: u8 = 125;
/// The program is there, but can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program isn't there.
pub const NOT_FOUND: u8 = 127;

/// The exit code of an attempt whose reader has gone: it has seen what it wanted.
pub fn closed_pipe() -> ExitCode {
    ExitCode::SUCCESS
}

// Both speak of programs that can't be run.
const _: () = assert!(NOT_EXECUTABLE == everycall_compiler::EXIT_NOT_RUN);
const _: () = assert!(NOT_FOUND == everycall_compiler::EXIT_NOT_FOUND);
const _: () = assert!(USAGE == everycall_compiler::EXIT_REFUSED);
