//! `everycall trace`: a session with a file of its own.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use everycall_control::resolve;
use everycall_format::arena::{ThreadHeader, counter};
use everycall_format::until_nul;
use everycall_io::say;
use everycall_live::SessionFacts;
use everycall_patterns::{FunctionTable, Selection};
use everycall_units::Count;

use crate::arguments::{ThreadChoice, TraceArguments};
use crate::control::{Program, add, all_match, notes, print_matched};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, Output};
use crate::snapshot::default_output;
use crate::written::{self, Moment};

/// Time between two checks of the program.
const PAUSE: Duration = Duration::from_millis(20);
/// Time over which events are counted for `--max-rate`.
const RATE_TIME: Duration = Duration::from_millis(500);

/// `trace`.
pub fn trace(arguments: &TraceArguments) -> Result<ExitCode, Failure> {
    let program = Program::attach(arguments.pid)?;
    let mut tables = program.tables()?;
    let all = ["*".to_owned()];
    let patterns = if arguments.patterns.is_empty() { &all[..] } else { &arguments.patterns };
    let quiet = arguments.quiet;
    let functions = chosen(patterns, &mut tables, quiet)?;
    // Calls of the `--within` functions must be recorded, too, but don't pass the session's filter.
    let (within, recorded) = match arguments.within.as_slice() {
        [] => (Vec::new(), functions.clone()),
        within => {
            (chosen(within, &mut tables, quiet)?, chosen(&[patterns, within].concat(), &mut tables, true)?)
        }
    };
    let output = Destination::new(arguments.output.as_deref(), || default_output(program.arena.process()));
    let file = Output::create(&output)?;
    let mut control = program.connect_to_record()?;
    let name = arguments.name.clone().unwrap_or_else(|| patterns.join(" "));
    control.open(&name, &recorded).map_err(|error| program.failed(&error))?;
    let start_ticks = everycall_live::now_ticks();
    let reply = control.activate().map_err(|error| program.failed(&error))?;
    let begin = Instant::now();
    notes(&program, &reply);
    wait(&program, arguments, begin)?;
    let last = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut snapshot =
        everycall_live::take(&program.arena, Some(last)).map_err(|error| program.failed(&error))?;
    // The report says how often others changed the selection: so far, this session did it once.
    let others = program.arena.header().counters[counter::SELECTIONS].saturating_sub(1);
    // Ends the session now: functions that only it recorded are switched off.
    drop(control);
    let some_threads = !arguments.threads.is_empty();
    if some_threads {
        snapshot.retain_threads(|thread| {
            arguments.threads.iter().any(|choice| is_chosen(thread, choice, start_ticks))
        });
    }
    snapshot.show_session(&SessionFacts {
        name,
        start_ticks,
        functions,
        within,
        crossing: arguments.crossing,
        some_threads,
    });
    let mut summary = file.write(|file| snapshot.write(file, env!("CARGO_PKG_VERSION")))?;
    summary.counters[counter::SELECTIONS] = others;
    if some_threads && summary.threads.is_empty() {
        say!(
            "everycall: no thread of {program} matches --thread; to list its threads, take a snapshot and run \
            `everycall info`"
        );
    }
    if !quiet {
        written::print(&summary, &output.path, Moment::Session(last));
    }
    Ok(ExitCode::SUCCESS)
}

/// The site set of the functions that these patterns match.
fn chosen(patterns: &[String], tables: &mut [FunctionTable], quiet: bool) -> Result<Vec<u8>, Failure> {
    let mut selection = Selection::all_or_none(false);
    let added = add(&mut selection, patterns, true)?;
    let (set, outcome) = resolve(&selection, tables);
    all_match(&selection, &added, &outcome, tables)?;
    if !quiet {
        print_matched(&selection, &added, &outcome);
    }
    set.bytes().map_err(|error| Failure::new(exit_code::USAGE, error))
}

/// Waits until the session's time is over, or a limit is reached.
fn wait(program: &Program, arguments: &TraceArguments, begin: Instant) -> Result<(), Failure> {
    let time = Duration::from_nanos(arguments.time);
    let first = program.arena.events_written();
    let (mut counted, mut counted_at) = (first, begin);
    while let Some(rest) = time.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
        std::thread::sleep(rest.min(PAUSE));
        if program.has_ended() {
            return Err(program.failed(&"the process has ended, and its calls are lost; to record programs that end, use `everycall record -- PROGRAM`"));
        }
        let events = program.arena.events_written();
        if arguments.max_events.is_some_and(|most| events.saturating_sub(first) > most) {
            say!(
                "everycall: session ended after {:.1} s: {} events are more than --max-events",
                begin.elapsed().as_secs_f64(),
                Count(events - first)
            );
            break;
        }
        let took = counted_at.elapsed();
        if took >= RATE_TIME {
            let rate = events.saturating_sub(counted) as f64 / took.as_secs_f64();
            if arguments.max_rate.is_some_and(|most| rate > most as f64) {
                say!(
                    "everycall: session ended after {:.1} s: {} events/s are more than --max-rate; choose fewer functions",
                    begin.elapsed().as_secs_f64(),
                    Count(rate as u64)
                );
                break;
            }
            (counted, counted_at) = (events, Instant::now());
        }
    }
    Ok(())
}

fn is_chosen(thread: &ThreadHeader, choice: &ThreadChoice, start_ticks: u64) -> bool {
    match choice {
        ThreadChoice::Number(tid) => thread.tid == *tid,
        ThreadChoice::Name(name) => everycall_patterns::path_matches(
            name,
            String::from_utf8_lossy(until_nul(&thread.name)).as_ref().as_ref(),
        ),
        ThreadChoice::New => thread.start_ticks >= start_ticks,
    }
}
