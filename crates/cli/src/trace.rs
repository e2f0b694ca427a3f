//! `everycall trace`: a session with a file of its own.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use everycall_control::resolve;
use everycall_format::arena::{ThreadHeader, counter};
use everycall_format::until_nul;
use everycall_io::say;
use everycall_live::{Control, SessionFacts};
use everycall_patterns::{FunctionTable, Selection};
use everycall_units::Count;

use crate::arguments::{ThreadChoice, TraceArguments};
use crate::control::{Program, add, all_match, notes, print_matched};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{Destination, Output};
use crate::snapshot::default_output;
use crate::trigger::Signals;
use crate::written::{self, Moment};

/// Time between two checks of the program.
const PAUSE: Duration = Duration::from_millis(20);
/// Time over which events are counted for `--max-rate`.
const RATE_TIME: Duration = Duration::from_millis(500);

/// `trace`.
pub fn trace(arguments: &TraceArguments) -> Result<ExitCode, Failure> {
    let program = Program::attach(arguments.pid)?;
    let all = ["*".to_owned()];
    let patterns = if arguments.patterns.is_empty() { &all[..] } else { &arguments.patterns };
    let quiet = arguments.quiet;
    let modules = program.module_count();
    let sets = Sets::new(patterns, &arguments.within, &mut program.tables()?, quiet)?;
    let output = Destination::new(arguments.output.as_deref(), || default_output(program.arena.process()));
    let file = Output::create(&output)?;
    let mut control = program.connect_to_record()?;
    let name = arguments.name.clone().unwrap_or_else(|| patterns.join(" "));
    control.open(&name, &sets.recorded).map_err(|error| program.failed(&error))?;
    let start_ticks = everycall_live::now_ticks();
    let reply = control.activate().map_err(|error| program.failed(&error))?;
    let begin = Instant::now();
    notes(&program, &reply);
    let mut session = Session { program: &program, control, name, modules, sets, activations: 1 };
    // A signal ends the session, and its file is written; a second one ends the command.
    let signals = Signals::begin();
    wait(&mut session, (arguments, patterns), begin, &signals)?;
    signals.end();
    let Session { control, name, sets, activations, .. } = session;
    let last = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut snapshot =
        everycall_live::take(&program.arena, Some(last)).map_err(|error| program.failed(&error))?;
    // The report says how often others changed the selection.
    let others = program.arena.header().counters[counter::SELECTIONS].saturating_sub(activations);
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
        functions: sets.functions,
        within: sets.within,
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

/// A session that is active.
struct Session<'p> {
    program: &'p Program,
    control: Control,
    name: String,
    /// Modules whose functions it has.
    modules: u64,
    sets: Sets,
    /// How often it changed the selection.
    activations: u64,
}

impl Session<'_> {
    /// Records matching functions of libraries that were loaded since, too.
    fn look_at_modules(&mut self, patterns: &[String], within: &[String]) -> Result<(), Failure> {
        let modules = self.program.module_count();
        if modules == self.modules {
            return Ok(());
        }
        self.modules = modules;
        // If a library can't be read, or is gone already, the others stay as they are.
        let sets =
            self.program.tables().and_then(|mut tables| Sets::new(patterns, within, &mut tables, true));
        let Some(sets) = sets.ok().filter(|sets| sets.recorded != self.sets.recorded) else { return Ok(()) };
        match self.control.open(&self.name, &sets.recorded) {
            Ok(_) => {
                self.sets = sets;
                self.activations += 1;
                Ok(())
            }
            // The caller checks whether it has ended.
            Err(_) if self.program.has_ended() => Ok(()),
            Err(error) => Err(self.program.failed(&error)),
        }
    }
}

/// The functions of a session, as site sets.
struct Sets {
    /// Those whose calls are shown.
    functions: Vec<u8>,
    /// Those within whose calls they are; empty for all calls.
    within: Vec<u8>,
    /// Both: calls of the latter must be recorded, but aren't shown.
    recorded: Vec<u8>,
}

impl Sets {
    fn new(
        patterns: &[String],
        within: &[String],
        tables: &mut [FunctionTable],
        quiet: bool,
    ) -> Result<Sets, Failure> {
        let functions = chosen(patterns, tables, quiet)?;
        if within.is_empty() {
            return Ok(Sets { recorded: functions.clone(), functions, within: Vec::new() });
        }
        let recorded = [patterns, within].concat();
        Ok(Sets {
            functions,
            within: chosen(within, tables, quiet)?,
            recorded: chosen(&recorded, tables, true)?,
        })
    }
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
fn wait(
    session: &mut Session<'_>,
    (arguments, patterns): (&TraceArguments, &[String]),
    begin: Instant,
    signals: &Signals,
) -> Result<(), Failure> {
    let program = session.program;
    let time = Duration::from_nanos(arguments.time);
    let first = program.arena.events_written();
    let (mut counted, mut counted_at) = (first, begin);
    while let Some(rest) = time.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
        if signals.wait(rest.min(PAUSE)) {
            say!("everycall: session ended after {:.1} s: interrupted", begin.elapsed().as_secs_f64());
            break;
        }
        if program.has_ended() {
            return Err(program.failed(&"the process has ended, and its calls are lost; to record programs that end, use `everycall record -- PROGRAM`"));
        }
        session.look_at_modules(patterns, &arguments.within)?;
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
