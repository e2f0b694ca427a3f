//! `everycall record`: examines the program, runs it, writes its trace, and exits with its status.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everycall_format::arena::counter;
use everycall_format::dropped::TICKS_MAX;
use everycall_format::env;
use everycall_io::outfile::{MODE_PRIVATE, OutFile};
use everycall_io::say;
use everycall_kit::{EXEC_LIBRARY, MEMORY_LIBRARY, OUTPUT_LIBRARY, PRELOAD_LIBRARY, WAITS_LIBRARY};
use everycall_recorder::{
    Counting, Ended, Launch, MinDuration, Options, Recorder, Stream, Summary, TraceWriter, Unrecorded,
    find_program, start, start_by,
};
use everycall_triggers::{Outcome, Rate, Trampolines, Trigger};
use everycall_units::Several;

use crate::arguments::{EventTimes, RecordArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{BUFFER, Destination, identity};
use crate::recording::ended::{end_as, not_written};
use crate::recording::only::Growing;
use crate::recording::preload::kit_library;
use crate::recording::program::{self, Prospect};
use crate::recording::ring_size::ring_size;
use crate::recording::rotation::{self, Files};
use crate::recording::written::Moment;
use crate::recording::{captures, kept_calls, log_files, only, progress, written};
use crate::untouched::record::Untouched;
use crate::verbs::embed;

/// Default memory for events that wait to be written, in bytes.
const STREAM_MEMORY: u64 = 256 << 20;

/// Runs the verb.
pub fn run(mut arguments: RecordArguments) -> Result<ExitCode, Failure> {
    arguments.as_is.is_given = arguments.as_is.untouched;
    arguments.as_is.untouched |=
        arguments.as_is.all || !arguments.as_is.modules.is_empty() || Untouched::is_due(&arguments);
    let quiet = arguments.quiet;
    let begun = Instant::now();
    let not_recorded = |failure: Failure| failure.with_code(exit_code::NOT_RECORDED);
    let destination = Destination::new(arguments.output.as_deref(), arguments.force, || {
        default_output(arguments.command.first())
    })
    .keeping_old();
    let (mut launch, carries_runtime) = prepare(&arguments)?;
    // Stays open as long as processes of the program may start.
    let only = if arguments.as_is.untouched { None } else { only::prepare(&arguments)? };
    launch.environment.extend(only.as_ref().map(|(only, _)| (env::ONLY, only.path())));
    let captures = captures::prepare(&arguments)?;
    launch.environment.extend(captures.as_ref().map(|captures| (env::ARGS, captures.path())));
    launch.environment.extend(arguments.clock.map(|clock| (env::CLOCK, clock.name().into())));
    launch.environment.extend(arguments.budget.as_ref().map(|budget| (env::BUDGET, budget.into())));
    let trampolines = Trampolines::default();
    let as_it_is = || Untouched::prepare(&arguments, trampolines.clone());
    let untouched = arguments.as_is.untouched.then(as_it_is).transpose()?;
    let why_untraced = carries_runtime.then(|| program::why_untraced(&launch.program));
    // Before the program starts, so that an unwritable output is reported at once rather than after
    // an hour.
    let mut files = rotation::is_wanted(&arguments).then(|| Files::find(&arguments, &destination.path));
    let destination = files.as_ref().map_or(destination, |files| Destination::by_default(files.newest()));
    spare_programs(&destination.path, &arguments.command)?;
    let file = destination.open(MODE_PRIVATE).map_err(|error| not_recorded(error.into()))?;
    let output = destination.path;
    let memory = arguments.stream_memory.unwrap_or(STREAM_MEMORY);
    let stream = arguments.stream.then_some(Stream { stall: arguments.stall, memory });
    let options = Options {
        functions: program::counted_functions(&launch.program),
        ring_size: ring_size(arguments.ring_size),
        follow: !arguments.no_follow,
        stream,
        unrecorded: unrecorded(&arguments)?,
        states: arguments.states.map(Into::into),
        counters: arguments.counters.map(Duration::from_nanos),
        samples: arguments.samples,
    };
    let (triggers, outcome) = kept_calls::prepare(&arguments, &output, &trampolines)?.unzip();
    let mut recorder = Recorder::with_triggers(options, triggers)?;
    let growing = only.as_ref().filter(|(_, grows)| *grows).map(|(only, _)| only.clone());
    if let Some(growing) = growing.clone() {
        recorder.select_with(Box::new(growing));
    }
    if let Some(captures) = captures.clone() {
        recorder.capture_with(Box::new(captures));
    }
    let buffered = BufWriter::with_capacity(BUFFER, file);
    let mut file = TraceWriter::begin(buffered, &launch, env!("CARGO_PKG_VERSION"))
        .map_err(|error| not_recorded(Failure::writing(&output, error)))?;
    if arguments.stream {
        file.stream(progress::line(quiet));
    }
    let logs = log_files::watch(&arguments.log)?;
    let untouched = untouched.map(Arc::new);
    if let Some(untouched) = untouched.clone() {
        recorder.hook_with(move |pid| untouched.hook_more(pid));
    }
    let running = match &untouched {
        None => start(recorder, &launch)?,
        Some(untouched) => start_by(recorder, &launch, |command| untouched.start(command))?,
    };
    // From now on the file can be read at any time. The older trace is only replaced now that a new
    // one exists.
    let mut is_there = false;
    if arguments.stream {
        file.with_output(|file| Ok(file.get_mut().publish().map(|()| is_there = true)?));
        if let Some(files) = files.as_mut().filter(|_| is_there) {
            files.delete_older();
            file.rotate(files.rotation(&arguments, BUFFER));
        }
    }
    let ended = running.wait(arguments.wait, &mut file)?;
    progress::clear(quiet || !arguments.stream);
    if let Some(untouched) = &untouched {
        untouched.say_without_match();
    }
    let status = ended.status();
    file.add_log_files(logs.into_iter().map(log_files::Logged::end).collect());
    let shown = || files.as_ref().map_or_else(|| output.clone(), Files::newest);
    let written = write(ended, file, shown);
    let output = shown();
    if let Ok(summary) = &written {
        embed::at_end(arguments.embed, &output, summary.events(), begun.elapsed(), quiet);
    }
    match &written {
        Ok(summary) if !quiet => {
            let is_empty =
                summary.traced && summary.events() == 0 && summary.counted.is_none_or(|calls| calls == 0);
            let linked_only = if is_empty { program::linked_only(&launch.program) } else { None };
            match (why_untraced.filter(|_| !summary.traced), linked_only) {
                (Some(why), _) => {
                    let program = launch.program.display();
                    let why = format!(", though {program} contains everycall's runtime: {why}");
                    written::print_untraced(summary, &why, &output);
                }
                (None, _) if !summary.traced && is_python(&launch.program) => say!(
                    "everycall: nothing was traced: Python's functions are recorded by its package, as in `{} -m everycall {}`; {} \
                     contains no calls",
                    launch.program.display(),
                    launch.arguments.join(OsStr::new(" ")).display(),
                    output.display()
                ),
                (None, Some(what)) => written::print_untraced(summary, &format!(": {what}"), &output),
                (None, None) => {
                    let kept = |outcome: &Arc<Outcome>| outcome.tallies().iter().map(|of| of.kept).sum();
                    let moment = match outcome.as_ref().map_or(0, kept) {
                        0 => Moment::Run,
                        kept => Moment::RunWithKept(kept),
                    };
                    written::print(summary, &output, moment);
                }
            }
            if let Some(budget) = arguments.budget.as_ref().filter(|_| summary.traced) {
                say!("  --budget {budget}: `everycall info {}` has what was off, and when", output.display());
            }
            outcome.iter().for_each(|outcome| written::print_triggers(outcome, &output));
            let refused = summary.counters[counter::CAPTURES_REFUSED];
            if refused > 0 && arguments.triggers.trigger.iter().any(Trigger::has_conditions) {
                let functions = Several(refused, "function's arguments", "functions' arguments");
                say!(
                    "  {functions} couldn't be read, so no call of theirs met a condition: everycall info {} \
                     says why",
                    output.display()
                );
            }
            growing.iter().for_each(Growing::say_without_match);
            captures.iter().for_each(captures::Growing::say_unmet);
        }
        Ok(_) => {}
        Err(failure) => {
            if is_there && !failure.is_quiet() {
                say!("everycall: {} contains what was written before that", output.display());
            }
            return Ok(not_written(failure, status));
        }
    }
    Ok(end_as(status))
}

/// Which calls are counted and not recorded, as the options say.
fn unrecorded(arguments: &RecordArguments) -> Result<Unrecorded, Failure> {
    if let Some(counting) = arguments.only_counts {
        return Ok(Unrecorded::Everything(counting));
    }
    let Some(nanoseconds) = arguments.min_duration.filter(|nanoseconds| *nanoseconds > 0) else {
        return Ok(Unrecorded::Nothing);
    };
    if let Some(clock) = arguments.clock.filter(|clock| *clock != EventTimes::Exact) {
        return Err(Failure::new(
            exit_code::USAGE,
            format!(
                "--min-duration compares the times of calls, and with --clock {} not every event has one; leave out one of the two",
                clock.name()
            ),
        ));
    }
    // Triggers on entries and percentiles need every call of their functions.
    kept_calls::refuse_short(&arguments.triggers.trigger)?;
    let ticks = Rate::measure().ticks(nanoseconds).clamp(1, TICKS_MAX);
    Ok(Unrecorded::Short(MinDuration { nanoseconds, ticks }))
}

/// Refuses an output that would overwrite the program, or another program on the command line (`env
/// ./app`).
fn spare_programs(output: &Path, command: &[OsString]) -> Result<(), Failure> {
    let Some(there) = identity(output) else { return Ok(()) };
    let is_output = |path: &Path| identity(path) == Some(there);
    let is_executable = fs::metadata(output).is_ok_and(|file| file.mode() & 0o111 != 0);
    let Some((program, rest)) = command.split_first() else { return Ok(()) };
    let is_started = find_program(program).is_some_and(|path| is_output(&path));
    let is_named = is_executable && rest.iter().any(|word| is_output(Path::new(word)));
    if !is_started && !is_named {
        return Ok(());
    }
    let output = output.display();
    Err(Failure::new(
        exit_code::NOT_RECORDED,
        format!(
            "{output} is the program, and the trace would replace it; name another file: -o {output}.ect"
        ),
    ))
}

/// The command to start, and whether the program has the runtime; or why it can't be started.
fn prepare(arguments: &RecordArguments) -> Result<(Launch, bool), Failure> {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Err(Failure::new(exit_code::USAGE, "name the program to record"));
    };
    if program.as_encoded_bytes().starts_with(b"-") && find_program(program).is_none() {
        return Err(Failure::new(
            exit_code::USAGE,
            format!(
                "{} is not an option of record; `everycall record --help` lists them. For a program with this \
                name, write its path, such as ./-app",
                program.display()
            ),
        ));
    }
    let mut preload = arguments.preload;
    if arguments.as_is.untouched {
        Untouched::refuse_options(arguments)?;
        Untouched::refuse(program)?;
        preload = true;
    }
    let prospect = program::look_at(program);
    let carries_runtime = prospect == Prospect::Traced;
    match prospect {
        Prospect::Traced if arguments.as_is.untouched => {
            return Err(Failure::new(
                exit_code::NOT_RECORDED,
                format!(
                    "{} was built with everycall; leave out {}",
                    program.display(),
                    Untouched::asked_by(arguments)
                ),
            ));
        }
        Prospect::Traced if preload => {
            return Err(Failure::new(
                exit_code::NOT_RECORDED,
                format!("{} contains the runtime already; leave out --preload", program.display()),
            ));
        }
        Prospect::TracedLibraries => preload = true,
        Prospect::Plain(sentence) | Prospect::Untraceable(sentence) if !preload && !arguments.launcher => {
            return Err(Failure::new(exit_code::NOT_RECORDED, sentence));
        }
        Prospect::NoProgram(sentence) => return Err(Failure::new(exit_code::NOT_EXECUTABLE, sentence)),
        _ => {}
    }
    let (waits, output) = (arguments.waits, arguments.with_output);
    let memory = arguments.only_counts == Some(Counting::Memory);
    if (waits || output || memory) && program::is_static(program) {
        let option = match (waits, memory) {
            (true, _) => "--waits",
            (_, true) => "--memory",
            _ => "--with-output",
        };
        return Err(Failure::new(
            exit_code::NOT_RECORDED,
            format!(
                "{option} loads a library into the program, and {} is linked statically; link it without -static, or leave \
                out {option}",
                program.display()
            ),
        ));
    }
    if (preload || waits || output || memory) && program::is_privileged(program) {
        return Err(Failure::new(
            exit_code::NOT_RECORDED,
            format!(
                "{} has setuid, setgid or capabilities, so nothing can be preloaded into it; take a copy \
                without them",
                program.display()
            ),
        ));
    }
    let libraries = [
        (preload, PRELOAD_LIBRARY),
        (waits, WAITS_LIBRARY),
        (output, OUTPUT_LIBRARY),
        (preload || waits || output || memory, EXEC_LIBRARY),
    ]
    .into_iter();
    let libraries = libraries.filter(|(is_wanted, _)| *is_wanted).map(|(_, name)| kit_library(name));
    let preload = libraries.collect::<Result<Vec<_>, _>>()?;
    let first = if memory { Some(kit_library(MEMORY_LIBRARY)?) } else { None };
    let mut environment = Vec::new();
    // A program that comes first may start others.
    if memory || !preload.is_empty() && program::has_shared_sanitizer(program) {
        const OPTIONS: &str = "ASAN_OPTIONS";
        let mut options = std::env::var_os(OPTIONS).unwrap_or_default();
        options.push(if options.is_empty() { "" } else { ":" });
        options.push("verify_asan_link_order=0");
        environment.push((OPTIONS, options));
    }
    let recording = [(waits, WAITS_LIBRARY), (output, OUTPUT_LIBRARY), (memory, MEMORY_LIBRARY)].into_iter();
    let recording = recording.filter(|(is_wanted, _)| *is_wanted).map(|(_, name)| name.as_bytes().to_vec());
    let launch = Launch {
        program: program.clone(),
        arguments: rest.to_vec(),
        preload,
        first,
        recording: recording.collect(),
        environment,
    };
    Ok((launch, carries_runtime))
}

/// Whether a program is an interpreter of Python, by its name.
fn is_python(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().as_encoded_bytes();
    let version = name.strip_prefix(b"python").unwrap_or(b"no");
    version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

fn default_output(program: Option<&OsString>) -> PathBuf {
    let program = program.map_or(Path::new("program"), Path::new);
    let mut name = program.file_name().unwrap_or(program.as_os_str()).to_owned();
    name.push(".ect");
    name.into()
}

/// `shown` is the file that is being written.
fn write(
    ended: Ended,
    file: TraceWriter<BufWriter<OutFile>>,
    shown: impl Fn() -> PathBuf,
) -> Result<Summary, Failure> {
    let failed = |error| Failure::writing(&shown(), error);
    let (summary, buffered) = ended.write(file).map_err(failed)?;
    let file = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    file.finish()?;
    Ok(summary)
}
