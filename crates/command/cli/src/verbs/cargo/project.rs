//! The project, from cargo's metadata.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::arguments::Request;
use crate::exit_code;
use crate::failure::Failure;

/// A workspace.
#[derive(Clone, Debug)]
pub struct Project {
    /// Folders of its packages.
    pub folders: Vec<PathBuf>,
    /// Names of its programs.
    pub programs: Vec<String>,
    /// Where cargo builds.
    pub target: PathBuf,
    /// The target that programs are built for if none is named.
    pub host: String,
}

impl Project {
    /// Asks cargo; it reads the manifests only, so no network is needed.
    ///
    /// # Errors
    /// There is no project here, or no cargo: a failure that says so.
    pub fn ask(cargo: &OsStr, request: &Request) -> Result<Project, Failure> {
        let failed = |sentence: String| Failure::new(exit_code::FAILED, sentence);
        let mut command = Command::new(cargo);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        command.args(request.manifest.iter().flat_map(|path| [OsStr::new("--manifest-path"), path]));
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            failed(format!("`{}` couldn't be run: {error}; install Rust's cargo", cargo.display()))
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(said.trim().trim_start_matches("error: ").to_owned()));
        }
        let answer: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| failed(format!("`cargo metadata` wrote no JSON: {error}")))?;
        let host = host(cargo).ok_or_else(|| failed("`cargo -vV` didn't name a host".to_owned()))?;
        Project::read(&answer, host)
            .ok_or_else(|| failed("`cargo metadata` named no target folder".to_owned()))
    }

    fn read(answer: &Value, host: String) -> Option<Project> {
        let packages = || answer["packages"].as_array().into_iter().flatten();
        let folder =
            |package: &Value| Path::new(package["manifest_path"].as_str()?).parent().map(Path::to_owned);
        let is_program = |target: &&Value| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
        };
        let targets = packages().flat_map(|package| package["targets"].as_array().into_iter().flatten());
        Some(Project {
            folders: packages().filter_map(folder).collect(),
            programs: targets
                .filter(is_program)
                .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
                .collect(),
            target: answer["target_directory"].as_str()?.into(),
            host,
        })
    }
}

/// The target that cargo builds for.
fn host(cargo: &OsStr) -> Option<String> {
    let chosen = config(cargo, "build.target").and_then(|value| value.as_str().map(str::to_owned));
    chosen.or_else(|| {
        let output = Command::new(cargo).arg("-vV").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
    })
}

/// The wrapper of rustc that the project or the user has set, such as sccache.
pub fn rustc_wrapper(cargo: &OsStr) -> Option<OsString> {
    let set = env::var_os("RUSTC_WRAPPER").filter(|wrapper| !wrapper.is_empty());
    let set = set.or_else(|| Some(config(cargo, "build.rustc-wrapper")?.as_str()?.into()));
    // Within a build of ours, it is ours.
    set.filter(|wrapper| !Path::new(wrapper).file_name().is_some_and(everycall_compiler::is_rustc_name))
}

/// The program by which the project's own programs are run, with its arguments.
pub fn runner(cargo: &OsStr, target: &str) -> Vec<String> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let variable = format!("CARGO_TARGET_{}_RUNNER", target.to_uppercase().replace(['-', '.'], "_"));
    if let Ok(text) = env::var(variable) {
        return words(&text);
    }
    match config(cargo, &format!("target.{target}.runner")) {
        Some(Value::String(text)) => words(&text),
        Some(Value::Array(list)) => list.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

/// A value of cargo's configuration. cargo offers that to nightly toolchains; the variable makes it
/// answer in any, and concerns this question only.
fn config(cargo: &OsStr, key: &str) -> Option<Value> {
    let mut command = Command::new(cargo);
    command.env("RUSTC_BOOTSTRAP", "1").args([
        "-Zunstable-options",
        "config",
        "get",
        "--format=json-value",
        key,
    ]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}
