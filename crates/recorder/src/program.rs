//! The traced program's life: started, waited for, buried. It must not notice that it has a recorder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use everycall_format::ect::{ProcessEnd, end};
use everycall_format::env;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions, getrlimit, setrlimit, waitid};
use rustix::thread::futex;

use crate::arena::Arena;
use crate::clock::Readings;
use crate::error::RecordError;
use crate::modules::Modules;
use crate::names::Names;
use crate::signals::{Received, Signals, send};

/// A signal sent to the whole group has reached the program by then, and may have ended it.
const FORWARD_DELAY: Duration = Duration::from_millis(10);
/// The bell's thread looks up this often even if nothing rings.
const BELL_SECONDS: i64 = 1;

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program, found along `PATH` unless there is a slash in it.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// A shared runtime to load into it, for programs that carry none.
    pub preload: Option<PathBuf>,
}

/// A program that runs with an arena.
#[derive(Debug)]
pub struct Running {
    arena: Arc<Arena>,
    launch: Launch,
    child: Child,
    signals: Signals,
    readings: Readings,
    bell: Bell,
}

/// A program that has ended, and all that was noticed of it.
#[derive(Debug)]
pub struct Ended {
    pub(crate) arena: Arc<Arena>,
    pub(crate) launch: Launch,
    pub(crate) end: ProcessEnd,
    pub(crate) readings: Readings,
    pub(crate) names: Names,
    pub(crate) modules: Modules,
    status: ExitStatus,
}

/// Starts the program. From here on this process ignores what the terminal sends to both of them.
///
/// # Errors
///
/// It isn't there, it can't be executed, or there is no process for it.
pub fn start(arena: Arena, launch: Launch) -> Result<Running, RecordError> {
    let arena_path = arena.path();
    let preload = launch.preload.as_deref().map(with_present_preloads);
    let mut environment: Vec<(&str, &OsStr)> = vec![(env::ARENA, arena_path.as_os_str())];
    environment.extend(preload.as_deref().map(|list| ("LD_PRELOAD", list)));
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments);
    let readings = Readings::begin();
    let (child, signals) = match Signals::spawn(&mut command, &environment) {
        Ok(started) => started,
        Err(source) => return Err(explain(launch.program, source)),
    };
    drop(command);
    // Files of modules are held open: for us alone, the program has its limits already.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let arena = Arc::new(arena);
    let bell = Bell::attend(Arc::clone(&arena));
    Ok(Running { arena, launch, child, signals, readings, bell })
}

/// What is preloaded already stays in front: sanitizers insist on being first.
fn with_present_preloads(ours: &Path) -> OsString {
    match std::env::var_os("LD_PRELOAD").filter(|present| !present.is_empty()) {
        Some(mut list) => {
            list.push(":");
            list.push(ours);
            list
        }
        None => ours.as_os_str().to_owned(),
    }
}

fn explain(program: OsString, source: io::Error) -> RecordError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => {
            let exists = program.as_encoded_bytes().contains(&b'/') && Path::new(&program).exists();
            RecordError::NotFound { program, exists }
        }
        Some(
            libc::EACCES
            | libc::ENOEXEC
            | libc::EISDIR
            | libc::ELIBBAD
            | libc::ETXTBSY
            | libc::EPERM
            | libc::ELOOP,
        ) => RecordError::NotExecutable { program, source },
        _ => RecordError::System { attempt: "start the program", source },
    }
}

impl Running {
    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end. Meanwhile SIGINT and SIGQUIT are the program's matter, as the terminal sends them to
    /// both; SIGTERM and SIGHUP are passed on.
    ///
    /// # Errors
    ///
    /// The system can't tell how it ended.
    pub fn wait(mut self) -> Result<Ended, RecordError> {
        let system = |source| RecordError::System { attempt: "wait for the program", source };
        let pid = Pid::from_child(&self.child);
        let mut names = Names::default();
        loop {
            // It stays a zombie for now, so that its main thread's name and its process id are still its own.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if waitid(WaitId::Pid(pid), options).map_err(|error| system(error.into()))?.is_some() {
                break;
            }
            self.sleep(names.pause());
            while let Some(received) = self.signals.next() {
                self.pass_on(received);
            }
            self.readings.poll();
            names.poll(&self.arena);
        }
        let ticks = self.readings.take();
        names.poll(&self.arena);
        let modules = self.bell.stop(&self.arena);
        let pid = self.child.id();
        let status = self.child.wait().map_err(system)?;
        let end = process_end(pid, status, ticks);
        let Running { arena, launch, readings, .. } = self;
        Ok(Ended { arena, launch, end, readings, names, modules, status })
    }

    fn sleep(&self, time: Duration) {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // An interrupted sleep is a short one.
        let _ = poll(&mut [PollFd::new(self.signals.descriptor(), PollFlags::IN)], Some(&timeout));
    }

    fn pass_on(&mut self, received: Received) {
        if let Received::Sent(signal @ (libc::SIGTERM | libc::SIGHUP)) = received {
            std::thread::sleep(FORWARD_DELAY);
            send(self.child.id(), signal);
        }
    }
}

fn process_end(pid: u32, status: ExitStatus, ticks: u64) -> ProcessEnd {
    let (how, code) = match (status.code(), status.signal()) {
        (Some(code), _) => (end::EXITED, code),
        (None, signal) => (end::SIGNALED, signal.unwrap_or(0)),
    };
    ProcessEnd { pid, how, code: code.unsigned_abs(), core_dumped: status.core_dumped().into(), ticks }
}

impl Ended {
    /// How the program ended.
    #[must_use]
    pub fn status(&self) -> ExitStatus {
        self.status
    }

    /// Whether a traced program took the arena.
    #[must_use]
    pub fn was_traced(&self) -> bool {
        self.arena.header().target_pid != 0
    }
}

/// Answers the runtime's messages about modules on a thread of its own.
#[derive(Debug)]
struct Bell {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Modules>,
}

impl Bell {
    fn attend(arena: Arc<Arena>) -> Bell {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut modules = Modules::default();
            let page = arena.page();
            while !stopped.load(Ordering::Acquire) {
                let rung = page.doorbell().load(Ordering::Acquire);
                modules.look(&arena);
                if page.acknowledged().swap(rung, Ordering::Release) != rung {
                    let _ = futex::wake(page.acknowledged(), futex::Flags::empty(), u32::MAX >> 1);
                }
                let timeout = futex::Timespec { tv_sec: BELL_SECONDS, tv_nsec: 0 };
                let _ = futex::wait(page.doorbell(), futex::Flags::empty(), rung, Some(&timeout));
            }
            modules
        });
        Bell { stop, thread }
    }

    fn stop(self, arena: &Arena) -> Modules {
        self.stop.store(true, Ordering::Release);
        // The thread may be about to wait when it is woken.
        while !self.thread.is_finished() {
            let _ = futex::wake(arena.page().doorbell(), futex::Flags::empty(), u32::MAX >> 1);
            std::thread::sleep(Duration::from_micros(20));
        }
        let mut modules = self.thread.join().unwrap_or_default();
        // What was loaded last may not have been looked at.
        modules.look(arena);
        modules
    }
}
