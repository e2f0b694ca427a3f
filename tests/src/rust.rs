//! Workspaces of Rust programs, which tests build by `cargo everycall` in a copy of their folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{Place, everycall};

/// A copy of a workspace whose `manifest` names the crate for Rust programs.
#[must_use]
pub fn copied(place: &Place, name: &str, manifest: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let to = place.file("a workspace");
    copy(&from, &to);
    let manifest = to.join(manifest);
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/traced/api");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(manifest, text.replace("\"API\"", &format!("{:?}", api.to_str().unwrap()))).unwrap();
    to
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Gives a workspace the versions of dependencies that were fetched with this one.
pub fn lock(folder: &Path) {
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

/// A command in the workspace, without what the cargo that runs this test has set.
#[must_use]
pub fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_cargos = name.starts_with("CARGO_") && !matches!(&name[..], "CARGO_HOME");
        if is_cargos
            || matches!(&name[..], "RUSTFLAGS" | "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER" | "CARGO")
        {
            command.env_remove(name);
        }
    }
    command
}

/// `cargo everycall` in the workspace.
#[must_use]
pub fn cargo_everycall(folder: &Path, words: &[&str]) -> Command {
    let mut cargo = command(everycall(), folder);
    cargo.arg("cargo").args(words);
    cargo
}

/// Both outputs of a command.
#[must_use]
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
