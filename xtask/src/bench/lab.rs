//! Tools of measurements: compilers, sources, and commands that have to succeed.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine;
use crate::step::{target_folder, workspace};

/// A compiler for C and one of the prefix's modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The compiler.
    pub compiler: &'static str,
    /// As `everycall cc --mode` takes it.
    pub name: &'static str,
}

impl Mode {
    /// gcc's default.
    pub const NOPS: Mode = Mode { compiler: "gcc", name: "nops" };
    /// clang's default.
    pub const XRAY: Mode = Mode { compiler: "clang-19", name: "xray" };
    /// All that is measured.
    pub const ALL: [Mode; 9] = [
        Mode::NOPS,
        Mode { compiler: "gcc", name: "fentry" },
        Mode { compiler: "gcc", name: "finstrument" },
        Mode::XRAY,
        Mode { compiler: "clang-19", name: "finstrument" },
        Mode { compiler: "clang-19", name: "after-inlining" },
        Mode { compiler: "clang-22", name: "xray" },
        Mode { compiler: "clang-22", name: "finstrument" },
        Mode { compiler: "clang-22", name: "after-inlining" },
    ];

    /// Those of `ALL` whose compiler is installed.
    pub fn installed() -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(|mode| machine::version(mode.compiler).is_some())
    }

    /// A name for files and rows.
    pub fn label(self) -> String {
        format!("{} {}", self.compiler, self.name)
    }

    /// Whether the hooks are `__cyg_profile_func_enter` and `_exit`.
    pub fn is_cyg_profile(self) -> bool {
        matches!(self.name, "finstrument" | "after-inlining")
    }
}

/// The folder that everything is built in, and everycall itself.
#[derive(Debug)]
pub struct Lab {
    folder: PathBuf,
    everycall: PathBuf,
    /// Objects of this run, because several parts need the same ones.
    compiled: RefCell<HashSet<PathBuf>>,
}

impl Lab {
    /// Builds everycall.
    ///
    /// # Errors
    /// The failure, as a sentence.
    pub fn new() -> Result<Lab, String> {
        let folder = target_folder().join("bench");
        fs::create_dir_all(&folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        cargo(&["build", "--release", "--quiet", "--package", "everycall"])?;
        let everycall = target_folder().join("release/everycall");
        let lab = Lab { folder, everycall, compiled: RefCell::default() };
        lab.successful(
            Command::new("gcc").args(["-O2", "-o"]).arg(lab.path("rounds")).arg(program("rounds.c")),
        )?;
        Ok(lab)
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name.replace(' ', "-"))
    }

    /// The binary.
    pub fn everycall(&self) -> &Path {
        &self.everycall
    }

    /// The compiler alone, or behind the prefix.
    pub fn compiler(&self, compiler: &str, mode: Option<&str>) -> Command {
        let Some(mode) = mode else { return self.command(compiler) };
        let mut command = self.command(&self.everycall);
        command.args(["cc", "--mode", mode, "--", compiler]);
        command
    }

    /// A command in the folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        command
    }

    /// A command on the CPU for measuring.
    pub fn pinned(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("taskset");
        command.args(["-c", &machine::measuring_cpu()]).arg(program);
        command
    }

    /// Compiles one of `benches/programs` with `options`, once; `name` is that of the object,
    /// another for each way to compile.
    ///
    /// # Errors
    /// The compiler's own, as a sentence.
    pub fn compile(
        &self,
        mut compiler: Command,
        source: impl AsRef<Path>,
        options: &[&str],
        name: &str,
    ) -> Result<PathBuf, String> {
        let object = self.path(name);
        if self.compiled.borrow().contains(&object) {
            return Ok(object);
        }
        compiler.args(["-O2", "-c", "-I"]).arg(program("")).args(options);
        self.successful(compiler.arg(program(source)).arg("-o").arg(&object))?;
        self.compiled.borrow_mut().insert(object.clone());
        Ok(object)
    }

    /// Links objects.
    ///
    /// # Errors
    /// The linker's own, as a sentence.
    pub fn link(
        &self,
        mut compiler: Command,
        objects: &[&Path],
        options: &[&str],
        name: &str,
    ) -> Result<PathBuf, String> {
        let output = self.path(name);
        self.successful(compiler.args(objects).args(options).arg("-o").arg(&output))?;
        Ok(output)
    }

    /// Runs a command and returns its output.
    ///
    /// # Errors
    /// It can't be started, or fails; as a sentence with what it said.
    pub fn successful(&self, command: &mut Command) -> Result<String, String> {
        let shown = |command: &Command| {
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
        };
        let output =
            command.output().map_err(|error| format!("`{}` can't be started: {error}", shown(command)))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{} of `{}`: {}", output.status, shown(command), said.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// SQLite's folder of sources. The first call may need the network.
    ///
    /// # Errors
    /// cargo's own, as a sentence.
    pub fn sqlite_sources(&self) -> Result<PathBuf, String> {
        Ok(self.third_party()?.join("libsqlite3-sys/sqlite3"))
    }

    /// The folder of third-party sources. The first call may need the network.
    ///
    /// # Errors
    /// The failure, as a sentence.
    pub fn third_party(&self) -> Result<PathBuf, String> {
        vendored(self)
    }
}

/// Runs cargo in the workspace.
///
/// # Errors
/// Its own, as a sentence.
pub fn cargo(arguments: &[&str]) -> Result<(), String> {
    let cargo: OsString = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).current_dir(workspace()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`cargo {}`: {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo can't be started: {error}")),
    }
}

/// One of the benchmarks' programs; an absolute path stays as it is.
pub fn program(name: impl AsRef<Path>) -> PathBuf {
    workspace().join("benches/programs").join(name)
}

/// The folder of third-party sources, brought by cargo; that of the tests with real programs
/// (`tests/src/workloads/sources.rs`).
fn vendored(lab: &Lab) -> Result<PathBuf, String> {
    let list = workspace().join("tests/workloads/fetch/Cargo.toml");
    let list =
        fs::read_to_string(&list).map_err(|error| format!("can't read {}: {error}", list.display()))?;
    let around = target_folder().join("workloads");
    let (sources, fetch) = (around.join("sources"), around.join("fetch"));
    let complete = sources.join(".complete");
    if fs::read_to_string(&complete).is_ok_and(|known| known == list) {
        return Ok(sources);
    }
    let written = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("can't write {}: {error}", path.display()))
    };
    let _ = fs::remove_dir_all(&sources);
    fs::create_dir_all(&fetch).map_err(|error| format!("can't make {}: {error}", fetch.display()))?;
    written(fetch.join("Cargo.toml"), &list)?;
    written(fetch.join("empty.rs"), "")?;
    let cargo: OsString = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    lab.successful(Command::new(cargo).args(["vendor", "--quiet"]).arg(&sources).current_dir(&fetch))?;
    written(complete, &list)?;
    Ok(sources)
}
