//! A program of our own that another thread watches while it runs: started under a recorder that
//! only keeps its arena. The main thread observes the program, as in `record`.

use std::io;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everycall_live::{LiveArena, ProcessFacts};
use everycall_recorder::{Arena, FirstArena, Launch, Options, Recorder, TraceWriter, Unrecorded, start_with};

use super::ended::end_as;
use super::program::counted_functions;
use super::ring_size::ring_size;
use crate::exit_code;
use crate::failure::Failure;
use crate::running::Program;

/// Time between two checks whether the program has an arena.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts a program, and lets a thread watch it; the thread may go on after the program's end.
/// `names`: of the thread, and of what it does. `prepare` may change the command. Returns the
/// program's exit status.
pub fn observe(
    launch: &Launch,
    names: (&str, &str),
    prepare: impl FnOnce(&mut Command),
    work: impl FnOnce(&Observed) -> Result<(), Failure> + Send,
) -> Result<ExitCode, Failure> {
    let options = Options {
        functions: counted_functions(&launch.program),
        ring_size: ring_size(None),
        follow: false,
        stream: None,
        unrecorded: Unrecorded::default(),
        states: None,
        counters: None,
        samples: None,
    };
    let recorder = Recorder::create(options)?;
    // Writes no trace: events that were seen are discarded.
    let mut file = TraceWriter::begin(io::sink(), launch, env!("CARGO_PKG_VERSION"))
        .map_err(|error| Failure::new(exit_code::NOT_RECORDED, error))?;
    let running = start_with(recorder, launch, prepare)?;
    let observed = Observed {
        pid: running.pid(),
        arena: running.first_arena(),
        last: Mutex::new(None),
        over: Arc::new(AtomicBool::new(false)),
    };
    let (name, what) = names;
    let (status, done) = std::thread::scope(|scope| {
        let observed = &observed;
        let work = move || work(observed);
        let working = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let ended = running.wait(false, &mut file);
        if let Ok(ended) = &ended {
            *observed.last.lock().unwrap_or_else(PoisonError::into_inner) = ended.first_arena();
        }
        observed.over.store(true, Ordering::Release);
        let done = match working.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Failure::new(exit_code::FAILED, format!("{what} failed"))),
            Err(error) => Err(Failure::new(exit_code::FAILED, format!("no thread for {what}: {error}"))),
        };
        (ended.map(|ended| ended.status()), done)
    });
    if let Err(failure) = done {
        failure.report();
    }
    Ok(end_as(status?))
}

/// A program that was started.
pub struct Observed {
    pid: u32,
    arena: FirstArena,
    /// Its arena, when it has ended.
    last: Mutex<Option<Arc<Arena>>>,
    over: Arc<AtomicBool>,
}

impl Observed {
    /// The program, once it has an arena; `None` if it ended without one.
    pub fn program(&self) -> Result<Option<Program>, Failure> {
        let Some(arena) = self.arena() else { return Ok(None) };
        let pid = arena.header().target_pid;
        let pid = if pid == 0 { self.pid } else { pid };
        let facts = ProcessFacts::of(pid).unwrap_or(ProcessFacts { pid, ..ProcessFacts::default() });
        let live = LiveArena::of_file(arena.file(), arena.layout(), pid)
            .map_err(|error| Failure::new(exit_code::FAILED, format!("process {pid}: {error}")))?;
        Ok(Some(Program::started(pid, live.with_process(facts), Arc::clone(&self.over))))
    }

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
