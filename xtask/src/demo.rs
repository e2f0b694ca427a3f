//! `cargo xtask demo`: from a clone to a trace of `examples/demo`, in one command.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::step::{Step, target_folder, workspace};

/// Compiler options of the library and the program; at -O2 many of their small functions would
/// be inlined.
const FLAGS: [&str; 3] = ["-std=c++17", "-Og", "-g"];
/// The tree that is printed leaves out shorter calls.
const SHORTEST_SHOWN: &str = "50us";

/// Runs the task; after the word `--with`, the everycall at a path instead of a new one.
///
/// # Errors
///
/// The first step that failed, as a sentence.
pub fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let words: Vec<String> = words.collect();
    let given = match &words[..] {
        [] => None,
        [option, path] if option == "--with" => Some(PathBuf::from(path)),
        _ => return Err("usage: cargo xtask demo [--with EVERYCALL]".to_owned()),
    };
    let sources = workspace().join("examples/demo");
    let folder = target_folder().join("demo");
    need_compiler()?;
    fs::create_dir_all(&folder).map_err(|error| format!("can't make {}: {error}", folder.display()))?;

    let everycall = match given {
        Some(path) => path,
        None => built()?,
    };

    println!("\nThe program, through the compiler prefix:");
    compile(&everycall, &sources, &folder, &[])?;

    println!("\nIts run, recorded:");
    let verb = |arguments: &[&str]| Step::new(&folder, &everycall).args(arguments);
    verb(&["record", "-o", "demo.ect", "--", "./demo"]).run()?;

    println!("\nThe trace, for viewers and for people:");
    verb(&["export", "-f", "vizviewer", "-o", "demo.json", "demo.ect"]).run()?;
    verb(&["export", "-f", "perfetto", "-o", "demo.perfetto-trace", "demo.ect"]).run()?;
    verb(&["replay", "demo.ect"]).run_into(&folder.join("demo.txt"))?;
    // Another process prints the tree, so everything printed here must be written before.
    let _ = std::io::stdout().flush();
    verb(&["replay", "--min-duration", SHORTEST_SHOWN, "demo.ect"]).run()?;

    made(&folder);
    Ok(())
}

/// Builds everycall as it is released.
///
/// # Errors
///
/// Where cargo fails, as a sentence.
pub fn built() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Step::new(&workspace(), cargo).args(["build", "--release", "--package", "everycall"]).run()?;
    Ok(target_folder().join("release/everycall"))
}

/// Compiles library and program, with more flags, in a folder.
///
/// # Errors
///
/// The step that failed, as a sentence.
pub fn compile(everycall: &Path, sources: &Path, folder: &Path, flags: &[&str]) -> Result<(), String> {
    let compile = |source: &str| {
        let source = sources.join(source);
        Step::new(folder, everycall).args(["cc", "--", "g++"]).args(FLAGS).args(flags).args([source])
    };
    compile("picture.cpp").args(["-fPIC", "-shared", "-o", "libpicture.so"]).run()?;
    compile("main.cpp").args(["-L.", "-lpicture", "-Wl,-rpath,$ORIGIN", "-pthread", "-o", "demo"]).run()
}

fn need_compiler() -> Result<(), String> {
    let asked = Command::new("g++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        _ => Err("g++ isn't there, and the demo is a C++ program; install it, on Debian and Ubuntu with `apt install g++`, on \
                  Fedora with `dnf install gcc-c++`"
            .to_owned()),
    }
}

fn made(folder: &Path) {
    println!("\nMade in {}:", folder.display());
    for (file, meaning) in [
        ("demo.ect", "the trace: `everycall info demo.ect` tells what it holds"),
        ("demo.json", "for vizviewer (`pip install viztracer; vizviewer demo.json`), with source code"),
        ("demo.perfetto-trace", "for https://ui.perfetto.dev"),
        ("demo.txt", "all calls as a tree"),
    ] {
        println!("  {file:<20} {meaning}");
    }
}
