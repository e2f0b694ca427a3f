//! `everycall enable` and `disable`: what a running program records.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use everycall_control::{Outcome, SelectionSet, resolve, selection_now, selection_of};
use everycall_format::control_socket::Reply;
use everycall_io::say;
use everycall_live::Control;
use everycall_patterns::Selection;
use everycall_units::{Count, Duration as Shown, Several};

use crate::arguments::{EventTimes, SelectArguments, ValueArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::captures::LiveValues;
use crate::rules::{add, all_match, print_matched};
use crate::running::{Program, clock_note, notes};
use crate::signals::Signals;
use crate::untouched::Choice;
use crate::untouched::process::attached;

/// Time between two checks whether a process has loaded libraries.
const PAUSE: Duration = Duration::from_millis(20);

/// `enable` and `disable`.
pub fn select(
    arguments: &SelectArguments,
    clock: Option<EventTimes>,
    values: &ValueArguments,
    is_in: bool,
) -> Result<ExitCode, Failure> {
    let values = LiveValues::of(values, arguments.quiet)?;
    let values = values.as_ref();
    let named = LiveValues::patterns(values, &arguments.patterns);
    // There is nothing to disable in a process that isn't traced.
    let program = match is_in {
        true => attached(arguments.pid, &Choice::of_clients(&named)?)?,
        false => Program::attach(arguments.pid)?,
    };
    if arguments.patterns.is_empty() {
        let mut control = if values.is_some() { program.connect_to_record()? } else { program.connect()? };
        if values.is_some() {
            LiveValues::send(values, &program, &mut control, &mut program.tables()?, false)?;
        }
        let begin = Instant::now();
        let reply = control
            .set_with_values(is_in, clock.map(EventTimes::stamps), &[])
            .map_err(|error| program.failed(&error))?;
        if !arguments.quiet {
            let what = if is_in { "all functions are recorded" } else { "no function is recorded" };
            say!("everycall: {program}: {what}, {}", sites_on(&reply, begin.elapsed()));
        }
        notes(&program, &reply);
        LiveValues::say_missing(values, &program, &reply);
        clock_note(&program, clock);
        return Ok(ExitCode::SUCCESS);
    }
    let mut tables = program.tables()?;
    let mut control = if values.is_some() { program.connect_to_record()? } else { program.connect()? };
    let (now, base) = control.now().map_err(|error| program.failed(&error))?;
    let mut selection = match arguments.only {
        true => Selection::all_or_none(!is_in),
        false => selection_now(now.on != 0, &base),
    };
    let patterns = LiveValues::patterns(values, &arguments.patterns);
    let added = add(&mut selection, &patterns, is_in)?;
    let modules = program.module_count();
    let (set, outcome) = resolve(&selection, &mut tables);
    if !arguments.later {
        all_match(&selection, &added, &outcome, &tables)?;
    }
    let bytes = set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    LiveValues::send(values, &program, &mut control, &mut tables, arguments.later)?;
    let begin = Instant::now();
    let clock_wanted = clock.map(EventTimes::stamps);
    // Values that others have chosen stay, unless all that is recorded is chosen anew.
    let reply = match values.is_some() || arguments.only {
        true => control.set_with_values(true, clock_wanted, &bytes),
        false => control.set(true, clock_wanted, &bytes),
    };
    let reply = reply.map_err(|error| program.failed(&error))?;
    if !arguments.quiet {
        print_matched(&selection, &added, &outcome);
        say!(
            "everycall: {program}: recording {} of {}, {}",
            Count(outcome.on.functions),
            Several(outcome.all.functions, "function", "functions"),
            sites_on(&reply, begin.elapsed())
        );
    }
    notes(&program, &reply);
    LiveValues::say_missing(values, &program, &reply);
    clock_note(&program, clock);
    if arguments.later {
        apply_later(&program, &mut control, modules, values, arguments.quiet)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies the selection to libraries as they are loaded, until the process ends or a signal ends
/// this command. It is the selection that holds then, so that others may change it meanwhile.
fn apply_later(
    program: &Program,
    control: &mut Control,
    mut modules: u64,
    values: Option<&LiveValues>,
    quiet: bool,
) -> Result<(), Failure> {
    let signals = Signals::begin();
    while !signals.wait(PAUSE) && !program.has_ended() {
        let now = program.module_count();
        if now == modules {
            continue;
        }
        modules = now;
        match apply_again(program, control, values) {
            Ok(Some(outcome)) if !quiet => say!(
                "everycall: {program}: recording {} of {}",
                Count(outcome.on.functions),
                Several(outcome.all.functions, "function", "functions")
            ),
            Ok(_) => {}
            Err(_) if program.has_ended() => break,
            Err(failure) => return Err(failure),
        }
    }
    signals.end();
    Ok(())
}

/// Resolves a process's selection again. Returns what it now selects, if that has changed.
fn apply_again(
    program: &Program,
    control: &mut Control,
    values: Option<&LiveValues>,
) -> Result<Option<Outcome>, Failure> {
    let (_, base) = control.now().map_err(|error| program.failed(&error))?;
    let Some(rules) = SelectionSet::rules_of(&base) else { return Ok(None) };
    let mut tables = program.tables()?;
    let (set, outcome) = resolve(&selection_of(&rules), &mut tables);
    let bytes = set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    if bytes == base {
        return Ok(None);
    }
    LiveValues::send(values, program, control, &mut tables, true)?;
    let reply = match values {
        Some(_) => control.set_with_values(true, None, &bytes),
        None => control.set(true, None, &bytes),
    };
    reply.map_err(|error| program.failed(&error))?;
    Ok(Some(outcome))
}

fn sites_on(reply: &Reply, took: Duration) -> String {
    let took = Shown { ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) };
    match reply.sites_on + reply.sites_off {
        // Hooks that are always called have no sites to switch.
        0 => format!("within {took}"),
        all => format!("{} of {} sites are on, switched within {took}", Count(reply.sites_on), Count(all)),
    }
}
