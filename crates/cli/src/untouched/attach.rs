//! `everycall attach PID` and `detach PID`: hooks in a process that runs, built without everycall.
//!
//! Plans are made before anything is touched. Then the runtime is loaded by a thread that holds no
//! lock, modules are registered, and all threads are stopped while the code is changed. The process
//! is its own recorder: its newest calls stay in its memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_inject::{InjectError, Mapping, Process, check, mappings, on_tracer};
use everycall_io::say;
use everycall_live::LiveError;
use everycall_units::{Count, Several};
use everycall_untouched::{Functions, Lead, Planned, Runtime, lead_leaving, libraries};

use super::Choice;
use crate::arguments::{AttachArguments, DetachArguments};
use crate::control::nothing_named;
use crate::exit_code;
use crate::failure::Failure;

/// For a thread that may load the runtime, and for each stop of all threads.
const PATIENCE: Duration = Duration::from_secs(10);

fn failed(why: impl ToString) -> Failure {
    Failure::new(exit_code::FAILED, why.to_string())
}

/// Runs `attach`.
pub fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let pid = arguments.pid;
    let choice = Choice::of(&arguments.functions, arguments.all, &[])?;
    hook(pid, &choice, &arguments.modules, arguments.ring_size, "on")?;
    say!("  next: everycall snapshot {pid}\n        everycall detach {pid}");
    Ok(ExitCode::SUCCESS)
}

/// For a verb that needs a process that is traced: writes hooks into one that isn't, if that is
/// possible. They are off until the verb switches some on. `why` it can't go on otherwise.
pub fn attach_for(pid: u32, choice: &Choice, why: &LiveError) -> Result<(), Failure> {
    if !matches!(why, LiveError::NotTraced) {
        return Err(failed(format!("process {pid}: {why}")));
    }
    let hooked = hook(pid, choice, &[], None, "off");
    hooked.map_err(|failure| {
        failed(format!(
            "process {pid} was built without everycall, and gets no hooks: {}",
            failure.sentence()
        ))
    })?;
    say!(
        "everycall: process {pid} was built without everycall, so it got hooks; `everycall detach {pid}` takes them out"
    );
    Ok(())
}

/// Writes hooks into a process, and says how many. `start`: whether they are on.
fn hook(
    number: u32,
    choice: &Choice,
    modules: &[String],
    ring_size: Option<u64>,
    start: &str,
) -> Result<(), Failure> {
    let pid = number.cast_signed();
    check(pid).map_err(failed)?;
    let functions = choice.functions();
    let maps = mappings(pid).map_err(failed)?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(failed)?;
    let mut files = vec![program.clone()];
    files.extend(libraries(&maps, &program, modules));
    let mut planned = Vec::new();
    for path in files {
        match plan(&path, &functions, &maps) {
            Ok(file) => planned.push(file),
            Err(why) if path == program => return Err(failed(format!("{}: {why}", path.display()))),
            Err(why) => say!("everycall: {}: not recorded: {why}", path.display()),
        }
    }
    planned.iter().for_each(super::say_refused);
    let all: Vec<&Planned> = planned.iter().collect();
    if let Some(sentence) = choice.without_match(&all).into_iter().next() {
        return Err(failed(sentence));
    }
    if let Some(name) = choice.name_without_match(&all) {
        let tables: Vec<_> = planned.iter().filter_map(|file| file.table().ok()).collect();
        return Err(failed(nothing_named(name, &tables)));
    }
    if planned.iter().all(|file| file.planned() == 0) {
        return Err(failed(format!(
            "no function of process {pid} gets hooks; --all takes small ones, --modules names libraries"
        )));
    }
    let there = modules_of(number);
    let is_traced = everycall_live::attach(number).is_ok();
    if is_traced && there.is_empty() {
        return Err(failed(format!(
            "process {pid} is traced already, by hooks of its own; `everycall snapshot {pid}` takes its newest calls"
        )));
    }
    let hooked = on_tracer(|| {
        let mut process = Process::open(pid)?;
        if !there.is_empty() {
            lead_leaving(&mut process, Lead::ToTrampolines, PATIENCE)?;
            return again(&mut process, &planned, &there, Lead::ToTrampolines);
        }
        let ring_size = ring_size.unwrap_or(everycall_format::env::RING_SIZE_DEFAULT).to_string();
        let settings = [("EVERYCALL_START", start), ("EVERYCALL_RING_SIZE", ring_size.as_str())];
        let library = everycall_kit::library_with_settings(&settings)
            .ok_or_else(|| InjectError::Refused("the runtime has no room for its settings".to_owned()))?;
        let start = process.with_calm_thread(PATIENCE, |thread| thread.load_library(&library))?;
        let runtime = Runtime::at(&process, start)?
            .ok_or_else(|| InjectError::Refused(format!("process {pid} has not loaded the runtime")))?;
        super::watch(&mut process, &runtime)?;
        planned
            .iter()
            .map(|file| match file.install(&mut process, &runtime, PATIENCE) {
                Err(error) if error.is_taken() => {
                    say!("everycall: {}: not recorded: memory near it is taken", file.path.display());
                    Ok(0)
                }
                hooked => hooked,
            })
            .collect()
    })
    .map_err(failed)?;
    for (file, hooked) in planned.iter().zip(hooked) {
        say!(
            "everycall: {}: {} {} of {}",
            file.path.display(),
            if start == "on" { "recording" } else { "hooks in" },
            Count(hooked),
            Several(file.functions, "function", "functions")
        );
    }
    Ok(())
}

/// Runs `detach`.
pub fn detach(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    let pid = arguments.pid.cast_signed();
    check(pid).map_err(failed)?;
    let there = modules_of(arguments.pid);
    if there.is_empty() {
        return Err(failed(format!("process {pid} has no hooks that `everycall attach` wrote")));
    }
    let all = Functions { least_size: 0, selection: None, always: &[], are_others_kept: false };
    let maps = mappings(pid).map_err(failed)?;
    let planned: Result<Vec<Planned>, Failure> = there
        .iter()
        .map(|(_, path)| plan(path, &all, &maps).map_err(|why| failed(format!("{}: {why}", path.display()))))
        .collect();
    let planned = planned?;
    on_tracer(|| {
        let mut process = Process::open(pid)?;
        again(&mut process, &planned, &there, Lead::Back)?;
        lead_leaving(&mut process, Lead::Back, PATIENCE)
    })
    .map_err(failed)?;
    say!(
        "everycall: the code of process {pid} is what it was; `everycall snapshot {pid}` still has its last calls"
    );
    Ok(ExitCode::SUCCESS)
}

/// Plans a file that the process has mapped, if it is still the one at its path.
fn plan(path: &Path, functions: &Functions<'_>, maps: &[Mapping]) -> Result<Planned, String> {
    use std::os::unix::fs::MetadataExt as _;
    let mapped = maps.iter().find(|mapping| Path::new(&mapping.name) == path);
    let is_same = std::fs::metadata(path).is_ok_and(|now| mapped.is_some_and(|it| it.inode == now.ino()));
    if !is_same {
        return Err("was deleted or replaced since it was loaded".to_owned());
    }
    Planned::of(path, functions)
}

/// The modules of a process that have trampolines, with their paths.
fn modules_of(pid: u32) -> Vec<(ModuleEntry, PathBuf)> {
    let Ok(arena) = everycall_live::attach(pid) else { return Vec::new() };
    let is_one = |entry: &ModuleEntry| {
        entry.state == module_state::COMPLETE
            && entry.unloaded_ticks == 0
            && entry.flags & module_flags::TRAMPOLINES != 0
    };
    let modules = arena.modules().into_iter().filter(|(entry, _)| is_one(entry));
    modules.map(|(entry, path)| (entry, PathBuf::from(OsStr::from_bytes(&path)))).collect()
}

/// Leads files of which a process has trampolines there again, or back.
fn again(
    process: &mut Process,
    planned: &[Planned],
    there: &[(ModuleEntry, PathBuf)],
    to: Lead,
) -> Result<Vec<u64>, InjectError> {
    let region =
        |file: &Planned| there.iter().find(|(_, path)| *path == file.path).map(|(entry, _)| entry.start);
    planned
        .iter()
        .map(|file| region(file).map_or(Ok(0), |region| file.lead_again(process, region, to, PATIENCE)))
        .collect()
}
