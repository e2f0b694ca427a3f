//! `everycall attach --stay`: hooks for libraries that a process loads later.
//!
//! The process's loader asks for them, and waits (`everycall_untouched::Attended`). It waits no more
//! if this process is gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, scope};
use std::time::Duration;

use everycall_inject::{InjectError, Process, mappings, on_tracer};
use everycall_io::say;
use everycall_units::{Count, Several};
use everycall_untouched::{Attended, first_page, installed, libraries};

use crate::failure::Failure;
use crate::signals::Signals;

use super::Choice;
use super::process::{PATIENCE, failed, hook_again, modules_of, plan, runtime_of};

/// Between two looks, each of some microseconds.
const PAUSE: Duration = Duration::from_millis(10);
/// Looks after which it is checked whether the hooks were taken out.
const LOOKS: u32 = 50;
/// Attempts to write hooks, and the time between two of them.
const ATTEMPTS: u32 = 4;
const AGAIN: Duration = Duration::from_millis(200);

/// Why it doesn't stay any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By Ctrl-C and the like.
    Asked,
    /// The process has ended, or executed another program.
    Ended,
    /// The hooks were taken out.
    Detached,
}

/// Writes hooks into libraries that process `pid` loads from now on, until a signal comes.
pub fn stay(pid: u32, choice: &Choice, modules: &[String]) -> Result<Left, Failure> {
    let signals = Signals::begin();
    let attended = on_tracer(|| {
        let mut process = Process::open(pid.cast_signed())?;
        Attended::begin(&mut process, PATIENCE)
    });
    let attended = attended.map_err(failed)?.map_err(|why| {
        failed(format!("libraries that process {pid} loads later can't be recorded: {why}"))
    })?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(failed)?;
    say!(
        "everycall: process {pid}: libraries that it loads get hooks; Ctrl-C takes all hooks out, and ends this"
    );
    let mut later = Later { pid, program: &program, choice, modules, without: HashSet::new() };
    // What was loaded since it was attached.
    later.hook();
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        let beats = || {
            while !is_over.load(Ordering::Relaxed) {
                attended.beat();
                std::thread::sleep(PAUSE);
            }
        };
        let beating = Builder::new().name("beats".to_owned()).spawn_scoped(scope, beats);
        beating.map_err(|error| failed(format!("starting a thread: {error}")))?;
        let left = later.attend(&attended, &signals);
        is_over.store(true, Ordering::Relaxed);
        Ok(left)
    })
}

/// Libraries of a process that come later.
struct Later<'a> {
    pid: u32,
    program: &'a Path,
    choice: &'a Choice,
    modules: &'a [String],
    /// Files that get no hooks, with the inodes that they had.
    without: HashSet<(PathBuf, u64)>,
}

impl Later<'_> {
    fn attend(&mut self, attended: &Attended, signals: &Signals) -> Left {
        let (mut answered, mut looks) = (attended.answered(), 0_u32);
        loop {
            if signals.wait(PAUSE) {
                return Left::Asked;
            }
            let Some(asked) = attended.asked() else { return Left::Ended };
            if asked != answered {
                self.hook();
                attended.answer(asked);
                answered = asked;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && !attended.is_led() {
                return if attended.asked().is_some() { Left::Detached } else { Left::Ended };
            }
        }
    }

    /// Writes hooks into libraries that have none yet.
    fn hook(&mut self) {
        for attempt in 1.. {
            match self.try_hook() {
                // Another command of ours may be at it.
                Err(InjectError::Refused(_)) if attempt < ATTEMPTS => std::thread::sleep(AGAIN),
                // Programs may end at any time.
                Ok(()) | Err(InjectError::Ended { .. }) => return,
                Err(error) => {
                    say!("everycall: process {}: not all is recorded: {error}", self.pid);
                    return;
                }
            }
        }
    }

    fn try_hook(&mut self) -> Result<(), InjectError> {
        let pid = self.pid.cast_signed();
        let maps = mappings(pid)?;
        let there = modules_of(self.pid);
        let mut planned = Vec::new();
        let regions = on_tracer(|| installed(&Process::open(pid)?))?;
        for path in libraries(&maps, self.program, self.modules) {
            let start = first_page(&maps, &path);
            let inode = maps.iter().find(|mapping| Some(mapping.range.start) == start);
            let key = (path.clone(), inode.map_or(0, |mapping| mapping.inode));
            let is_led = regions.iter().any(|region| Some(region.module) == start && region.is_led);
            if is_led || self.without.contains(&key) {
                continue;
            }
            match plan(&path, &self.choice.functions(), &maps) {
                Ok(file) if file.planned() > 0 => {
                    super::say_refused(&file);
                    planned.push(file);
                }
                Ok(_) => _ = self.without.insert(key),
                Err(why) => {
                    say!("everycall: {}: not recorded: {why}", path.display());
                    self.without.insert(key);
                }
            }
        }
        let hooked = on_tracer(|| {
            let mut process = Process::open(pid)?;
            let Some(runtime) = runtime_of(&process)? else { return Ok(Vec::new()) };
            // Libraries bring functions by which calls are left.
            super::watch(&mut process, &runtime)?;
            hook_again(&mut process, &planned, &there, Some(&runtime))
        })?;
        for (file, hooked) in planned.iter().zip(hooked) {
            say!(
                "everycall: {}: hooks in {} of {}",
                file.path.display(),
                Count(hooked),
                Several(file.functions, "function", "functions")
            );
        }
        Ok(())
    }
}
