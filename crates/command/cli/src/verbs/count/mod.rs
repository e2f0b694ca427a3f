//! `everycall count`: exact numbers of calls, without recording them.
//!
//! - `live`: a process's counts again and again, on a terminal as a `live_table`.
//! - `reading`: the counts of a running process.
//! - `untouched`: of programs that were built without everycall.

mod live;
mod live_table;
mod reading;
mod untouched;

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use everycall_analysis::{Grouping, Profile};
use everycall_io::say;
use everycall_recorder::Counting;

use self::reading::{read, show};
use crate::arguments::{
    AsIsArguments, CountArguments, CountedBy, EmbedChoice, FilterArguments, Force, KeepArguments,
    OnlyArguments, RecordArguments, TableFormat, TriggerArguments, ValueArguments,
};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::Destination;
use crate::untouched::Choice;
use crate::untouched::process::{Start, attach_for};
use crate::verbs::record;
use crate::verbs::report::Load;

/// Bytes of a text by which calls are counted.
const TEXT_MAX: u32 = 128;

/// Runs the verb.
pub fn run(arguments: CountArguments) -> Result<ExitCode, Failure> {
    if matches!(arguments.by.grouping, Grouping::Path | Grouping::Label(_)) {
        return Err(Failure::new(
            exit_code::USAGE,
            "counts have no paths and labels; record the program, and use everycall report --by",
        ));
    }
    if arguments.by.value.is_some() {
        refuse_beside_values(&arguments)?;
    } else if arguments.untouched {
        return untouched::run(&arguments);
    }
    if arguments.every.is_some() && arguments.pid.is_none() {
        return Err(Failure::new(
            exit_code::USAGE,
            "--every is for a process that runs already; start it with EVERYCALL_COUNT=calls or time, or by everycall count --memory -- PROGRAM, then: everycall count PID --every 1s",
        ));
    }
    match arguments.pid {
        Some(pid) => {
            let functions = OnlyArguments { only: Vec::new(), not: Vec::new() };
            attach_for(pid, &Choice::of(&functions, false, &[])?, Start::On)?;
            of_process(pid, &arguments)
        }
        None => of_program(arguments),
    }
}

/// Refuses options that say something else than a value does by which calls are counted.
fn refuse_beside_values(arguments: &CountArguments) -> Result<(), Failure> {
    let OnlyArguments { only, not } = &arguments.functions;
    let others = [
        (arguments.time, "--time"),
        (arguments.memory, "--memory"),
        (!only.is_empty(), "--only"),
        (!not.is_empty(), "--not"),
    ];
    match others.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Failure::new(
            exit_code::USAGE,
            format!(
                "--by with an argument counts calls of the functions that it names, without times; leave out {option}"
            ),
        )),
        None => Ok(()),
    }
}

/// Runs a program, and prints what it has counted at its end.
fn of_program(arguments: CountArguments) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new().prefix("everycall-count-").tempdir().map_err(|error| {
        Failure::new(
            exit_code::NOT_RECORDED,
            format!("no temporary folder for the counts: {error}; set TMPDIR, or keep them: -o FILE"),
        )
    })?;
    let path = output(&arguments, std::process::id(), folder.path()).path;
    let status = record::run(recording(&arguments, &path))?;
    if !path.exists() {
        // `record` has said why.
        return Ok(status);
    }
    let load = load(&arguments)?;
    let mut profile = Profile::by(arguments.by.grouping.clone());
    let runs = load.add_all(std::slice::from_ref(&path), &mut profile)?;
    show(&profile, &arguments, &runs)?;
    if arguments.time && profile.is_untimed() {
        say!(
            "everycall: the calls were counted, but not timed: there was no memory for the times; a higher limit (ulimit -v) helps"
        );
    }
    Ok(status)
}

fn load(arguments: &CountArguments) -> Result<Load, Failure> {
    Load::with(FilterArguments::default(), &arguments.symbols, arguments.format != TableFormat::Text)
}

/// The options of `record` for this.
fn recording(arguments: &CountArguments, path: &Path) -> RecordArguments {
    let (args, functions) = match arguments.by.value.clone() {
        None => (None, arguments.functions.clone()),
        Some((args, function)) => (Some(args), OnlyArguments { only: vec![function], not: Vec::new() }),
    };
    RecordArguments {
        as_is: AsIsArguments {
            untouched: arguments.untouched,
            modules: arguments.modules.clone(),
            ..AsIsArguments::default()
        },
        output: Some(path.to_owned()),
        force: if arguments.output.is_some() { arguments.force } else { Force::default() },
        values: ValueArguments {
            args: args.into_iter().collect(),
            args_text: TEXT_MAX,
            ..ValueArguments::default()
        },
        only_counts: Some(match arguments {
            CountArguments { by: CountedBy { value: Some(_), .. }, .. } => Counting::Values,
            CountArguments { memory: true, .. } => Counting::Memory,
            CountArguments { time: true, .. } => Counting::Times,
            _ => Counting::Calls,
        }),
        embed: EmbedChoice::default(),
        states: None,
        counters: None,
        samples: None,
        waits: false,
        with_output: false,
        log: Vec::new(),
        // The rings only receive marks of the program.
        ring_size: Some(64 << 10),
        functions,
        preload: arguments.preload,
        launcher: arguments.launcher,
        no_follow: arguments.no_follow,
        quiet: true,
        command: arguments.command.clone(),
        stream: false,
        stall: false,
        stream_memory: None,
        file_size: None,
        file_age: None,
        keep_files: None,
        triggers: TriggerArguments { trigger: Vec::new(), keep: KeepArguments::default() },
        min_duration: None,
        clock: None,
        budget: None,
        wait: false,
    }
}

/// Where the counts go: a file that the user wants to keep, or one in a temporary folder.
fn output(arguments: &CountArguments, pid: u32, folder: &Path) -> Destination {
    let default = || folder.join("counts.ect");
    Destination::of_process(pid, arguments.output.as_deref(), arguments.force, default)
}

/// Prints what a running process has counted.
fn of_process(pid: u32, arguments: &CountArguments) -> Result<ExitCode, Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::new(exit_code::FAILED, format!("no temporary folder: {error}")))?;
    let destination = output(arguments, pid, folder.path());
    let path = destination.path.clone();
    let load = load(arguments)?;
    let is_live = arguments.every.is_some();
    if let Some(every) = arguments.every
        && arguments.format == TableFormat::Text
        && everycall_tui::screen::is_there()
    {
        return live::run(pid, Duration::from_nanos(every), arguments, &load, &destination);
    }
    let mut before = arguments.since.as_ref().map(|file| earlier(pid, arguments, &load, file)).transpose()?;
    let mut is_first = true;
    loop {
        match read(pid, &destination, arguments.by.value.is_some()) {
            // The process has ended.
            Err(_) if !is_first => return Ok(ExitCode::SUCCESS),
            result => result?,
        }
        let mut now = Profile::by(arguments.by.grouping.clone());
        let runs = load.add_all(std::slice::from_ref(&path), &mut now)?;
        if arguments.time && now.is_untimed() {
            return Err(Failure::new(
                exit_code::FAILED,
                format!(
                    "process {pid} counts its calls and doesn't time them; leave out --time, or start it with EVERYCALL_COUNT=time"
                ),
            ));
        }
        if arguments.memory && !now.counts_memory && now.notes.memory_not_seen == 0 {
            return Err(Failure::new(
                exit_code::FAILED,
                format!(
                    "process {pid} doesn't count what it allocates; leave out --memory, or start it by everycall count --memory -- PROGRAM"
                ),
            ));
        }
        let shown = before.as_ref().map_or_else(|| now.clone(), |before| now.since(before));
        if is_live && is_first {
            say!("everycall: calls so far; then those of each interval; ctrl-C ends this");
        }
        show(&shown, arguments, &runs)?;
        let Some(every) = arguments.every else { return Ok(ExitCode::SUCCESS) };
        let _ = stdout().flush();
        (before, is_first) = (Some(now), false);
        sleep(Duration::from_nanos(every));
    }
}

/// The counts of the same process in a file that was written earlier.
fn earlier(pid: u32, arguments: &CountArguments, load: &Load, file: &Path) -> Result<Profile, Failure> {
    let mut profile = Profile::by(arguments.by.grouping.clone());
    let (pids, _) = load.view(file, |view| {
        profile.add_trace(view, &load.filter);
        view.trace().processes().iter().map(|process| process.pid).collect::<Vec<_>>()
    })?;
    if !pids.contains(&pid) {
        let of: Vec<String> = pids.iter().map(u32::to_string).collect();
        let why = format!("has counts of process {}, not of {pid}", of.join(", "));
        return Err(Failure::of(file, why));
    }
    Ok(profile)
}
