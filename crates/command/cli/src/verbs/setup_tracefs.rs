//! `everycall setup-tracefs`: root gives a user the kernel's scheduling events.

use std::process::ExitCode;

use everycall_io::say;
use everycall_sched::delegated::{self, Error};

use crate::arguments::SetupTracefsArguments;
use crate::exit_code;
use crate::failure::Failure;

/// `setup-tracefs`.
pub fn run(arguments: &SetupTracefsArguments) -> Result<ExitCode, Failure> {
    let SetupTracefsArguments { user, undo } = arguments;
    let failed = |error: Error| match error {
        Error::NotRoot => {
            let undo = if *undo { " --undo" } else { "" };
            let command = format!("sudo everycall setup-tracefs --user {user}{undo}");
            Failure::new(exit_code::FAILED, format!("{error}; run `{command}`"))
        }
        Error::NoUser => Failure::new(exit_code::USAGE, format!("there is no user `{user}`")),
        Error::Refused(..) => Failure::new(exit_code::FAILED, error),
    };
    if *undo {
        if delegated::take_back(user).map_err(failed)? {
            say!("everycall: {user} has no instance of tracefs any more");
        } else {
            say!("everycall: {user} had no instance of tracefs");
        }
    } else {
        let folder = delegated::give(user).map_err(failed)?;
        say!(
            "everycall: {user} may record thread states until the machine is restarted (`everycall record --states`); \
            the instance of tracefs is {}. To take it back: sudo everycall setup-tracefs --user {user} --undo",
            folder.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
