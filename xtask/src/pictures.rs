//! `cargo xtask pictures`: takes the pictures of `everycall view` that the documents show.
//!
//! They show two runs of `examples/demo`, so that its numbers are those of the machine that they are
//! taken on. Look at each before it is committed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::demo;
use crate::step::{Step, target_folder, workspace};

/// Where the pictures say that the demo's sources lie.
const SOURCES: &str = "/home/user/demo";

/// Runs the task.
///
/// # Errors
///
/// The first step that failed, as a sentence.
pub fn run() -> Result<(), String> {
    let sources = workspace().join("examples/demo");
    let folder = target_folder().join("pictures");
    std::fs::create_dir_all(&folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Step::new(&workspace(), cargo).args(["build", "--release", "--package", "everycall"]).run()?;
    let everycall = target_folder().join("release/everycall");
    let map = format!("-ffile-prefix-map={}={SOURCES}", sources.display());
    demo::compile(&everycall, &sources, &folder, &[&map])?;
    for file in ["old.ect", "new.ect"] {
        Step::new(&folder, &everycall).args(["record", "--states", "-o", file, "--", "./demo"]).run()?;
    }
    let one = Viewer::start(&everycall, &folder, &sources, &["old.ect"])?;
    let two = Viewer::start(&everycall, &folder, &sources, &["old.ect", "new.ect"])?;
    let images = workspace().join("docs/images");
    let picture = |viewer: &Viewer, name: &str, theme: &str, panel: &str| {
        let file = images.join(format!("view-{name}.png"));
        json!({ "address": viewer.address, "file": file, "theme": theme, "panel": panel })
    };
    let mut call = picture(&one, "call", "dark", "call");
    call["function"] = json!("picture::blur(");
    let list = json!({
        "chromium": chromium()?,
        "pictures": [
            call,
            picture(&one, "dark", "dark", "flame"),
            picture(&one, "light", "light", "table"),
            picture(&two, "compare", "light", "compare"),
        ],
    });
    let path = folder.join("pictures.json");
    std::fs::write(&path, list.to_string())
        .map_err(|error| format!("can't write {}: {error}", path.display()))?;
    let tools = tools(&folder)?;
    let script = workspace().join("tests/browser/pictures.js");
    Step::new(&folder, "node").env("NODE_PATH", &tools.to_string_lossy()).args([script, path]).run()?;
    println!(
        "\nMade in {}: view-call.png, view-dark.png, view-light.png, view-compare.png",
        images.display()
    );
    Ok(())
}

/// What drives the browser, as the tests have it.
fn tools(folder: &Path) -> Result<PathBuf, String> {
    let package = workspace().join("tests/browser/package.json");
    std::fs::copy(&package, folder.join("package.json")).map_err(|error| format!("can't copy: {error}"))?;
    Step::new(folder, "npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"])
        .run()?;
    Ok(folder.join("node_modules"))
}

fn chromium() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|path| path.is_file());
    found.ok_or_else(|| "chromium isn't there, and takes the pictures".to_owned())
}

/// `everycall view` while it runs.
struct Viewer {
    child: Child,
    address: String,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Viewer {
    fn start(everycall: &Path, folder: &Path, sources: &Path, files: &[&str]) -> Result<Viewer, String> {
        let map = format!("{SOURCES}={}", sources.display());
        let mut command = Command::new(everycall);
        command.args(["view", "--no-browser", "--map-source", &map]).args(files);
        command.current_dir(folder).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("`everycall view` can't start: {error}"))?;
        let mut address = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut address).map_err(|error| error.to_string())?;
        }
        Ok(Viewer { child, address: address.trim().to_owned() })
    }
}
