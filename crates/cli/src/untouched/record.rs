//! `everycall record --untouched`: records a program that was built without everycall.
//!
//! The runtime is preloaded. The program is started under ptrace and stopped at its entry point.
//! There, hooks and trampolines are mapped and registered with the runtime, and its code is led to
//! them; then it runs untraced.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use everycall_inject::{InjectError, Process, mappings, on_tracer};
use everycall_io::say;
use everycall_kit::PRELOAD_LIBRARY;
use everycall_patterns::Selection;
use everycall_recorder::find_program;
use everycall_units::{Count, Several};
use everycall_untouched::{Functions, Planned, Runtime, libraries};

use crate::arguments::RecordArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::preload::kit_library;
use crate::program::{self, Prospect};

/// For a program to get to its entry point, and for each step there. Libraries initialise
/// themselves meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// Functions of fewer bytes are left out by default, so that programs take less than twice their time:
/// measured with Python and SQLite (docs/untouched.md).
pub const LEAST_SIZE: u64 = 512;

/// A program that is to be recorded as it is.
pub struct Untouched {
    executable: Planned,
    modules: Vec<String>,
    selection: Option<Selection>,
    least_size: u64,
    /// The runtime's library.
    library: PathBuf,
    quiet: bool,
}

impl Untouched {
    /// Says why a program can't be recorded in this way.
    pub fn refuse(program: &OsStr) -> Result<(), Failure> {
        let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, why);
        let Some(path) = find_program(program) else { return Ok(()) };
        let shown = path.display();
        let mut begin = [0; 2];
        if File::open(&path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *b"#!" {
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
        let is_alone = !arguments.preload && !arguments.launcher && arguments.triggers.trigger.is_empty();
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
        let given = [
            (!arguments.triggers.trigger.is_empty(), "--trigger"),
            (arguments.launcher, "--launcher"),
            (arguments.preload, "--preload"),
        ];
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

    /// Plans the program, before it is started.
    pub fn prepare(arguments: &RecordArguments) -> Result<Untouched, Failure> {
        let refused = |why: String| Failure::new(exit_code::NOT_RECORDED, why);
        let program = arguments.command.first().and_then(|program| find_program(program)).unwrap_or_default();
        let path = program.canonicalize().unwrap_or(program);
        let given = &arguments.functions;
        let is_chosen = !given.only.is_empty() || !given.not.is_empty();
        let selection = is_chosen.then(|| Selection::of_options(&given.only, &given.not)).transpose();
        let selection = selection.map_err(|error| Failure::new(exit_code::USAGE, error.to_string()))?;
        // Who names functions means those.
        let least_size = if arguments.as_is.all || !given.only.is_empty() { 0 } else { LEAST_SIZE };
        let functions = Functions { least_size, selection: selection.as_ref() };
        let executable = Planned::of(&path, &functions)
            .map_err(|error| refused(format!("{}: {error}", path.display())))?;
        Ok(Untouched {
            executable,
            modules: arguments.as_is.modules.clone(),
            selection,
            least_size,
            library: kit_library(PRELOAD_LIBRARY)?,
            quiet: arguments.quiet,
        })
    }

    /// Starts the program, with hooks if that is possible.
    pub fn start(&self, command: Command) -> io::Result<Child> {
        let result = on_tracer(|| {
            let started = everycall_inject::start(command, PATIENCE)?;
            let hooked = started.process.and_then(|mut process| self.hook(&mut process));
            Ok((started.child, hooked))
        });
        let (child, hooked) = result.map_err(|error| match error {
            InjectError::System { error, .. } => error,
            error => io::Error::other(error.to_string()),
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
        self.install(process, &self.executable, &runtime)?;
        let maps = mappings(process.pid())?;
        let functions = Functions { least_size: self.least_size, selection: self.selection.as_ref() };
        for path in libraries(&maps, &self.executable.path, &self.modules) {
            if path == self.library {
                continue;
            }
            match Planned::of(&path, &functions) {
                Ok(planned) => match self.install(process, &planned, &runtime) {
                    Err(error) if error.is_taken() => say!(
                        "everycall: {}: not recorded: memory near it is taken by other libraries",
                        path.display()
                    ),
                    result => result?,
                },
                Err(why) => say!("everycall: {}: not recorded: {why}", path.display()),
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
        let hooked = planned.install(process, runtime, PATIENCE)?;
        if !self.quiet {
            let small = match planned.small {
                0 => String::new(),
                small => format!(
                    "; {} of less than {} bytes are left out (--all records them)",
                    Count(small),
                    self.least_size
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
