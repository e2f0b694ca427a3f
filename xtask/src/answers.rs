//! `cargo xtask answers`: the answers of pages without a server, as WebAssembly, into the page's
//! built files. They are kept in the repository, so that builds need no further target.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Step, target_folder, workspace};

const TARGET: &str = "wasm32-unknown-unknown";
/// The crates that they are made of.
const SOURCES: [&str; 3] = ["crates/reading/calls", "crates/reading/profile", "crates/showing/answers"];
/// The built file, and the sum of the sources that it was made of.
const BUILT: &str = "crates/showing/view/page/dist/answers.wasm.gz";
const SUM: &str = "crates/showing/view/page/dist/answers.sources";

/// Builds them.
///
/// # Errors
/// The failure, as a sentence.
pub fn run() -> Result<(), String> {
    let root = workspace();
    Step::new(&root, "rustup").args(["target", "add", TARGET]).run()?;
    // Messages of panics name files: not those of this machine.
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let flags = format!(
        "--remap-path-prefix={}=cargo --remap-path-prefix={}=.",
        home.map_err(|_| "there is no home folder".to_owned())?,
        root.display()
    );
    let arguments =
        ["rustc", "-p", "everycall-answers", "--lib", "--crate-type", "cdylib", "--profile", "page"];
    Step::new(&root, "cargo").args(arguments).args(["--target", TARGET]).env("RUSTFLAGS", &flags).run()?;
    let built = target_folder().join(TARGET).join("page/everycall_answers.wasm");
    Step::new(&root, "gzip").args(["-9", "-n", "-k", "-f"]).args([&built]).run()?;
    let write = |error: std::io::Error| format!("{BUILT} can't be written: {error}");
    let bytes = fs::read(built.with_extension("wasm.gz")).map_err(write)?;
    fs::write(root.join(BUILT), bytes).map_err(write)?;
    fs::write(root.join(SUM), format!("{}\n", sum(&root)?)).map_err(write)
}

/// A sum of all sources.
fn sum(root: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    for folder in SOURCES {
        collect(&root.join(folder), &mut files)
            .map_err(|error| format!("{folder} can't be read: {error}"))?;
    }
    files.sort();
    // FNV-1a.
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let bytes = fs::read(&file).map_err(|error| format!("{} can't be read: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        for byte in name.bytes().chain([0]).chain(bytes) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{sum:016x}"))
}

fn collect(folder: &Path, all: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, all)?;
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "toml") {
            all.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_answers_are_made_of_these_sources() {
        let root = workspace();
        let kept = fs::read_to_string(root.join(SUM)).unwrap();
        assert_eq!(kept.trim(), sum(&root).unwrap(), "run `cargo xtask answers`, and commit what it writes");
    }
}
