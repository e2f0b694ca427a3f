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
    Functions, Installed, Lead, Planned, Runtime, first_page, installed, lead_leaving, lead_loading_back,
    libraries,
};

use crate::exit_code;
use crate::failure::Failure;
use crate::rules::nothing_named;
use crate::running::Program;

use super::Choice;

/// For a thread that may load the runtime, and for each stop of all threads.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn failed(why: impl ToString) -> Failure {
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

/// Whether the hooks of a process were written while it ran.
pub fn has_written_hooks(pid: u32) -> bool {
    !modules_of(pid).is_empty()
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
        let small = match file.small {
            0 => String::new(),
            small => {
                // Other verbs than `attach` have no such option.
                let more = if start == Start::On { " (--all takes them)" } else { "" };
                format!("; {} of less than {} bytes are left out{more}", Count(small), choice.least_size)
            }
        };
        say!(
            "everycall: {}: {} {} of {}{small}",
            file.path.display(),
            if start == Start::On { "recording" } else { "hooks in" },
            Count(hooked),
            Several(file.functions, "function", "functions")
        );
        let others = file.planned().saturating_sub(hooked);
        if others > 0 && region_of(file, &there, &maps).is_some() {
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
    let mut there = modules_of(number);
    if there.is_empty() {
        return Err(failed(format!("process {pid} has no hooks that `everycall attach` wrote")));
    }
    let all = Functions { least_size: 0, selection: None, always: &[], are_others_kept: false };
    let maps = mappings(pid).map_err(failed)?;
    // Libraries that were unloaded have taken their hooks along.
    there.retain(|there| there.is_loaded(&maps));
    let (mut planned, mut why_not) = (Vec::new(), None);
    for module in &there {
        let path = &module.path;
        match plan(path, &all, &maps) {
            Ok(file) => planned.push(file),
            Err(why) => why_not = Some(failed(format!("{}: keeps its hooks: {why}", path.display()))),
        }
    }
    on_tracer(|| {
        let mut process = Process::open(pid)?;
        lead_loading_back(&mut process, PATIENCE)?;
        for file in &planned {
            for there in there.iter().filter(|there| there.path == file.path) {
                let installed = &there.installed;
                file.lead_again(&mut process, installed, &there.origins, Lead::Back, PATIENCE)?;
            }
        }
        match why_not {
            // Calls that are left have to end in what is recorded yet.
            Some(_) => Ok(()),
            None => lead_leaving(&mut process, Lead::Back, PATIENCE),
        }
    })
    .map_err(failed)?;
    why_not.map_or(Ok(()), Err)
}

/// Plans a file that the process has mapped, if it is still the one at its path.
pub(super) fn plan(path: &Path, functions: &Functions<'_>, maps: &[Mapping]) -> Result<Planned, String> {
    use std::os::unix::fs::MetadataExt as _;
    let mapped = maps.iter().find(|mapping| Path::new(&mapping.name) == path);
    let is_same = std::fs::metadata(path).is_ok_and(|now| mapped.is_some_and(|it| it.inode == now.ino()));
    if !is_same {
        return Err("was deleted or replaced since it was loaded".to_owned());
    }
    Planned::of(path, functions)
}

/// A module of a process that has trampolines.
pub(super) struct There {
    path: PathBuf,
    /// Where it was loaded, and its region.
    installed: Installed,
    /// Image addresses at which hooks stand.
    origins: HashSet<u64>,
}

impl There {
    /// Whether the module is still where its trampolines lead to.
    fn is_loaded(&self, maps: &[Mapping]) -> bool {
        first_page(maps, &self.path) == Some(self.installed.module)
    }
}

/// The modules that a process has or had, with trampolines.
pub(super) fn modules_of(pid: u32) -> Vec<There> {
    let Ok(arena) = everycall_live::attach(pid) else { return Vec::new() };
    let regions = on_tracer(|| installed(&Process::open(pid.cast_signed())?)).unwrap_or_default();
    let is_one = |entry: &ModuleEntry| {
        entry.state == module_state::COMPLETE
            && entry.unloaded_ticks == 0
            && entry.flags & module_flags::TRAMPOLINES != 0
    };
    let modules = arena.modules().into_iter().filter(|(entry, _)| is_one(entry));
    let there = modules.filter_map(|(entry, path)| {
        let installed = *regions.iter().find(|region| region.region == entry.start)?;
        let path = PathBuf::from(OsStr::from_bytes(&path));
        Some(There { path, installed, origins: arena.origins(entry.trampolines) })
    });
    there.collect()
}

/// The runtime that was loaded into a process.
pub(super) fn runtime_of(process: &Process) -> Result<Option<Runtime>, InjectError> {
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
pub(super) fn hook_again(
    process: &mut Process,
    planned: &[Planned],
    there: &[There],
    runtime: Option<&Runtime>,
) -> Result<Vec<u64>, InjectError> {
    let maps = mappings(process.pid())?;
    let hook = |file: &Planned| match (region_of(file, there, &maps), runtime) {
        (Some(there), _) => {
            file.lead_again(process, &there.installed, &there.origins, Lead::ToTrampolines, PATIENCE)
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

/// The region of a file where it is loaded now: the one that its code leads to, or one that it
/// could lead to. A library may have been unloaded, and loaded again elsewhere, or another one in
/// its place.
fn region_of<'t>(file: &Planned, there: &'t [There], maps: &[Mapping]) -> Option<&'t There> {
    let mut its = there.iter().filter(|there| there.path == file.path && there.is_loaded(maps));
    let led = its.clone().find(|there| there.installed.is_led);
    led.or_else(|| its.find(|there| file.has_made(&there.installed, &there.origins)))
}
