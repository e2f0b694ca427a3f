//! The wrapper of rustc: cargo runs it for every crate, and it runs rustc.
//!
//! Crates that aren't traced, build scripts and procedural macros get exactly the call that cargo
//! made.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use everycall_format::arch::NAME;
use everycall_io::say;

use super::arguments::Rustc;
use super::functions::{self, Functions};
use super::{link, noise, tasks_object, tokio};
use crate::arch::{RUST_TARGET, is_rust_target};
use crate::exit_code::{EXIT_NOT_FOUND, EXIT_NOT_RUN, EXIT_REFUSED};
use crate::toolbox::{RUSTC_NAME, Toolbox};

/// The variable that says which crates are traced: see [`RustCrates`].
pub const CRATES_VARIABLE: &str = "EVERYCALL_RUST_CRATES";
/// The variable with the wrapper that the project has itself, such as `sccache`.
pub const INNER_VARIABLE: &str = "EVERYCALL_RUST_WRAPPER";

/// Whether a program name is that of the wrapper.
pub fn is_rustc_name(name: &OsStr) -> bool {
    name == RUSTC_NAME
}

/// Which crates are traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RustCrates {
    /// Whether all are.
    pub all: bool,
    /// Folders of packages whose crates are.
    pub folders: Vec<PathBuf>,
    /// Names of packages or crates that are.
    pub names: Vec<String>,
}

impl RustCrates {
    /// The text of [`CRATES_VARIABLE`]: a line for each, `*` for all.
    #[must_use]
    pub fn to_text(&self) -> OsString {
        let mut text = OsString::new();
        let all = self.all.then(|| OsString::from("*")).into_iter();
        let folders = self.folders.iter().map(|folder| folder.clone().into_os_string());
        for line in all.chain(folders).chain(self.names.iter().map(OsString::from)) {
            text.push(line);
            text.push("\n");
        }
        text
    }

    /// Reads such a text.
    #[must_use]
    pub fn of_text(text: &str) -> RustCrates {
        let mut crates = RustCrates::default();
        for line in text.lines() {
            match line {
                "*" => crates.all = true,
                folder if folder.starts_with('/') => crates.folders.push(folder.into()),
                name => crates.names.push(name.to_owned()),
            }
        }
        crates
    }

    /// Whether the crate is traced for which cargo runs rustc with these variables.
    fn has(&self, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        // Build scripts run rustc, too, to find out what it can do.
        let Some(name) = variable("CARGO_CRATE_NAME") else { return false };
        self.is_named(&name) || self.has_package(variable)
    }

    /// Whether the package is traced for which cargo runs a program with these variables.
    pub(super) fn has_package(&self, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        let folder = variable("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let is_in_folder = folder.is_some_and(|folder| self.folders.contains(&folder));
        self.all || is_in_folder || variable("CARGO_PKG_NAME").is_some_and(|name| self.is_named(&name))
    }

    fn is_named(&self, name: &OsStr) -> bool {
        self.names.iter().any(|known| known.as_str() == name)
    }
}

/// A call by cargo: `[WRAPPER] rustc ARGS`.
pub fn rustc_main(command: Vec<OsString>) -> ExitCode {
    match run(command) {
        Ok(status) => mirror(status),
        Err(failure) => {
            say!("everycall: {}", failure.sentence);
            ExitCode::from(failure.code)
        }
    }
}

struct Failure {
    sentence: String,
    code: u8,
}

impl Failure {
    fn not_run(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), code: EXIT_NOT_RUN }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::not_run(error.to_string())
    }
}

fn run(command: Vec<OsString>) -> Result<ExitStatus, Failure> {
    let mut words = command.into_iter();
    let program = words.next().ok_or_else(|| Failure {
        sentence: "this program is run by cargo; use it as `cargo everycall build`".to_owned(),
        code: EXIT_REFUSED,
    })?;
    let args: Vec<OsString> = words.collect();
    let compiler =
        Compiler { program, inner: std::env::var_os(INNER_VARIABLE).filter(|inner| !inner.is_empty()) };
    let rustc = Rustc::read(&args);
    let crates = RustCrates::of_text(&std::env::var(CRATES_VARIABLE).unwrap_or_default());
    let is_traced =
        crates.has(|name| std::env::var_os(name)) && rustc.makes_code() && !rustc.is_part_of_the_build();
    if !is_traced {
        let status = if is_tokio(&rustc) { with_wakes(&compiler, &rustc, &args)? } else { None };
        return status.ok_or_else(|| compiler.replace_this(&args));
    }
    if let Some(target) = rustc.target.as_deref().filter(|target| !is_rust_target(target)) {
        return Err(Failure {
            sentence: format!(
                "{target} can't be traced, only Linux on {NAME} (such as {RUST_TARGET}); build without `everycall` \
                 for it"
            ),
            code: EXIT_REFUSED,
        });
    }
    traced(&compiler, &rustc, &args)
}

/// Whether code of tokio's is made, whose wakes are recorded also where it isn't traced.
fn is_tokio(rustc: &Rustc) -> bool {
    rustc.crate_name.as_deref() == Some(tokio::CRATE)
        && std::env::var_os("CARGO_PKG_NAME").is_some_and(|name| name == tokio::CRATE)
        && rustc.makes_code()
        && !rustc.links()
        && rustc.target.as_deref().is_none_or(is_rust_target)
}

/// Runs rustc so that only tokio's functions that wake tasks are known to the wrapper; `None` if it
/// is not to be, or there are none.
fn with_wakes(compiler: &Compiler, rustc: &Rustc, args: &[OsString]) -> Result<Option<ExitStatus>, Failure> {
    let toolbox = Toolbox::open()?;
    let scratch = Scratch::new(&toolbox)?;
    let Some(mut functions) = functions_of(compiler, rustc, &scratch)? else { return Ok(None) };
    if functions.are_for_musl && rustc.target.is_none() {
        // Build scripts may use it, too: its C library doesn't have the function that is called.
        return Ok(None);
    }
    functions.names.retain(|name| tokio::Role::of(name) == Some(tokio::Role::Wake));
    if functions.names.is_empty() {
        if rustc.features.iter().any(|feature| feature == "rt") {
            say!(
                "everycall: what wakes tasks of this version of tokio isn't known, so traces have no arrows for it"
            );
        }
        return Ok(None);
    }
    let mut text = Vec::new();
    tokio::write_list(&functions.names, &functions.types, &mut text)?;
    let mut command = compiler.command();
    command.args(args);
    listed(&mut command, rustc, &list(text, &scratch, &toolbox, compiler)?);
    run_without_noise(compiler, command).map(Some)
}

/// Runs rustc so that the crate's functions call hooks.
fn traced(compiler: &Compiler, rustc: &Rustc, args: &[OsString]) -> Result<ExitStatus, Failure> {
    let toolbox = Toolbox::open()?;
    let scratch = Scratch::new(&toolbox)?;
    let mut command = compiler.command();
    command.args(args);
    let functions = functions_of(compiler, rustc, &scratch)?;
    if let Some(functions) = &functions {
        // In the others, functions aren't merged.
        let keep_apart = !matches!(&rustc.opt_level[..], "0" | "1");
        let mut text = Vec::new();
        functions::write_list(functions, keep_apart, &mut text)?;
        listed(&mut command, rustc, &list(text, &scratch, &toolbox, compiler)?);
        keep_names_of_tasks(rustc, functions)?;
        if !tokio::can_be_told_apart(&functions.names) {
            say!(
                "everycall: what ends tasks of this version of tokio isn't known, so its tasks have no tracks"
            );
        }
    }
    if rustc.debug_info.as_deref().is_none_or(|level| matches!(level, "0" | "none")) {
        command.arg("-Cdebuginfo=line-tables-only");
    }
    command.arg("-Cstrip=none");
    if rustc.links() {
        let linker = link::linker_for(rustc.linker.as_deref(), &toolbox)?;
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        command
            .arg(option)
            .env(link::REAL_VARIABLE, rustc.linker.as_deref().unwrap_or(OsStr::new(link::DEFAULT)))
            .env_remove(tasks_object::TASKS_VARIABLE);
        if rustc.may_use(tokio::CRATE) {
            let folders = rustc.dependencies.iter().map(Path::new);
            let names = tasks_object::write(rustc.tasks_file().as_deref(), folders, &scratch.folder)?;
            command.env(tasks_object::TASKS_VARIABLE, names);
        }
    }
    let status = run_without_noise(compiler, command)?;
    if functions.is_none() && status.success() {
        let name = rustc.crate_name.as_deref().unwrap_or_default();
        return Err(Failure::not_run(format!(
            "the functions of the crate {name} couldn't be listed, so it would not be traced; its build by plain cargo works"
        )));
    }
    Ok(status)
}

/// Writes the file with the names of the crate's tasks, if it has any.
fn keep_names_of_tasks(rustc: &Rustc, functions: &Functions) -> io::Result<()> {
    let Some(file) = rustc.tasks_file() else { return Ok(()) };
    match tokio::names_of_tasks(&functions.names, &functions.types) {
        // An earlier build of the crate may have left one.
        text if text.is_empty() => {
            let _ = fs::remove_file(file);
            Ok(())
        }
        text => fs::write(file, text),
    }
}

/// Makes LLVM give functions the attributes of a list.
fn listed(command: &mut Command, rustc: &Rustc, list: &Path) {
    let mut option = OsString::from("-Cllvm-args=-forceattrs-csv-path=");
    option.push(list);
    command.arg(option);
    if rustc.opt_level == "0" {
        // Without optimisation, LLVM doesn't look at the list by itself.
        command.arg("-Cpasses=forceattrs");
    }
}

/// Runs rustc without what LLVM says about the list.
fn run_without_noise(compiler: &Compiler, mut command: Command) -> Result<ExitStatus, Failure> {
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|error| compiler.not_run(&error))?;
    if let Some(mut stderr) = child.stderr.take() {
        // A reader that has gone away is cargo's: rustc ends then, too.
        let _ = noise::remove(&mut stderr, &mut io::stderr().lock());
    }
    Ok(child.wait()?)
}

/// The functions of the crate; `None` if rustc fails, and will say why in its real run.
fn functions_of(compiler: &Compiler, rustc: &Rustc, scratch: &Scratch) -> Result<Option<Functions>, Failure> {
    let with_types = rustc.may_use(tokio::CRATE) || rustc.crate_name.as_deref() == Some(tokio::CRATE);
    let mut command = Command::new(&compiler.program);
    command
        .args(rustc.first_run(&scratch.folder, with_types))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status().map_err(|error| compiler.not_run(&error))?;
    if !status.success() {
        return Ok(None);
    }
    Ok(Some(Functions::in_folder(&scratch.folder)?))
}

/// The file with the list. A compiler cache hashes the path, not the file: there the path stands
/// for the text, and the file stays.
fn list(text: Vec<u8>, scratch: &Scratch, toolbox: &Toolbox, compiler: &Compiler) -> io::Result<PathBuf> {
    if compiler.inner.is_some() {
        return toolbox.list(&String::from_utf8_lossy(&text));
    }
    let path = scratch.folder.join("functions.csv");
    fs::write(&path, text)?;
    Ok(path)
}

/// rustc, and what runs it.
struct Compiler {
    /// rustc, or a wrapper for the workspace's crates that takes it as its first argument.
    program: OsString,
    /// The wrapper around that.
    inner: Option<OsString>,
}

impl Compiler {
    fn command(&self) -> Command {
        match &self.inner {
            None => Command::new(&self.program),
            Some(inner) => {
                let mut command = Command::new(inner);
                command.arg(&self.program);
                command
            }
        }
    }

    fn not_run(&self, error: &io::Error) -> Failure {
        let program = self.inner.as_ref().unwrap_or(&self.program);
        let code = if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_NOT_RUN };
        Failure { sentence: format!("`{}` couldn't be run: {error}", program.display()), code }
    }

    /// Becomes the call that cargo made.
    fn replace_this(&self, args: &[OsString]) -> Failure {
        let error = self.command().args(args).exec();
        self.not_run(&error)
    }
}

/// A folder for one call. Its path has no spaces, at which LLVM's options would be split.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new(toolbox: &Toolbox) -> io::Result<Scratch> {
        let folder = toolbox.folder().join(format!("rust-{}", std::process::id()));
        // Of a process that was killed and had the same number.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        Ok(Scratch { folder })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.folder));
    }
}

/// Ends in the same way as the compiler did, as far as an exit code can express it.
fn mirror(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(EXIT_NOT_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_crates() {
        let crates = RustCrates { folders: vec!["/w/app".into()], names: vec!["regex".into()], all: false };
        assert_eq!(RustCrates::of_text(&crates.to_text().to_string_lossy()), crates);
        let has = |crates: &RustCrates, name: &str, package: &str, folder: &str| {
            crates.has(|variable| match variable {
                "CARGO_CRATE_NAME" if name.is_empty() => None,
                "CARGO_CRATE_NAME" => Some(name.into()),
                "CARGO_PKG_NAME" => Some(package.into()),
                _ => Some(folder.into()),
            })
        };
        assert!(has(&crates, "app", "app", "/w/app") && has(&crates, "regex", "regex", "/r/regex-1"));
        assert!(!has(&crates, "other", "other", "/w/app/other") && !has(&crates, "", "app", "/w/app"));
        assert!(has(&RustCrates { all: true, ..RustCrates::default() }, "other", "other", "/r"));
    }

    #[test]
    fn targets() {
        for target in ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "x86_64-alpine-linux-musl"] {
            assert!(is_rust_target(target), "{target}");
        }
        for target in [
            "aarch64-unknown-linux-gnu",
            "x86_64-unknown-none",
            "wasm32-wasip1",
            "x86_64-unknown-linux-gnux32",
        ] {
            assert!(!is_rust_target(target), "{target}");
        }
    }
}
