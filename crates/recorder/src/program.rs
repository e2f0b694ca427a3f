//! The traced program's life: started, waited for, buried. It must not notice that it has a recorder.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use everycall_format::arena::ChildEntry;
use everycall_format::ect::{ProcessEnd, end};
use everycall_format::env;
use everycall_tracefile::Summary;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Resource, Rlimit, WaitId, WaitIdOptions, getrlimit, setrlimit, waitid};

use crate::arena::{Capacity, Stream};
use crate::bell::Bell;
use crate::clock::Readings;
use crate::error::RecordError;
use crate::family::{Family, Member};
use crate::hub::Hub;
use crate::signals::{Received, Signals, send};
use crate::trace::TraceWriter;
use crate::triggers::{KeepCalls, Keeper, Triggers};

/// A signal sent to the whole group has reached the program by then, and may have ended it.
const FORWARD_DELAY: Duration = Duration::from_millis(10);
/// Longest time between two looks at everything.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The same where the kernel doesn't tell of ends.
const PAUSE_ASKING: Duration = Duration::from_millis(20);
/// The same where only forked children are waited for that have made no traced call yet: all processes are looked at.
const PAUSE_SILENT: Duration = Duration::from_millis(50);
/// The same where the system has no thread that would answer programs, which wait for that for some milliseconds.
const PAUSE_WITHOUT_THREAD: Duration = Duration::from_millis(1);
/// Processes that have ended and are kept until the file is written; of more, the oldest are written at once.
const ENDED_KEPT: usize = 64;
/// Bytes of memory that they may keep.
const ENDED_BYTES_KEPT: u64 = 64 << 20;

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

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of each thread's ring.
    pub ring_size: u64,
    /// Whether processes that descend from the program are recorded, too.
    pub follow: bool,
    /// Whether everything is stored while the program runs, and how; else the newest events are kept.
    pub stream: Option<Stream>,
}

/// The memory for a recording, before its program runs.
#[derive(Debug)]
pub struct Recorder {
    family: Family,
    keep: Option<KeepBox>,
    /// Signals that are handed to it.
    signals: Vec<i32>,
}

/// Whoever keeps calls.
struct KeepBox(Box<dyn KeepCalls>);

impl std::fmt::Debug for KeepBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeepBox")
    }
}

impl Recorder {
    /// Makes the memory.
    ///
    /// # Errors
    ///
    /// There is none, or limits forbid it.
    pub fn create(options: Options) -> Result<Recorder, RecordError> {
        Recorder::with_triggers(options, None)
    }

    /// Makes the memory for a recording with triggers.
    ///
    /// # Errors
    ///
    /// As for [`Recorder::create`].
    pub fn with_triggers(options: Options, triggers: Option<Triggers>) -> Result<Recorder, RecordError> {
        let memory = triggers.as_ref().map(|triggers| triggers.memory);
        let capacity = Capacity::find(options.ring_size, options.stream, memory)?;
        let signals = triggers.as_ref().map(|triggers| triggers.signals.clone()).unwrap_or_default();
        let (sites, keep) = triggers.map(|triggers| (triggers.sites, KeepBox(triggers.keep))).unzip();
        let no_memory = |source| RecordError::Arena { ring_size: options.ring_size, source };
        let hub = Hub::create(options.follow).map_err(no_memory)?;
        let family = Family::new(hub, capacity, options.follow, sites).map_err(no_memory)?;
        Ok(Recorder { family, keep, signals })
    }
}

/// A program that is being recorded.
#[derive(Debug)]
pub struct Running {
    family: Arc<Mutex<Family>>,
    child: Child,
    signals: Signals,
    readings: Readings,
    bell: Bell,
    keeper: Option<Keeper>,
}

/// A recording that has ended, and all that was noticed in it.
#[derive(Debug)]
pub struct Ended {
    members: Vec<Member>,
    children: Vec<ChildEntry>,
    untraced: u32,
    end: ProcessEnd,
    readings: Readings,
    status: ExitStatus,
    keep: Option<KeepBox>,
}

/// Starts the program. From here on this process ignores what the terminal sends to both of them.
///
/// # Errors
///
/// It isn't there, it can't be executed, or there is no process for it.
pub fn start(recorder: Recorder, launch: &Launch) -> Result<Running, RecordError> {
    let Recorder { mut family, keep, signals: wanted } = recorder;
    if let Some(program) = find_program(&launch.program) {
        family.open_started(&program);
    }
    let hub = family.hub.path();
    let preload = launch.preload.as_deref().map(with_present_preloads);
    let mut environment: Vec<(&str, &OsStr)> = vec![(env::RECORDER, hub.as_os_str())];
    environment.extend(preload.as_deref().map(|list| ("LD_PRELOAD", list)));
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments);
    let readings = Readings::begin();
    let (child, signals) = match Signals::spawn(&mut command, &environment, &wanted) {
        Ok(started) => started,
        Err(source) => return Err(explain(launch.program.clone(), source)),
    };
    drop(command);
    // Arenas and files of modules are held open: for us alone, the program has its limits already.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    family.has_started(child.id());
    let family = Arc::new(Mutex::new(family));
    let bell = Bell::attend(Arc::clone(&family));
    let keeper = keep.map(|KeepBox(keep)| Keeper::attend(Arc::clone(&family), keep));
    Ok(Running { family, child, signals, readings, bell, keeper })
}

/// The file that [`start`] is going to execute: the one that a name with a slash leads to, else the first one of that name along
/// `PATH` that may be executed. `None` where there is no such file.
#[must_use]
pub fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok() && path.is_file();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
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

    /// Waits for the program's end, with `all` for that of every process that is recorded or was forked by one that is. Meanwhile SIGINT and SIGQUIT are
    /// the program's matter, as the terminal sends them to both; SIGTERM and SIGHUP are passed on. Processes that end early
    /// may be written into `file`.
    ///
    /// # Errors
    ///
    /// The system can't tell how it ended.
    pub fn wait<W: Write>(mut self, all: bool, file: &mut TraceWriter<W>) -> Result<Ended, RecordError> {
        let system = |source| RecordError::System { attempt: "wait for the program", source };
        let mut ended = None;
        // Once the program has ended, others are waited for only as long as nobody minds.
        let mut is_asked_to_end = false;
        let mut silent = loop {
            // Before it is looked whether the program lives: what ended it may have been meant for both of us.
            while let Some(received) = self.signals.next() {
                self.pass_on(received, ended.is_none());
                is_asked_to_end |= ended.is_some() && received.ends();
            }
            let mut without_thread = self.bell.poll();
            if let Some(keeper) = &mut self.keeper {
                without_thread |= keeper.poll();
            }
            if ended.is_none() && self.is_zombie().map_err(system)? {
                // It stays a zombie for now, so that its main thread's name and its process id are still its own.
                let ticks = self.readings.take();
                let mut family = lock(&self.family);
                family.attend();
                family.look_at_names(true);
                family.bury();
                drop(family);
                let status = self.child.wait().map_err(system)?;
                ended = Some((status, process_end(self.child.id(), status, ticks)));
            }
            let mut family = lock(&self.family);
            family.bury();
            let mut longest = if family.has_members_to_ask() { PAUSE_ASKING } else { PAUSE_MAX };
            if without_thread {
                longest = PAUSE_WITHOUT_THREAD;
            }
            let waits = all && !is_asked_to_end;
            if ended.is_some() && !(waits && family.has_living()) {
                let silent = family.silent_children();
                if silent.is_empty() || !waits {
                    break silent;
                }
                longest = longest.min(PAUSE_SILENT);
            }
            let due = family.look_at_names(false);
            let (kept, bytes_kept) =
                if file.is_streaming() { (0, 0) } else { (ENDED_KEPT, ENDED_BYTES_KEPT) };
            let over = family.take_ended(kept, bytes_kept);
            if file.is_streaming() {
                file.join(family.members());
            }
            drop(family);
            self.readings.poll();
            if file.is_streaming() {
                longest = longest.min(file.pass(&self.readings));
            }
            if over.is_empty() {
                let until_due = due.map(|due| due.saturating_duration_since(Instant::now()));
                self.sleep(until_due.unwrap_or(longest).min(longest));
            } else {
                file.early(over, &self.readings);
            }
        };
        // What takes long from now on, such as a slow disk, is ours alone.
        self.signals.let_end();
        self.bell.stop();
        let mut keep = self.keeper.and_then(Keeper::stop);
        let mut family = lock(&self.family);
        let watched = family.watched();
        let now = self.readings.take();
        let members = family.disband(now);
        self.readings.take();
        let (mut children, untraced) = (family.hub.children(), family.untraced());
        // They may have begun since.
        silent.retain(|child| members.iter().all(|member| member.pid != child.pid));
        children.append(&mut silent);
        drop(family);
        if let Some(keep) = &mut keep {
            keep.look(&watched, &[]);
        }
        let Some((status, end)) = ended else { return Err(system(io::ErrorKind::NotFound.into())) };
        let keep = keep.map(KeepBox);
        Ok(Ended { members, children, untraced, end, readings: self.readings, status, keep })
    }

    fn is_zombie(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    fn sleep(&self, time: Duration) {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let ends = lock(&self.family).ends();
        let mut waited = vec![PollFd::new(self.signals.descriptor(), PollFlags::IN)];
        waited.extend(ends.as_deref().map(|ends| PollFd::new(ends, PollFlags::IN)));
        // An interrupted sleep is a short one.
        let _ = poll(&mut waited, Some(&timeout));
    }

    fn pass_on(&mut self, received: Received, lives: bool) {
        if let (Received::Sent(signal @ (libc::SIGUSR1 | libc::SIGUSR2)), Some(keeper)) =
            (received, &mut self.keeper)
        {
            keeper.signal(signal);
        }
        if let Received::Sent(signal @ (libc::SIGTERM | libc::SIGHUP)) = received
            && lives
        {
            std::thread::sleep(FORWARD_DELAY);
            send(self.child.id(), signal);
        }
    }
}

/// The family, also after a thread of ours has failed.
pub(crate) fn lock(family: &Mutex<Family>) -> MutexGuard<'_, Family> {
    family.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Writes what isn't in the file yet, and ends it. Gives the output back, flushed.
    ///
    /// # Errors
    ///
    /// The output's, also of what was to be written earlier.
    pub fn write<W: Write>(self, mut file: TraceWriter<W>) -> io::Result<(Summary, W)> {
        let Ended { mut members, children, untraced, end, readings, keep, .. } = self;
        file.clock(&readings, members.first())?;
        for member in &mut members {
            file.member(member, &readings)?;
        }
        if let Some(KeepBox(mut keep)) = keep {
            keep.write(&mut |process, kind, payload| file.chunk(process, kind, payload))?;
        }
        file.end(&children, untraced, &end, &readings)
    }
}
