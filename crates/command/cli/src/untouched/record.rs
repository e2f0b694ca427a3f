//! `everycall record --untouched`: records a program that was built without everycall.
//!
//! The runtime is preloaded. The program is started under ptrace and stopped at its entry point.
//! There, hooks and trampolines are mapped and registered with the runtime, and its code is led to
//! them; then it runs untraced. Programs that it executes, and libraries that are loaded later, get
//! hooks when the runtime asks for them.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use everycall_inject::{InjectError, Process, mappings, on_tracer};
use everycall_io::say;
use everycall_kit::PRELOAD_LIBRARY;
use everycall_recorder::find_program;
use everycall_triggers::Trampolines;
use everycall_units::{Count, Several};
use everycall_untouched::{
    Installed, Lead, Planned, Runtime, first_page, has_own_hooks, installed, libraries, may_have_libraries,
    watch_leaving, watch_loading,
};

use super::{Choice, PATIENCE, is_script};

/// For each step in a process that waits for its hooks.
const SOON: Duration = Duration::from_secs(5);
use crate::arguments::RecordArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::recording::preload::kit_library;
use crate::recording::program::{self, Prospect};

/// Files whose plans are kept: for programs that are executed often.
const FILES_KEPT: usize = 32;

/// Whether other files than the program may get hooks: libraries, and programs that it executes.
fn brings_others(arguments: &RecordArguments, program: &Path) -> bool {
    let starts_others =
        !arguments.no_follow && matches!(program::look_at(program.as_os_str()), Prospect::Launcher);
    starts_others || !arguments.as_is.modules.is_empty() || may_have_libraries(program)
}

/// A program that is to be recorded as it is.
pub struct Untouched {
    executable: Arc<Planned>,
    modules: Vec<String>,
    choice: Choice,
    /// The runtime's library.
    library: PathBuf,
    quiet: bool,
    trampolines: Trampolines,
    brings_others: bool,
    /// The program is at its entry point: it may ask from now on.
    is_started: AtomicBool,
    files: Mutex<VecDeque<File>>,
    said: Mutex<HashSet<String>>,
}

/// A file that was planned.
struct File {
    path: PathBuf,
    changed: Option<SystemTime>,
    /// `None` if it gets no hooks.
    planned: Option<Arc<Planned>>,
}

/// When a file was changed.
fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

impl Untouched {
    /// Says why a program can't be recorded in this way.
    pub fn refuse(program: &OsStr) -> Result<(), Failure> {
        let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, why);
        let Some(path) = find_program(program) else { return Ok(()) };
        let shown = path.display();
        if is_script(&path) {
            return Err(refused(format!(
                "{shown} is a script; name the program that runs it, as in: everycall record --untouched -- python3 {shown}"
            )));
        }
        if program::is_static(program) {
            return Err(refused(format!(
                "{shown} is linked statically, and --untouched loads a library into the program; `everycall count --untouched` \
                 counts its calls, or build it with everycall cc"
            )));
        }
        if program::is_privileged(program) {
            return Err(refused(format!(
                "{shown} has setuid, setgid or capabilities, which it would lose by being traced at its start; take a copy without them"
            )));
        }
        everycall_inject::check_start().map_err(|error| refused(error.to_string()))
    }

    /// Whether a program without hooks can be recorded in this way, and nothing else is asked for.
    pub fn is_due(arguments: &RecordArguments) -> bool {
        let Some(program) = arguments.command.first() else { return false };
        let is_alone = !arguments.preload && !arguments.launcher;
        let is_due = is_alone
            && matches!(program::look_at(program), Prospect::Plain(_))
            && Untouched::refuse(program).is_ok();
        if is_due && !arguments.quiet {
            say!("everycall: {} was built without everycall, so it is recorded as it is", program.display());
        }
        is_due
    }

    /// The options by which it was asked for, as text.
    pub fn asked_by(arguments: &RecordArguments) -> String {
        let as_is = &arguments.as_is;
        let options =
            [(as_is.is_given, "--untouched"), (as_is.all, "--all"), (!as_is.modules.is_empty(), "--modules")];
        let given: Vec<&str> =
            options.iter().filter(|(is_given, _)| *is_given).map(|(_, option)| *option).collect();
        given.join(" and ")
    }

    /// Refuses options that don't go with it.
    pub fn refuse_options(arguments: &RecordArguments) -> Result<(), Failure> {
        let given = [(arguments.launcher, "--launcher"), (arguments.preload, "--preload")];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Failure::new(
                exit_code::USAGE,
                format!(
                    "{} doesn't go with {option} yet: leave out one of them, or build the program with everycall cc",
                    Untouched::asked_by(arguments)
                ),
            )),
            None => Ok(()),
        }
    }

    /// Plans the program, before it is started. Functions with hooks are added to `trampolines`.
    pub fn prepare(arguments: &RecordArguments, trampolines: Trampolines) -> Result<Untouched, Failure> {
        let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, why);
        let program = arguments.command.first().and_then(|program| find_program(program)).unwrap_or_default();
        let path = program.canonicalize().unwrap_or(program);
        let choice = Choice::of(&arguments.functions, arguments.as_is.all, &arguments.triggers.trigger)?
            .with_values(&arguments.values);
        let executable = Planned::of(&path, &choice.functions())
            .map_err(|error| refused(format!("{}: {error}", path.display())))?;
        super::say_refused(&executable);
        let executable = Arc::new(executable);
        let unmatched = choice.without_match(&[&executable]).into_iter().next();
        if let Some(sentence) = unmatched.filter(|_| !brings_others(arguments, &path)) {
            return Err(refused(sentence));
        }
        Ok(Untouched {
            files: Mutex::new(VecDeque::from([File {
                changed: changed(&path),
                path: path.clone(),
                planned: Some(Arc::clone(&executable)),
            }])),
            said: Mutex::default(),
            is_started: AtomicBool::new(false),
            executable,
            modules: arguments.as_is.modules.clone(),
            choice,
            library: kit_library(PRELOAD_LIBRARY)?,
            quiet: arguments.quiet,
            trampolines,
            brings_others: brings_others(arguments, &path),
        })
    }

    /// For a program that is recorded as it is: its file, and whether others may be, too.
    pub fn looked_through(arguments: &RecordArguments) -> Option<(PathBuf, bool)> {
        let program = arguments.command.first().filter(|_| arguments.as_is.untouched)?;
        let path = find_program(program)?;
        let path = path.canonicalize().unwrap_or(path);
        let brings_others = brings_others(arguments, &path);
        Some((path, brings_others))
    }

    /// Starts the program, with hooks if that is possible.
    pub fn start(&self, command: Command) -> io::Result<Child> {
        let (child, hooked) = super::start(command, |process| {
            let hooked = self.hook(process);
            self.is_started.store(true, Ordering::Release);
            hooked
        })?;
        if let Err(error) = hooked {
            say!("everycall: the program runs without hooks: {error}");
        }
        Ok(child)
    }

    fn hook(&self, process: &mut Process) -> Result<(), InjectError> {
        let link = format!("/proc/{}/exe", process.pid());
        let failed = |error| InjectError::System { what: "looking at the program's file", error };
        let metadata = std::fs::metadata(&link).map_err(failed)?;
        if !self.executable.is_file(&metadata) {
            return Err(InjectError::Refused(format!(
                "{} was replaced while it was started",
                self.executable.path.display()
            )));
        }
        let Some(runtime) = Runtime::find(process, &self.library)? else {
            return Err(InjectError::Refused(format!("{} wasn't loaded into it", self.library.display())));
        };
        self.hook_all(process, &runtime, &self.executable.path, PATIENCE)
    }

    /// Writes hooks into a process that has executed another program, or loaded libraries.
    pub fn hook_more(&self, pid: u32) {
        if !self.is_started.load(Ordering::Acquire) {
            return;
        }
        let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { return };
        let hooked = on_tracer(|| {
            let mut process = Process::open(pid.cast_signed())?;
            match Runtime::find(&process, &self.library)? {
                Some(runtime) => self.hook_all(&mut process, &runtime, &program, SOON),
                None => Ok(()),
            }
        });
        match hooked {
            // Programs may end at any time.
            Ok(()) | Err(InjectError::Ended { .. }) => {}
            Err(error) => self.say_once(format!("{}: not all is recorded: {error}", program.display())),
        }
    }

    /// Writes hooks into the files of a process that get some, and have none yet.
    fn hook_all(
        &self,
        process: &mut Process,
        runtime: &Runtime,
        program: &Path,
        patience: Duration,
    ) -> Result<(), InjectError> {
        // Before calls are recorded, which may be left.
        for (path, why) in watch_leaving(process, runtime, patience)? {
            self.say_once(super::not_watched(&path, &why));
        }
        if let Err(why) = watch_loading(process, runtime, patience)? {
            self.say_once(format!("libraries that are loaded later aren't recorded: {why}"));
        }
        let there = installed(process)?;
        let maps = mappings(process.pid())?;
        let others = libraries(&maps, program, &self.modules);
        let own = self.library.parent();
        for path in [program].into_iter().chain(others.iter().map(PathBuf::as_path)) {
            let start = first_page(&maps, path);
            let regions: Vec<&Installed> =
                there.iter().filter(|region| Some(region.module) == start).collect();
            if path.parent() == own || regions.iter().any(|region| region.is_led) {
                continue;
            }
            let Some(file) = self.file(path) else { continue };
            let hooked = match regions.iter().find(|region| file.is_of(region)) {
                Some(region) => {
                    let (to, origins) = (Lead::ToTrampolines, file.origins());
                    file.lead_again(process, region, &origins, to, patience)
                }
                None => self.install(process, &file, runtime, patience),
            };
            match hooked {
                Err(error) if error.is_taken() => self.say_once(format!(
                    "{}: not recorded: memory near it is taken by other libraries",
                    path.display()
                )),
                result => self.say_hooked(&file, result?),
            }
        }
        Ok(())
    }

    fn install(
        &self,
        process: &mut Process,
        planned: &Planned,
        runtime: &Runtime,
        patience: Duration,
    ) -> Result<u64, InjectError> {
        if planned.planned() == 0 {
            return Ok(0);
        }
        let (number, functions) = planned.trampolines();
        self.trampolines.add(number, functions);
        planned.install(process, runtime, patience)
    }

    /// The plan of a file; `None` if it gets no hooks.
    fn file(&self, path: &Path) -> Option<Arc<Planned>> {
        let changed = changed(path);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let known = files.iter().position(|file| file.path == path && file.changed == changed);
        if let Some(file) = known.and_then(|known| files.remove(known)) {
            let planned = file.planned.clone();
            files.push_back(file);
            return planned;
        }
        // A file with hooks of its own is recorded by those.
        let planned = if has_own_hooks(path) {
            None
        } else {
            match Planned::of(path, &self.choice.functions()) {
                Ok(planned) => {
                    super::say_refused(&planned);
                    Some(Arc::new(planned))
                }
                Err(why) => {
                    self.say_once(format!("{}: not recorded: {why}", path.display()));
                    None
                }
            }
        };
        if files.len() >= FILES_KEPT {
            files.pop_front();
        }
        files.push_back(File { path: path.to_owned(), changed, planned: planned.clone() });
        planned
    }

    /// Says how many functions of a file are recorded, the first time.
    fn say_hooked(&self, planned: &Planned, hooked: u64) {
        if self.quiet {
            return;
        }
        let small = match planned.small {
            0 => String::new(),
            small => format!(
                "; {} of less than {} bytes are left out (--all records them)",
                Count(small),
                self.choice.least_size
            ),
        };
        self.say_once(format!(
            "{}: recording {} of {}{small}",
            planned.path.display(),
            Count(hooked),
            Several(planned.functions, "function", "functions")
        ));
    }

    fn say_once(&self, sentence: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&sentence) {
            say!("everycall: {sentence}");
            said.insert(sentence);
        }
    }

    /// At the program's end: says which options match no function.
    pub fn say_without_match(&self) {
        // If there are no others, this was found out before the start.
        if !self.brings_others {
            return;
        }
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let planned: Vec<&Planned> = files.iter().filter_map(|file| file.planned.as_deref()).collect();
        for sentence in self.choice.without_match(&planned) {
            say!("everycall: {sentence}");
        }
    }
}
