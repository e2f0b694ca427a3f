//! `everycall follow PATTERN... -- PROGRAM`: the program is started under a recorder that only
//! keeps its arena. The main thread observes the program, as in `record`; another thread prints its
//! calls.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everycall_format::env;
use everycall_io::say;
use everycall_live::{Follower, LiveArena, ProcessFacts};
use everycall_patterns::FunctionTable;
use everycall_recorder::{Arena, FirstArena, Launch, Options, Recorder, TraceWriter, Unrecorded, start_with};
use everycall_timeline::settled_words;

use super::levels::Levels;
use super::output::{Outputs, Pipes};
use super::session::{Session, rules};
use crate::arguments::FollowArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::captures::LiveValues;
use crate::recording::ended::end_as;
use crate::recording::grown::OpenSet;
use crate::recording::program;
use crate::recording::ring_size::ring_size;
use crate::running::Program;

/// Time between two checks whether the program has an arena.
const PAUSE: Duration = Duration::from_millis(1);

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
    let options = Options {
        functions: program::counted_functions(&launch.program),
        ring_size: ring_size(None),
        follow: false,
        stream: None,
        unrecorded: Unrecorded::default(),
        states: None,
        counters: None,
        samples: None,
    };
    let recorder = Recorder::create(options)?;
    // Writes no trace: events that were shown are discarded.
    let mut file = TraceWriter::begin(io::sink(), &launch, env!("CARGO_PKG_VERSION"))
        .map_err(|error| Failure::new(exit_code::NOT_RECORDED, error))?;
    let mut ours = None;
    let mut theirs: Option<[OwnedFd; 2]> = None;
    if arguments.with_output {
        let (pipes, ends) = Pipes::new()?;
        (ours, theirs) = (Some(pipes), Some(ends));
    }
    let running = start_with(recorder, &launch, |command| {
        if let Some([out, err]) = theirs {
            command.stdout(out).stderr(err);
        }
    })?;
    let watched = Arc::new(Watched {
        pid: running.pid(),
        arena: running.first_arena(),
        last: Mutex::new(None),
        over: Arc::new(AtomicBool::new(false)),
    });
    let outputs = ours.map(Pipes::read);
    let (status, printed) = std::thread::scope(|scope| {
        let watched = &watched;
        let print = move || print(arguments, watched, levels, outputs);
        let printing = std::thread::Builder::new().name("follow".to_owned()).spawn_scoped(scope, print);
        let ended = running.wait(false, &mut file);
        if let Ok(ended) = &ended {
            *watched.last.lock().unwrap_or_else(PoisonError::into_inner) = ended.first_arena();
        }
        watched.over.store(true, Ordering::Release);
        let printed = match printing.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(printed)) => printed,
            Ok(Err(_)) => Err(Failure::new(exit_code::FAILED, "printing its calls failed")),
            Err(error) => Err(Failure::new(exit_code::FAILED, format!("no thread to print calls: {error}"))),
        };
        (ended.map(|ended| ended.status()), printed)
    });
    if let Err(failure) = printed {
        failure.report();
    }
    Ok(end_as(status?))
}

/// A program that was started.
struct Watched {
    pid: u32,
    arena: FirstArena,
    /// Its arena, when it has ended.
    last: Mutex<Option<Arc<Arena>>>,
    over: Arc<AtomicBool>,
}

impl Watched {
    /// Its arena, once it has one; `None` if it ended without one.
    fn arena(&self) -> Option<Arc<Arena>> {
        loop {
            // Read before the arena: none can come afterwards.
            let is_over = self.over.load(Ordering::Acquire);
            if let Some(arena) = self.arena.get() {
                return Some(arena);
            }
            if is_over {
                return self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Prints its calls until it has ended.
fn print(
    arguments: &FollowArguments,
    watched: &Watched,
    levels: Levels,
    outputs: Option<Outputs>,
) -> Result<(), Failure> {
    let Some(arena) = watched.arena() else {
        say!("everycall: the program made no traced call");
        return Ok(());
    };
    let pid = arena.header().target_pid;
    let pid = if pid == 0 { watched.pid } else { pid };
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(exit_code::FAILED, format!("process {pid}: {error}"));
    let facts = ProcessFacts::of(pid).unwrap_or(ProcessFacts { pid, ..ProcessFacts::default() });
    let live = LiveArena::of_file(arena.file(), arena.layout(), pid).map_err(|error| failed(&error))?;
    let program = Program::started(pid, live.with_process(facts), Arc::clone(&watched.over));
    let live = Arc::clone(&program.arena);
    let mut follower = Follower::begin(&live, true, settled_words).map_err(|error| failed(&error))?;
    let mut session = Session::new(arguments, &program, None, levels, 0);
    session.outputs = outputs;
    let why = session.run(&mut follower, None)?;
    if !arguments.quiet && !program.has_ended() {
        say!("everycall: {program} {why}");
    }
    Ok(())
}
