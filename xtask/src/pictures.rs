//! `cargo xtask pictures`: takes the pictures of `everycall view` that the documents show.
//!
//! They show two runs of `examples/demo`, so that its numbers are those of the machine they are
//! taken on. Look at each before it is committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::step::{Step, target_folder, workspace};
use crate::viewer::Viewer;
use crate::{demo, packages};

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
    let everycall = demo::built()?;
    let map = format!("-ffile-prefix-map={}={SOURCES}", sources.display());
    demo::compile(&everycall, &sources, &folder, &[&map])?;
    for file in ["old.ect", "new.ect"] {
        Step::new(&folder, &everycall).args(["record", "--states", "-o", file, "--", "./demo"]).run()?;
    }
    let view = |files: &[&str]| {
        let mut command = Command::new(&everycall);
        command.current_dir(&folder);
        let map = format!("{SOURCES}={}", sources.display());
        Viewer::start(command, &[&["--map-source", &map], files].concat())
    };
    let (one, two) = (view(&["old.ect"])?, view(&["old.ect", "new.ect"])?);
    let images = workspace().join("docs/images");
    let picture = |viewer: &Viewer, name: &str, theme: &str, panel: &str| {
        let file = images.join(format!("view-{name}.png"));
        json!({ "address": viewer.address, "file": file, "theme": theme, "panel": panel })
    };
    let mut call = picture(&one, "call", "dark", "call");
    call["function"] = json!("picture::blur(");
    let list = json!({
        "chromium": packages::found("chromium").ok_or("chromium isn't there, and takes the pictures")?,
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

/// Installs the tests' library that drives the browser.
fn tools(folder: &Path) -> Result<PathBuf, String> {
    let package = workspace().join("tests/browser/package.json");
    std::fs::copy(&package, folder.join("package.json")).map_err(|error| format!("can't copy: {error}"))?;
    Step::new(folder, "npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"])
        .run()?;
    Ok(folder.join("node_modules"))
}
