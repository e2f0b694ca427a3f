//! One command of a task, shown before it is run.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's folder.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace().join(folder)
}

/// A command in a folder.
pub struct Step {
    command: Command,
    shown: String,
}

impl Step {
    /// Runs `program` in `folder`.
    pub fn new(folder: &Path, program: impl AsRef<OsStr>) -> Step {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.current_dir(folder);
        let name = Path::new(program).file_name().unwrap_or(program);
        Step { command, shown: name.to_string_lossy().into_owned() }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Step {
        for argument in arguments {
            let argument = argument.as_ref();
            let text = argument.to_string_lossy();
            let quoted = if text.contains(['$', ' ']) { format!("'{text}'") } else { text.into_owned() };
            self.shown = format!("{} {quoted}", self.shown);
            self.command.arg(argument);
        }
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Step {
        self.shown = format!("{name}='{value}' {}", self.shown);
        self.command.env(name, value);
        self
    }

    /// Shows it, and runs it to a good end.
    ///
    /// # Errors
    ///
    /// It can't be started, or fails; as a sentence.
    pub fn run(mut self) -> Result<(), String> {
        println!("$ {}", self.shown);
        let status =
            self.command.status().map_err(|error| format!("`{}` can't be started: {error}", self.shown))?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", self.shown)) }
    }

    /// Like [`Step::run`], with its standard output in a file.
    ///
    /// # Errors
    ///
    /// As in [`Step::run`], or the file can't be written.
    pub fn run_into(mut self, path: &Path) -> Result<(), String> {
        let file = File::create(path).map_err(|error| format!("can't write {}: {error}", path.display()))?;
        self.command.stdout(file);
        self.run()
    }
}
