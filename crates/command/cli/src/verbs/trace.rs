//! `everycall trace`: a session with a file of its own.

use std::cell::RefCell;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use everycall_control::resolve;
use everycall_format::arena::{ThreadHeader, counter, process_state};
use everycall_format::until_nul;
use everycall_io::outfile::OutFile;
use everycall_io::say;
use everycall_live::{AllCalls, Control, SessionFacts, SessionStream, StreamError};
use everycall_patterns::{FunctionTable, Selection};
use everycall_recorder::Summary;
use everycall_sched::Children;
use everycall_units::{Count, Size};

use crate::arguments::{EventTimes, ThreadChoice, TraceArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{BUFFER, Destination, Output};
use crate::recording::captures::LiveValues;
use crate::recording::progress;
use crate::recording::written::{self, Moment};
use crate::rules::{add, all_match, print_matched};
use crate::running::default_output;
use crate::running::{Program, clock_note, notes};
use crate::signals::Signals;
use crate::untouched::Choice;
use crate::untouched::process::attached;

/// Time between two checks of the program.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time between two checks where events are counted for `--max-events`.
const COUNT_PAUSE: Duration = Duration::from_millis(2);
/// Time between two reports of the progress.
const PROGRESS_TIME: Duration = Duration::from_millis(500);
/// Time over which events are counted for `--max-rate`.
const RATE_TIME: Duration = Duration::from_millis(500);

/// `trace`.
pub fn trace(arguments: &TraceArguments) -> Result<ExitCode, Failure> {
    let values = LiveValues::of(&arguments.values, arguments.quiet)?;
    let values = values.as_ref();
    let given = LiveValues::patterns(values, &arguments.patterns);
    let named = [&given[..], &arguments.within].concat();
    let program = attached(arguments.pid, &Choice::of_clients(&named)?)?;
    let all = ["*".to_owned()];
    // All functions within others' calls, whichever values are wanted.
    let is_all = arguments.patterns.is_empty() && (!arguments.within.is_empty() || arguments.crossing);
    let patterns = if is_all { &all[..] } else { &given };
    let quiet = arguments.quiet;
    let modules = program.module_count();
    let mut tables = program.tables()?;
    let sets = Sets::new(patterns, &arguments.within, &mut tables, quiet)?;
    let default = || default_output(program.arena.process());
    let output =
        Destination::of_process(arguments.pid, arguments.output.as_deref(), arguments.force, default)
            .keeping_old();
    let file = Output::create(&output)?;
    let children = children_of(&arguments.threads).map_err(|error| program.failed(&error))?;
    let mut control = program.connect_to_record()?;
    let name = arguments.name.clone().unwrap_or_else(|| patterns.join(" "));
    let header = program.arena.header();
    let had_others = [counter::SELECTIONS, counter::SITES_NOT_SELECTED, counter::SITES_UNPATCHED];
    let had_others = had_others.iter().any(|which| header.counters[*which] > 0);
    LiveValues::send(values, &program, &mut control, &mut tables, false)?;
    control
        .open(&name, arguments.clock.map(EventTimes::stamps), &sets.recorded)
        .map_err(|error| program.failed(&error))?;
    let start_ticks = everycall_live::now_ticks();
    // Counts don't tell from where a call came.
    let has_own = arguments.within.is_empty() && !arguments.crossing;
    let before = if has_own { program.arena.all_calls() } else { None };
    let mut session = Session {
        program: &program,
        control: Some(control),
        name,
        modules,
        values,
        sets,
        activations: 1,
        others: 0,
        earlier: header.counters[counter::SELECTIONS],
        was_off: false,
        has_all_callers: header.state == process_state::TRACING && !had_others,
        before,
    };
    let chosen = Chosen { threads: &arguments.threads, start_ticks, children };
    let facts = session.facts(arguments, start_ticks);
    // Begins before the session does, so that nothing of it is overwritten unseen.
    let sink = if arguments.stream {
        let (path, file) = file.into_parts();
        let buffered = BufWriter::with_capacity(BUFFER, file);
        let version = env!("CARGO_PKG_VERSION");
        SessionStream::begin(&program.arena, buffered, version, &facts, |thread| chosen.has(thread))
            .map(|stream| Sink::Stream(path, Box::new(stream)))
            .map_err(|error| stream_failed(&program, path, error))?
    } else if arguments.counts {
        Sink::Counts(file)
    } else {
        Sink::Copy(file)
    };
    // A signal ends the session, as soon as it is active, and its file is written; a second one
    // ends the command.
    let signals = Signals::begin();
    session.activate()?;
    clock_note(&program, arguments.clock);
    let begin = Instant::now();
    let run = Run { arguments, patterns, chosen: &chosen, begin, start_ticks };
    let (mut summary, moment) = match sink {
        Sink::Stream(path, begun) => stream(&mut session, &run, path, *begun, signals)?,
        Sink::Copy(file) => copy(&mut session, &run, file, signals)?,
        Sink::Counts(file) => count(&mut session, &run, file, signals)?,
    };
    // The report says how often others changed the selection.
    summary.counters[counter::SELECTIONS] = session.others;
    // By now, functions that only it recorded are off.
    summary.off = session.was_off;
    if !arguments.threads.is_empty() && summary.threads.is_empty() {
        say!(
            "everycall: no thread of {program} matches --thread; to list its threads, take a snapshot and run \
            `everycall info`"
        );
    }
    if !quiet {
        written::print(&summary, &output.path, moment);
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a session's events go.
enum Sink<'a> {
    /// Into a file that is written while the session lasts.
    Stream(&'a Path, Box<SessionStream<'a, BufWriter<OutFile>>>),
    /// Into the rings, which are copied at its end.
    Copy(Output<'a>),
    /// Nowhere: its calls are counted.
    Counts(Output<'a>),
}

/// A run: the request and its start.
struct Run<'a> {
    arguments: &'a TraceArguments,
    patterns: &'a [String],
    chosen: &'a Chosen<'a>,
    begin: Instant,
    start_ticks: u64,
}

/// Copies the rings at the session's end.
fn copy(
    session: &mut Session<'_>,
    run: &Run<'_>,
    file: Output<'_>,
    signals: Signals,
) -> Result<(Summary, Moment), Failure> {
    let program = session.program;
    wait(session, run, &signals, &mut || Ok(Pass { pause: PAUSE, bytes: 0 }))?;
    signals.end();
    let last = u64::try_from(run.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut snapshot =
        everycall_live::take(&program.arena, Some(last)).map_err(|error| program.failed(&error))?;
    session.end();
    if !run.arguments.threads.is_empty() {
        snapshot.retain_threads(|thread| run.chosen.has(thread));
    }
    snapshot.show_session(&session.facts(run.arguments, run.start_ticks));
    let summary = file.write(|file| snapshot.write(file, env!("CARGO_PKG_VERSION")))?;
    Ok((summary, Moment::Session(last)))
}

/// Writes the numbers of calls at the session's end.
fn count(
    session: &mut Session<'_>,
    run: &Run<'_>,
    file: Output<'_>,
    signals: Signals,
) -> Result<(Summary, Moment), Failure> {
    wait(session, run, &signals, &mut || Ok(Pass { pause: PAUSE, bytes: 0 }))?;
    signals.end();
    let last = u64::try_from(run.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let facts = session.facts(run.arguments, run.start_ticks);
    let (arena, version) = (&session.program.arena, env!("CARGO_PKG_VERSION"));
    let wanted = |thread: &ThreadHeader| run.chosen.has(thread);
    let summary =
        file.write(|file| everycall_live::write_counts(arena, Some(&facts), wanted, file, version))?;
    session.end();
    Ok((summary, Moment::Session(last)))
}

/// Writes what threads have finished while the session lasts.
fn stream(
    session: &mut Session<'_>,
    run: &Run<'_>,
    path: &Path,
    mut stream: SessionStream<'_, BufWriter<OutFile>>,
    signals: Signals,
) -> Result<(Summary, Moment), Failure> {
    let program = session.program;
    let failed = |error| stream_failed(program, path, error);
    // From now on the file can be read at any time.
    stream.output().get_mut().publish()?;
    let mut tell = progress::line(run.arguments.quiet);
    let mut told = Instant::now();
    let waited = wait(session, run, &signals, &mut || {
        let pause = stream.pass().map_err(|error| failed(error.into()))?;
        if let Some(tell) = tell.as_mut().filter(|_| told.elapsed() >= PROGRESS_TIME) {
            told = Instant::now();
            tell(stream.progress());
        }
        Ok(Pass { pause, bytes: stream.progress().bytes })
    });
    progress::clear(tell.is_none());
    waited?;
    signals.end();
    let facts = session.facts(run.arguments, run.start_ticks);
    let (summary, buffered) = stream.finish(&facts, program.has_ended()).map_err(failed)?;
    session.end();
    buffered.into_inner().map_err(|error| Failure::writing(path, error.into_error()))?.finish()?;
    let last = u64::try_from(run.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok((summary, Moment::Session(last)))
}

fn stream_failed(program: &Program, path: &Path, error: StreamError) -> Failure {
    match error {
        StreamError::Rings(error) => program.failed(&error),
        StreamError::Output(error) => Failure::writing(path, error),
    }
}

/// A session that is active.
struct Session<'p> {
    program: &'p Program,
    /// `None` once it has ended.
    control: Option<Control>,
    name: String,
    /// Modules whose functions it has.
    modules: u64,
    values: Option<&'p LiveValues>,
    sets: Sets,
    /// How often it changed the selection, and, when it ends, how often others did.
    activations: u64,
    others: u64,
    /// How often it had been changed before.
    earlier: u64,
    /// Whether the program had switched tracing off when it ended.
    was_off: bool,
    /// All functions had been recorded since the process began, until then.
    has_all_callers: bool,
    /// All calls when it began.
    before: Option<AllCalls>,
}

impl Session<'_> {
    /// Ends it now: functions that only it recorded are switched off.
    fn end(&mut self) {
        let header = self.program.arena.header();
        let changes = header.counters[counter::SELECTIONS];
        self.was_off = header.state == process_state::OFF;
        self.others = changes.saturating_sub(self.earlier).saturating_sub(self.activations);
        self.control = None;
    }

    fn activate(&mut self) -> Result<(), Failure> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let reply = control.activate().map_err(|error| self.program.failed(&error))?;
        notes(self.program, &reply);
        LiveValues::say_missing(self.values, self.program, &reply);
        Ok(())
    }

    /// The facts that are written about it.
    fn facts(&self, arguments: &TraceArguments, start_ticks: u64) -> SessionFacts {
        SessionFacts {
            name: self.name.clone(),
            start_ticks,
            functions: self.sets.functions.clone(),
            within: self.sets.within.clone(),
            crossing: arguments.crossing,
            some_threads: !arguments.threads.is_empty(),
            has_all_callers: self.has_all_callers,
            before: self.before.clone(),
        }
    }

    /// Records matching functions of libraries that were loaded since, too.
    fn look_at_modules(&mut self, patterns: &[String], within: &[String]) -> Result<(), Failure> {
        let modules = self.program.module_count();
        if modules == self.modules {
            return Ok(());
        }
        self.modules = modules;
        // If a library can't be read, or is gone already, the others stay as they are.
        let Ok(mut tables) = self.program.tables() else { return Ok(()) };
        let sets = Sets::new(patterns, within, &mut tables, true);
        let Some(sets) = sets.ok().filter(|sets| sets.recorded != self.sets.recorded) else { return Ok(()) };
        let Some(control) = &mut self.control else { return Ok(()) };
        let sent = LiveValues::send(self.values, self.program, control, &mut tables, true);
        if sent.is_err() && self.program.has_ended() {
            return Ok(());
        }
        sent?;
        match control.open(&self.name, None, &sets.recorded) {
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

/// A look at what the session's threads have written.
struct Pass {
    /// Time until the next one.
    pause: Duration,
    /// Size of the file, if it is written while the session lasts.
    bytes: u64,
}

/// Waits until the session's time is over, or a limit is reached.
fn wait(
    session: &mut Session<'_>,
    run: &Run<'_>,
    signals: &Signals,
    each: &mut dyn FnMut() -> Result<Pass, Failure>,
) -> Result<(), Failure> {
    let program = session.program;
    let Run { arguments, patterns, begin, .. } = *run;
    let time = arguments.time.map_or(Duration::MAX, Duration::from_nanos);
    let first = program.arena.events_written();
    let (mut counted, mut counted_at) = (first, begin);
    while let Some(rest) = time.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
        run.chosen.look();
        let Pass { pause, bytes } = each()?;
        let pause = if arguments.max_events.is_some() { pause.min(COUNT_PAUSE) } else { pause };
        if signals.wait(rest.min(pause)) {
            say!("everycall: session ended after {:.1} s: interrupted", begin.elapsed().as_secs_f64());
            break;
        }
        if program.has_ended() {
            say!(
                "everycall: session ended after {:.1} s: the process has ended",
                begin.elapsed().as_secs_f64()
            );
            break;
        }
        session.look_at_modules(patterns, &arguments.within)?;
        let events = program.arena.events_written();
        if arguments.max_events.is_some_and(|most| events.saturating_sub(first) >= most) {
            say!(
                "everycall: session ended after {:.1} s: {} events, and --max-events is reached",
                begin.elapsed().as_secs_f64(),
                Count(events - first)
            );
            break;
        }
        if arguments.max_size.is_some_and(|most| bytes >= most) {
            say!(
                "everycall: session ended after {:.1} s: the file has {}, and --max-size is reached",
                begin.elapsed().as_secs_f64(),
                Size(bytes)
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

/// The descendants of threads that are chosen; or why they can't be known.
fn children_of(threads: &[ThreadChoice]) -> Result<RefCell<Vec<Children>>, String> {
    let parents = threads.iter().filter_map(|choice| match choice {
        ThreadChoice::ChildrenOf(tid) => Some(*tid),
        _ => None,
    });
    let children = parents.map(|tid| {
        Children::of(tid).map_err(|error| format!("--thread children-of:{tid} isn't possible: {error}"))
    });
    children.collect::<Result<_, _>>().map(RefCell::new)
}

/// Which threads `--thread` chooses.
struct Chosen<'a> {
    threads: &'a [ThreadChoice],
    start_ticks: u64,
    children: RefCell<Vec<Children>>,
}

impl Chosen<'_> {
    /// Finds threads that have begun.
    fn look(&self) {
        self.children.borrow_mut().iter_mut().for_each(Children::look);
    }

    fn has(&self, thread: &ThreadHeader) -> bool {
        let is_chosen = |choice: &ThreadChoice| match choice {
            ThreadChoice::Number(tid) => thread.tid == *tid,
            ThreadChoice::Name(name) => everycall_patterns::path_matches(
                name,
                String::from_utf8_lossy(until_nul(&thread.name)).as_ref().as_ref(),
            ),
            ThreadChoice::New => thread.start_ticks >= self.start_ticks,
            ThreadChoice::ChildrenOf(_) => {
                self.children.borrow_mut().iter_mut().any(|children| children.has(thread.tid))
            }
        };
        self.threads.is_empty() || self.threads.iter().any(is_chosen)
    }
}
