//! `everycall sessions`: what a running program records for whom.

use std::process::ExitCode;

use everycall_format::until_nul;
use everycall_io::say;
use everycall_io::terminal::Escapes;
use everycall_live::ProcessFacts;
use everycall_units::Count;
use serde_json::json;

use crate::arguments::{SessionsArguments, TextFormat};
use crate::failure::Failure;
use crate::output::{clean, lines, print, print_as};
use crate::running::{Program, notes};

/// Runs the verb.
pub fn run(arguments: &SessionsArguments) -> Result<ExitCode, Failure> {
    let program = Program::attach(arguments.pid)?;
    let (reply, sessions) = match program.arena.is_controlled() {
        false => (None, Vec::new()),
        true => {
            let mut control = program.connect()?;
            let (reply, sessions) = control.sessions().map_err(|error| program.failed(&error))?;
            (Some(reply), sessions)
        }
    };
    let owner = |pid: u32| ProcessFacts::of(pid).map_or_else(|_| "?".to_owned(), |facts| facts.program());
    let name = |name: &[u8]| String::from_utf8_lossy(until_nul(name)).into_owned();
    if arguments.format == TextFormat::Json {
        let rows: Vec<_> = sessions
            .iter()
            .map(|session| {
                json!({
                    "name": name(&session.name), "owner_pid": session.owner, "owner": owner(session.owner),
                    "active": session.active != 0, "sites": session.sites,
                })
            })
            .collect();
        print_as(Escapes::Json, &format!("{:#}\n", json!({ "pid": arguments.pid, "sessions": rows })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["OWNER", "PROGRAM", "STATE", "SITES", "NAME"].map(str::to_owned)];
    rows.extend(sessions.iter().map(|session| {
        [
            session.owner.to_string(),
            clean(&owner(session.owner)),
            if session.active == 0 { "staged" } else { "active" }.to_owned(),
            Count(session.sites).to_string(),
            clean(&name(&session.name)),
        ]
    }));
    if rows.len() > 1 {
        print(&lines(&rows, &[1, 2, 4]))?;
    } else {
        say!(
            "everycall: {program} has no sessions; `everycall trace {} PATTERN --for 10s` opens one",
            arguments.pid
        );
    }
    if let Some(reply) = reply {
        notes(&program, &reply);
    }
    Ok(ExitCode::SUCCESS)
}
