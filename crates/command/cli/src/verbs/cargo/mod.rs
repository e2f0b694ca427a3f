//! `everycall cargo VERB`: cargo builds so that the workspace's functions call hooks, and what it
//! runs is recorded. docs/design/rust.md says how; the wrapper of rustc is in `everycall_compiler`.
//!
//! ```text
//! arguments  what of cargo's arguments matters here
//! options    which options are ours: those of `record`, and those of this verb alone
//! project    what cargo says of the project: members, folders, wrappers
//! ```

mod arguments;
mod options;
mod project;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, fs, io};

use everycall_compiler::{CRATES_VARIABLE, INNER_VARIABLE, RustCrates, START_VARIABLE, Start, Toolbox};
use everycall_io::say;

use crate::arguments::CargoArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::this_program::this_program;
use arguments::{Request, Verb};
use project::Project;

/// The file in our target folder that says which everycall built what is in it.
const STAMP: &str = "everycall-version";

/// Runs the verb.
pub fn run(arguments: CargoArguments) -> Result<ExitCode, Failure> {
    let request = Request::read(&arguments.record.command).map_err(usage)?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let project = Project::ask(&cargo, &request)?;
    let build = Build::new(cargo, &arguments, &request, &project)?;
    let options = record_options(&arguments, &request);
    match request.verb {
        Verb::Build => {
            let status = build.wait(build.cargo("build", &request.args))?;
            if status.success() && !arguments.record.quiet {
                say_what_next(&build, &request, &project);
            }
            Ok(crate::recording::ended::end_as(status))
        }
        Verb::Run => build.become_run(&request, &project, options),
        Verb::Test | Verb::Bench => {
            let status = build.wait(build.cargo(request.verb.name(), &request.without_running()))?;
            if !status.success() {
                return Ok(crate::recording::ended::end_as(status));
            }
            let has_output = request.output.is_some() || arguments.record.output.is_some();
            build.become_recorded(&request, options, has_output)
        }
    }
}

fn usage(sentence: String) -> Failure {
    Failure::new(exit_code::USAGE, sentence)
}

/// How cargo is run.
struct Build {
    cargo: OsString,
    this: PathBuf,
    target: PathBuf,
    wrapper: PathBuf,
    inner: Option<OsString>,
    crates: RustCrates,
    start: Start,
    /// Variables for build scripts, with their compilers.
    compilers: Vec<(&'static str, PathBuf)>,
}

impl Build {
    fn new(
        cargo: OsString,
        arguments: &CargoArguments,
        request: &Request,
        project: &Project,
    ) -> Result<Build, Failure> {
        let failed = |error: io::Error| Failure::new(exit_code::FAILED, error.to_string());
        let toolbox = Toolbox::open().map_err(failed)?;
        let kit = everycall_kit::unpack().map_err(failed)?;
        let mut names = arguments.crates.clone();
        names.sort();
        let crates = RustCrates { all: arguments.all, folders: project.folders.clone(), names };
        let target = project.target.join(folder_name(&crates, arguments.start));
        let wrapper = toolbox.rustc_wrapper();
        if !request.has_target_folder {
            let version = format!("{}\n{}\n", kit.display(), wrapper.display());
            renew(&target, &version).map_err(failed)?;
        }
        let inner = project::rustc_wrapper(&cargo);
        let mut compilers = everycall_compiler::compilers(&toolbox).map_err(failed)?;
        // The project's own choice stays.
        compilers.retain(|(variable, _)| env::var_os(variable).is_none());
        Ok(Build {
            cargo,
            this: this_program()?,
            target,
            wrapper,
            inner,
            crates,
            start: arguments.start,
            compilers,
        })
    }

    /// A command whose builds are traced.
    fn prepared(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command
            .env("RUSTC_WRAPPER", &self.wrapper)
            .env("CARGO_TARGET_DIR", &self.target)
            // The list of functions belongs to a whole crate.
            .env("CARGO_INCREMENTAL", "0")
            .envs(self.compilers.iter().map(|(variable, program)| (variable, program)))
            .env(CRATES_VARIABLE, self.crates.to_text())
            .env(START_VARIABLE, if self.start == Start::Off { "off" } else { "on" })
            .env(INNER_VARIABLE, self.inner.as_deref().unwrap_or_default());
        command
    }

    fn cargo(&self, verb: &str, args: &[OsString]) -> Command {
        let mut command = self.prepared(&self.cargo);
        command.arg(verb).args(args);
        command
    }

    fn wait(&self, mut command: Command) -> Result<ExitStatus, Failure> {
        command.status().map_err(|error| self.not_run(&error))
    }

    /// Becomes cargo, which builds the program and runs it by `everycall record`.
    fn become_run(
        &self,
        request: &Request,
        project: &Project,
        options: Vec<OsString>,
    ) -> Result<ExitCode, Failure> {
        let target = request.target.as_ref().unwrap_or(&project.host);
        let theirs = project::runner(&self.cargo, target);
        let mut runner = vec![self.this.clone().into_os_string(), "record".into()];
        runner.extend(options);
        runner.extend((!theirs.is_empty()).then(|| "--launcher".into()));
        runner.push("--".into());
        runner.extend(theirs.into_iter().map(OsString::from));
        let words: Result<Vec<String>, OsString> = runner.into_iter().map(OsString::into_string).collect();
        let words =
            words.map_err(|word| usage(format!("{} is not UTF-8, as cargo needs it", word.display())))?;
        // An array of strings is the same in JSON and TOML.
        let runner = serde_json::Value::from(words).to_string();
        let mut command = self.prepared(&self.cargo);
        command
            .arg("--config")
            .arg(format!("target.{target}.runner={runner}"))
            .arg("run")
            .args(&request.args);
        let error = command.exec();
        Err(self.not_run(&error))
    }

    /// Becomes `everycall record`, with cargo and all that it runs in one file. `has_output`: the
    /// options name it.
    fn become_recorded(
        &self,
        request: &Request,
        options: Vec<OsString>,
        has_output: bool,
    ) -> Result<ExitCode, Failure> {
        let verb = request.verb.name();
        let mut command = self.prepared(&self.this);
        command.arg("record").args(options);
        if !has_output {
            command.arg("-o").arg(format!("{verb}.ect"));
        }
        command.arg("--launcher").arg("--").arg(&self.cargo).arg(verb).args(&request.args);
        let error = command.exec();
        Err(self.not_run(&error))
    }

    fn not_run(&self, error: &io::Error) -> Failure {
        Failure::new(
            exit_code::FAILED,
            format!("`{}` couldn't be run: {error}; install Rust's cargo", self.cargo.display()),
        )
    }
}

/// Name of the folder for builds with these crates traced: cargo doesn't know of the choice, so
/// each has one.
fn folder_name(crates: &RustCrates, start: Start) -> String {
    let name = match (crates.all, crates.names.is_empty()) {
        (true, _) => "everycall-all".to_owned(),
        (false, true) => "everycall".to_owned(),
        (false, false) => format!("everycall-with-{}", crates.names.join("-")),
    };
    if start == Start::Off { name + "-start-off" } else { name }
}

/// Empties our target folder if another version of everycall built what is in it: cargo would not
/// build it again for that.
fn renew(target: &Path, version: &str) -> io::Result<()> {
    let stamp = target.join(STAMP);
    match fs::read_to_string(&stamp) {
        Ok(there) if there == version => return Ok(()),
        Ok(_) => fs::remove_dir_all(target)?,
        Err(_) => {}
    }
    fs::create_dir_all(target)?;
    fs::write(stamp, version)
}

/// The options of `record` as they were given, before cargo's verb and after it.
fn record_options(arguments: &CargoArguments, request: &Request) -> Vec<OsString> {
    // Behind the command's own name and `cargo`, before the verb and what follows it.
    let words: Vec<OsString> = env::args_os().skip(2).collect();
    let before = words.len().saturating_sub(arguments.record.command.len());
    let mut options = without_own(words.into_iter().take(before));
    options.extend(request.output.iter().flat_map(|file| ["-o".into(), file.clone()]));
    options
}

/// Removes the options of this verb that `record` doesn't have.
fn without_own(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let own = options::own();
    let mut rest = words;
    let mut kept = Vec::new();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        let (name, is_joined) = text.split_once('=').map_or((&*text, false), |(name, _)| (name, true));
        match own.iter().find(|option| option.name == name) {
            Some(option) if option.takes_value && !is_joined => _ = rest.next(),
            Some(_) => {}
            None if word == "--" => {}
            None => kept.push(word),
        }
    }
    kept
}

fn say_what_next(build: &Build, request: &Request, project: &Project) {
    let folder = match (&request.target, request.has_target_folder) {
        (_, true) => return,
        (Some(target), false) => build.target.join(target),
        (None, false) => build.target.clone(),
    };
    let program = match &project.programs[..] {
        [program] => program,
        _ => "PROGRAM",
    };
    let program = folder.join(&request.profile).join(program);
    let shown = env::current_dir().ok().and_then(|here| program.strip_prefix(here).ok().map(Path::to_owned));
    say!("everycall: built for tracing");
    say!("  next: everycall record -- {}", shown.unwrap_or(program).display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_gets_its_options_only() {
        let kept = |line: &str| {
            let words = without_own(line.split(' ').map(OsString::from));
            words.into_iter().filter_map(|word| word.into_string().ok()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(kept("--start off --stream --crate serde -o x"), "--stream -o x");
        assert_eq!(kept("--all --start=on --crate=a --ring-size 4M --"), "--ring-size 4M");
    }
}
