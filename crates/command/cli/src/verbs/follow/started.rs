//! `everycall follow PATTERN... -- PROGRAM`: the program is started, and its calls are printed.

use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use everycall_format::env;
use everycall_io::say;
use everycall_live::Follower;
use everycall_patterns::FunctionTable;
use everycall_recorder::Launch;
use everycall_timeline::settled_words;

use super::levels::Levels;
use super::output::{Outputs, Pipes};
use super::session::{Session, rules};
use crate::arguments::FollowArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::captures::LiveValues;
use crate::recording::grown::OpenSet;
use crate::recording::observed::{Observed, observe};
use crate::recording::program;

/// Starts the program and follows it. Ends with its exit status.
pub fn follow(arguments: &FollowArguments) -> Result<ExitCode, Failure> {
    let values = LiveValues::of(&arguments.values, arguments.quiet)?;
    let rules = rules(&LiveValues::patterns(values.as_ref(), &arguments.words), &arguments.level)?;
    let not_recorded = |failure: Failure| failure.with_code(exit_code::NOT_RECORDED);
    let Some((name, rest)) = arguments.command.split_first() else {
        return Err(Failure::new(exit_code::USAGE, "name the program to follow"));
    };
    let objects = program::traced_objects(name).ok_or_else(|| {
        Failure::new(
            exit_code::NOT_RECORDED,
            format!("{} can't be read, has no traced functions, or starts other programs; name the traced program itself", name.display()),
        )
    })?;
    let mut tables = Vec::new();
    for file in &objects.traced {
        let file = file.canonicalize().unwrap_or_else(|_| file.clone());
        tables
            .push(FunctionTable::open(&file).map_err(|error| Failure::new(exit_code::NOT_RECORDED, error))?);
    }
    let (levels, set) = Levels::new(rules, &mut tables, objects.names_frames()).map_err(not_recorded)?;
    // Stays open as long as the program may start.
    let only = OpenSet::new(&set)?;
    let captures = match &values {
        Some(values) => Some(OpenSet::new(&values.set(&mut tables, false).map_err(not_recorded)?)?),
        None => None,
    };
    let captures = captures.as_ref().map(|captures| (env::ARGS, captures.path()));
    let launch = Launch {
        program: name.clone(),
        arguments: rest.to_vec(),
        preload: Vec::new(),
        first: None,
        recording: Vec::new(),
        environment: [(env::ONLY, only.path())].into_iter().chain(captures).collect(),
    };
    let mut ours = None;
    let mut theirs: Option<[OwnedFd; 2]> = None;
    if arguments.with_output {
        let (pipes, ends) = Pipes::new()?;
        (ours, theirs) = (Some(pipes), Some(ends));
    }
    let prepare = |command: &mut Command| {
        if let Some([out, err]) = theirs {
            command.stdout(out).stderr(err);
        }
    };
    let print = move |observed: &Observed| print(arguments, observed, levels, ours.map(Pipes::read));
    observe(&launch, ("follow", "printing its calls"), prepare, print)
}

/// Prints its calls until it has ended.
fn print(
    arguments: &FollowArguments,
    observed: &Observed,
    levels: Levels,
    outputs: Option<Outputs>,
) -> Result<(), Failure> {
    let Some(program) = observed.program()? else {
        say!("everycall: the program made no traced call");
        return Ok(());
    };
    let live = Arc::clone(&program.arena);
    let mut follower = Follower::begin(&live, true, settled_words).map_err(|error| program.failed(&error))?;
    let mut session = Session::new(arguments, &program, None, levels, 0);
    session.outputs = outputs;
    let why = session.run(&mut follower, None)?;
    if !arguments.quiet && !program.has_ended() {
        say!("everycall: {program} {why}");
    }
    Ok(())
}
