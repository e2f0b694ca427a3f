//! Starts the program.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use everycall_format::env;
use everycall_machine::clock::Readings;
use everycall_sched::Sched;
use everycall_stacks::Stacks;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::session::options::{HooksBox, KeepBox, Recorder};
use crate::session::running::Running;
use crate::session::serving::Serving;
use crate::session::sharing::Sharing;
use crate::sys::error::RecordError;
use crate::sys::launch::{Launch, find_program};
use crate::sys::lock::lock;
use crate::sys::signals::Signals;
use crate::tree::doorbell::Doorbell;
use crate::tree::hooking::Hooking;
use crate::tree::keeper::Keeper;
use crate::tree::sampler::Sampler;

/// Bytes of scheduling events that are kept: 1.4 million.
const SCHED_MEMORY: usize = 32 << 20;

/// Starts the program. From here on, this process ignores signals that the terminal sends to both.
///
/// # Errors
///
/// The program doesn't exist, can't be executed, or no process can be created.
pub fn start(recorder: Recorder, launch: &Launch) -> Result<Running, RecordError> {
    start_with(recorder, launch, |_| {})
}

/// Starts the program as [`start`] does; `prepare` says where its output goes.
///
/// # Errors
///
/// As for [`start`].
pub fn start_with(
    recorder: Recorder,
    launch: &Launch,
    prepare: impl FnOnce(&mut Command),
) -> Result<Running, RecordError> {
    begin(recorder, launch, prepare, Answers::Afterwards, |mut command| command.spawn())
}

/// Starts the program as [`start`] does, by `spawn`, which returns when it has changed the program.
/// The recorder answers the program's messages meanwhile.
///
/// # Errors
///
/// As for [`start`], or those of `spawn`.
pub fn start_by(
    recorder: Recorder,
    launch: &Launch,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> Result<Running, RecordError> {
    begin(recorder, launch, |_| {}, Answers::Meanwhile, spawn)
}

/// From when on the program's messages are answered.
#[derive(PartialEq)]
enum Answers {
    Meanwhile,
    Afterwards,
}

fn begin(
    recorder: Recorder,
    launch: &Launch,
    prepare: impl FnOnce(&mut Command),
    answers: Answers,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> Result<Running, RecordError> {
    let Recorder { mut tree, keep, signals: wanted, states, counters, samples, hooks } = recorder;
    if let Some(program) = find_program(&launch.program) {
        tree.open_started(&program);
    }
    tree.expect_libraries(launch.recording.clone());
    let hub = tree.hub().path();
    let preloads = launch.preloads();
    let mut environment: Vec<(&str, &OsStr)> = vec![(env::RECORDER, hub.as_os_str())];
    environment.extend(launch.environment.iter().map(|(name, value)| (*name, value.as_os_str())));
    environment.extend(preloads.as_deref().map(|list| ("LD_PRELOAD", list)));
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments);
    prepare(&mut command);
    everycall_machine::clock::count_for(Path::new(&launch.program));
    let readings = Readings::begin();
    // The program inherits it from this thread.
    let mut sched = states.map(|choice| Sched::of_processes_to_come(choice, SCHED_MEMORY));
    let stacks = samples.map(Stacks::of_programs_to_come);
    let tree = Arc::new(Mutex::new(tree));
    let hooking = hooks.map(|HooksBox(write)| Hooking::attend(Arc::clone(lock(&tree).hub()), write));
    let mut doorbell = None;
    let (child, signals) = Signals::spawn(command, &environment, &wanted, |command| {
        doorbell = (answers == Answers::Meanwhile).then(|| Doorbell::attend(Arc::clone(&tree)));
        spawn(command)
    })
    .map_err(|source| launch.explain(source))?;
    // Raises the limit of descriptors for arenas and module files, only for this process: the
    // program has its limits already.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    lock(&tree).has_started(child.id());
    let doorbell = doorbell.unwrap_or_else(|| Doorbell::attend(Arc::clone(&tree)));
    let keeper = keep.map(|KeepBox(keep)| Keeper::attend(Arc::clone(&tree), keep));
    let sampler = counters.map(|interval| Sampler::attend(Arc::clone(&tree), interval));
    if let Some(sched) = &mut sched {
        let tree = Arc::clone(&tree);
        sched.attend(move || lock(&tree).of_program().map(|member| member.pid).collect());
    }
    let serving = sched.as_ref().and_then(|_| Serving::begin());
    let sharing = Sharing::default();
    Ok(Running {
        tree,
        child,
        signals,
        readings,
        doorbell,
        keeper,
        hooking,
        sched,
        stacks,
        sharing,
        sampler,
        serving,
    })
}
