//! `everycall mcp` and `everycall guide`: for agents.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use everycall_mcp::{Allowed, Options, Server};

use crate::arguments::McpArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::print;
use crate::this_program::this_program;

/// The guide: a page of the documentation.
const GUIDE: &str = include_str!("../../../../../docs/guides/skill.md");

/// `mcp`.
pub fn mcp(arguments: &McpArguments) -> Result<ExitCode, Failure> {
    let options = Options {
        folder: arguments.folder.clone(),
        sources: arguments.sources.clone(),
        programs: arguments.allow_record.clone(),
        attach: arguments.allow_attach,
        timeout: Duration::from_nanos(arguments.timeout),
        answer_max: usize::try_from(arguments.answer_size).unwrap_or(usize::MAX),
        command: this_program()?,
    };
    let allowed = Allowed::new(options).map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let server = Server::new(allowed, env!("CARGO_PKG_VERSION"));
    server.serve(io::stdin().lock(), io::stdout().lock()).map_err(Failure::writing_to_stdout)?;
    Ok(ExitCode::SUCCESS)
}

/// `guide`.
pub fn guide() -> Result<ExitCode, Failure> {
    print(GUIDE)?;
    Ok(ExitCode::SUCCESS)
}
