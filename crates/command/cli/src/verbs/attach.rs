//! `everycall attach PID` and `detach PID`: hooks in a process that runs, built without everycall.

use std::process::ExitCode;

use everycall_format::arena::process_state;
use everycall_io::say;

use crate::arguments::{AttachArguments, DetachArguments};
use crate::failure::Failure;
use crate::running::Program;
use crate::untouched::Choice;
use crate::untouched::process::{Start, hook, unhook};
use crate::untouched::staying::{Left, stay};

/// Runs `attach`.
pub fn attach(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let pid = arguments.pid;
    let choice = Choice::of(&arguments.functions, arguments.all, &[])?;
    hook(pid, &choice, &arguments.modules, arguments.ring_size, Start::On)?;
    // A session may have left it off.
    let program = Program::attach(pid)?;
    if program.arena.header().state == process_state::OFF {
        program.switch(true)?;
    }
    if !arguments.stay {
        say!(
            "  next: everycall snapshot {pid}\n        everycall detach {pid}\n        everycall attach --stay {pid}   \
             also records libraries that it loads later"
        );
        return Ok(ExitCode::SUCCESS);
    }
    match stay(pid, &choice, &arguments.modules)? {
        Left::Asked => take_out(pid)?,
        Left::Ended => say!("everycall: process {pid} has ended, or executed another program"),
        Left::Detached => say!("everycall: the hooks of process {pid} were taken out"),
    }
    Ok(ExitCode::SUCCESS)
}

fn take_out(pid: u32) -> Result<(), Failure> {
    unhook(pid)?;
    say!(
        "everycall: the code of process {pid} is what it was; `everycall snapshot {pid}` still has its last calls"
    );
    Ok(())
}

/// Runs `detach`.
pub fn detach(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    take_out(arguments.pid)?;
    Ok(ExitCode::SUCCESS)
}
