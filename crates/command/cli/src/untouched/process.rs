//! Hooks in a process that runs, built without everycall: writing them, and taking them out.
//!
//! Plans are made before anything is touched. Then the runtime is loaded by a thread that holds no
//! lock, modules are registered, and all threads are stopped while the code is changed. The process
//! is its own recorder: its newest calls stay in its memory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everycall_format::arena::{ModuleEntry, module_flags, module_state};
use everycall_inject::{InjectError, Mapping, Process, check, mappings, on_tracer};
use everycall_io::say;
use everycall_live::LiveError;
use everycall_units::{Count, Several};
use everycall_untouched::{
    Functions, Lead, Planned, Runtime, first_page, installed, lead_leaving, libraries,
};

use crate::exit_code;
use crate::failure::Failure;
use crate::rules::nothing_named;
use crate::running::Program;

use super::Choice;

/// For a thread that may load the runtime, and for each stop of all threads.
const PATIENCE: Duration = Duration::from_secs(10);

fn failed(why: impl ToString) -> Failure {
    Failure::new(exit_code::FAILED, why.to_string())
}

/// Whether hooks record as soon as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    On,
    /// Once a verb switches some on.
    Off,
}

/// For a verb that needs a process that is traced: writes hooks into one that isn't, if that is
/// possible, or again into one from which they were taken.
pub fn attach_for(pid: u32, choice: &Choice, start: Start) -> Result<(), Failure> {
    let is_known = match everycall_live::attach(pid) {
        Ok(_) if is_detached(pid) => true,
        Ok(_) => return Ok(()),
        Err(LiveError::NotTraced) => false,
        Err(error) => return Err(failed(format!("process {pid}: {error}"))),
    };
    hook(pid, choice, &[], None, start).map_err(|failure| {
        failed(format!(
            "process {pid} was built without everycall, and gets no hooks: {}",
            failure.sentence()
        ))
    })?;
    let how = if is_known { "got its hooks back" } else { "was built without everycall, so it got hooks" };
    say!("everycall: process {pid} {how}; `everycall detach {pid}` takes them out");
    if is_known {
        Program::attach(pid)?.switch(start == Start::On)?;
    }
    Ok(())
}

/// Connects to process `pid`. One that isn't traced gets hooks for these functions, if that is
/// possible, and one whose hooks were taken out gets them back. Nothing is recorded at first.
pub fn attached(pid: u32, choice: &Choice) -> Result<Program, Failure> {
    attach_for(pid, choice, Start::Off)?;
    Program::attach(pid)
}

/// Whether hooks were taken out of a process, which still has the runtime.
fn is_detached(pid: u32) -> bool {
    let there = on_tracer(|| installed(&Process::open(pid.cast_signed())?));
    there.is_ok_and(|there| !there.is_empty() && there.iter().all(|module| !module.is_led))
}

/// Writes hooks into a process, also into libraries that it has loaded since the last time, and
/// says how many.
pub fn hook(
    number: u32,
    choice: &Choice,
    modules: &[String],
    ring_size: Option<u64>,
    start: Start,
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
            "none of its functions is large enough; `everycall attach --all {pid}` takes small ones, --modules names libraries"
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
            let runtime = runtime_of(&process)?;
            return hook_again(&mut process, &planned, &there, runtime.as_ref());
        }
        let ring_size = ring_size.unwrap_or(everycall_format::env::RING_SIZE_DEFAULT).to_string();
        let is_on = if start == Start::On { "on" } else { "off" };
        let settings = [("EVERYCALL_START", is_on), ("EVERYCALL_RING_SIZE", ring_size.as_str())];
        let library = everycall_kit::library_with_settings(&settings)
            .ok_or_else(|| InjectError::Refused("the runtime has no room for its settings".to_owned()))?;
        // Without a cache folder, debuggers find no file of this name.
        let name = everycall_kit::unpack().unwrap_or_default().join(everycall_kit::PRELOAD_LIBRARY);
        let start = process.with_calm_thread(PATIENCE, |thread| thread.load_library(&library, &name))?;
        let runtime = Runtime::at(&process, start)?
            .ok_or_else(|| InjectError::Refused(format!("process {pid} has not loaded the runtime")))?;
        super::watch(&mut process, &runtime)?;
        hook_again(&mut process, &planned, &[], Some(&runtime))
    })
    .map_err(failed)?;
    for (file, hooked) in planned.iter().zip(hooked) {
        say!(
            "everycall: {}: {} {} of {}",
            file.path.display(),
            if start == Start::On { "recording" } else { "hooks in" },
            Count(hooked),
            Several(file.functions, "function", "functions")
        );
        let others = file.planned().saturating_sub(hooked);
        if others > 0 && region_of(file, &there).is_some() {
            say!(
                "everycall: {}: {} more got no hooks when it was attached first, and get none now",
                file.path.display(),
                Several(others, "function", "functions")
            );
        }
    }
    Ok(())
}

/// Makes the code of a process what it was.
pub fn unhook(number: u32) -> Result<(), Failure> {
    let pid = number.cast_signed();
    check(pid).map_err(failed)?;
    let there = modules_of(number);
    if there.is_empty() {
        return Err(failed(format!("process {pid} has no hooks that `everycall attach` wrote")));
    }
    let all = Functions { least_size: 0, selection: None, always: &[], are_others_kept: false };
    let maps = mappings(pid).map_err(failed)?;
    let planned: Result<Vec<Planned>, Failure> = there
        .iter()
        .map(|there| {
            let path = &there.path;
            plan(path, &all, &maps).map_err(|why| failed(format!("{}: {why}", path.display())))
        })
        .collect();
    let planned = planned?;
    on_tracer(|| {
        let mut process = Process::open(pid)?;
        lead_back(&mut process, &planned, &there)?;
        lead_leaving(&mut process, Lead::Back, PATIENCE)
    })
    .map_err(failed)
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

/// A module of a process that has trampolines.
struct There {
    path: PathBuf,
    region: u64,
    /// Image addresses at which hooks stand.
    origins: HashSet<u64>,
}

/// The modules of a process that have trampolines.
fn modules_of(pid: u32) -> Vec<There> {
    let Ok(arena) = everycall_live::attach(pid) else { return Vec::new() };
    let is_one = |entry: &ModuleEntry| {
        entry.state == module_state::COMPLETE
            && entry.unloaded_ticks == 0
            && entry.flags & module_flags::TRAMPOLINES != 0
    };
    let modules = arena.modules().into_iter().filter(|(entry, _)| is_one(entry));
    let there = modules.map(|(entry, path)| There {
        path: PathBuf::from(OsStr::from_bytes(&path)),
        region: entry.start,
        origins: arena.origins(entry.trampolines),
    });
    there.collect()
}

/// The runtime that was loaded into a process.
fn runtime_of(process: &Process) -> Result<Option<Runtime>, InjectError> {
    let maps = mappings(process.pid())?;
    let mut names: Vec<&str> = maps.iter().map(|mapping| mapping.name.as_str()).collect();
    names.retain(|name| name.starts_with("/memfd:"));
    names.dedup();
    for name in names {
        if let Some(start) = first_page(&maps, Path::new(name))
            && let Some(runtime) = Runtime::at(process, start)?
        {
            return Ok(Some(runtime));
        }
    }
    Ok(None)
}

/// Leads files of which a process has trampolines there, and writes hooks into the others.
fn hook_again(
    process: &mut Process,
    planned: &[Planned],
    there: &[There],
    runtime: Option<&Runtime>,
) -> Result<Vec<u64>, InjectError> {
    let hook = |file: &Planned| match (region_of(file, there), runtime) {
        (Some(there), _) => {
            file.lead_again(process, there.region, &there.origins, Lead::ToTrampolines, PATIENCE)
        }
        (None, None) => Ok(0),
        (None, Some(runtime)) => match file.install(process, runtime, PATIENCE) {
            Err(error) if error.is_taken() => {
                say!("everycall: {}: not recorded: memory near it is taken", file.path.display());
                Ok(0)
            }
            hooked => hooked,
        },
    };
    planned.iter().map(hook).collect()
}

fn region_of<'t>(file: &Planned, there: &'t [There]) -> Option<&'t There> {
    there.iter().find(|there| there.path == file.path)
}

/// Leads the code of files back.
fn lead_back(process: &mut Process, planned: &[Planned], there: &[There]) -> Result<(), InjectError> {
    for file in planned {
        if let Some(there) = region_of(file, there) {
            file.lead_again(process, there.region, &there.origins, Lead::Back, PATIENCE)?;
        }
    }
    Ok(())
}
