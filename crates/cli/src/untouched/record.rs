//! `everycall record --untouched`: records a program that was built without everycall.
//!
//! The runtime is preloaded. The program is started under ptrace and stopped at its entry point.
//! There, hooks and trampolines are mapped and registered with the runtime, and its code is led to
//! them; then it runs untraced.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use everycall_inject::{InjectError, Process, mappings};
use everycall_io::say;
use everycall_kit::PRELOAD_LIBRARY;
use everycall_recorder::find_program;
use everycall_triggers::Trampolines;
use everycall_units::{Count, Several};
use everycall_untouched::{Planned, Runtime, libraries, may_have_libraries};

use super::{Choice, PATIENCE, is_script};
use crate::arguments::RecordArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::preload::kit_library;
use crate::program::{self, Prospect};

/// Whether libraries of a program may get hooks.
fn brings_libraries(arguments: &RecordArguments, program: &Path) -> bool {
    !arguments.as_is.modules.is_empty() || may_have_libraries(program)
}

/// A program that is to be recorded as it is.
pub struct Untouched {
    executable: Planned,
    modules: Vec<String>,
    choice: Choice,
    /// The runtime's library.
    library: PathBuf,
    quiet: bool,
    trampolines: Trampolines,
    brings_libraries: bool,
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

    /// Refuses options that don't go with it.
    pub fn refuse_options(arguments: &RecordArguments) -> Result<(), Failure> {
        let given = [(arguments.launcher, "--launcher"), (arguments.preload, "--preload")];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Failure::new(
                exit_code::USAGE,
                format!(
                    "--untouched doesn't go with {option} yet: leave out one of them, or build the program with everycall cc"
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
        let unmatched = choice.without_match(&[&executable]).into_iter().next();
        if let Some(sentence) = unmatched.filter(|_| !brings_libraries(arguments, &path)) {
            return Err(refused(sentence));
        }
        Ok(Untouched {
            executable,
            modules: arguments.as_is.modules.clone(),
            choice,
            library: kit_library(PRELOAD_LIBRARY)?,
            quiet: arguments.quiet,
            trampolines,
            brings_libraries: brings_libraries(arguments, &path),
        })
    }

    /// For a program that is recorded as it is: its file, and whether its libraries are, too.
    pub fn looked_through(arguments: &RecordArguments) -> Option<(PathBuf, bool)> {
        let program = arguments.command.first().filter(|_| arguments.as_is.untouched)?;
        let path = find_program(program)?;
        let path = path.canonicalize().unwrap_or(path);
        let brings_libraries = brings_libraries(arguments, &path);
        Some((path, brings_libraries))
    }

    /// Starts the program, with hooks if that is possible.
    pub fn start(&self, command: Command) -> io::Result<Child> {
        let (child, hooked) = super::start(command, |process| self.hook(process))?;
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
        super::watch(process, &runtime)?;
        self.install(process, &self.executable, &runtime)?;
        let maps = mappings(process.pid())?;
        let functions = self.choice.functions();
        let mut others = Vec::new();
        for path in libraries(&maps, &self.executable.path, &self.modules) {
            if path == self.library {
                continue;
            }
            match Planned::of(&path, &functions) {
                Ok(planned) => {
                    super::say_refused(&planned);
                    match self.install(process, &planned, &runtime) {
                        Err(error) if error.is_taken() => say!(
                            "everycall: {}: not recorded: memory near it is taken by other libraries",
                            path.display()
                        ),
                        result => result?,
                    }
                    others.push(planned);
                }
                Err(why) => say!("everycall: {}: not recorded: {why}", path.display()),
            }
        }
        // If it has no others, this was found out before the start.
        if self.brings_libraries {
            let all: Vec<&Planned> = [&self.executable].into_iter().chain(&others).collect();
            for sentence in self.choice.without_match(&all) {
                say!("everycall: {sentence}");
            }
        }
        Ok(())
    }

    fn install(
        &self,
        process: &mut Process,
        planned: &Planned,
        runtime: &Runtime,
    ) -> Result<(), InjectError> {
        let (number, functions) = planned.trampolines();
        self.trampolines.add(number, functions);
        let hooked = planned.install(process, runtime, PATIENCE)?;
        if !self.quiet {
            let small = match planned.small {
                0 => String::new(),
                small => format!(
                    "; {} of less than {} bytes are left out (--all records them)",
                    Count(small),
                    self.choice.least_size
                ),
            };
            say!(
                "everycall: {}: recording {} of {}{small}",
                planned.path.display(),
                Count(hooked),
                Several(planned.functions, "function", "functions")
            );
        }
        Ok(())
    }
}
