//! How this process ends after the program that it started.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use everycall_io::say;
use everycall_recorder::die_of;

use crate::exit_code;
use crate::failure::Failure;

/// Reports that the trace could not be written, whatever the program's status is.
pub fn not_written(failure: &Failure, status: ExitStatus) -> ExitCode {
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    };
    failure.report();
    if failure.is_quiet() {
        return end_as(status);
    }
    say!("everycall: the program itself {ended}");
    ExitCode::from(exit_code::NOT_RECORDED)
}

/// Ends this process in the same way as the program ended.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        die_of(signal);
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(exit_code::NOT_RECORDED))
}
