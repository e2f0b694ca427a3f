//! Everything that has to hold, in one command.

use std::process::Command;
use std::time::Instant;

use crate::packages;
use crate::step::{Step, workspace};

/// Formatting, lints, all tests, the models of the lock-free parts.
///
/// # Errors
/// What failed, as a sentence.
pub fn run() -> Result<(), String> {
    packages::ensure(&packages::TESTS)?;
    let start = Instant::now();
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    cargo(&["fmt", "--all", "--check"]).run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]).run()?;
    cargo(&["test", "--workspace", "--no-fail-fast"]).run()?;
    models()?;
    println!("all of it took {} s", start.elapsed().as_secs());
    Ok(())
}

/// The model checker, and Miri and ThreadSanitizer where a nightly toolchain is there.
fn models() -> Result<(), String> {
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    cargo(&["test", "--release", "-p", "everycall-ring", "--test", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", "target/loom")
        .run()?;
    if !nightly_has_miri() {
        println!(
            "skipped: Miri and ThreadSanitizer, for want of `rustup toolchain install nightly --component miri,rust-src`"
        );
        return Ok(());
    }
    let packages = ["-p", "everycall-ring", "-p", "everycall-format", "-p", "everycall-patch", "--lib"];
    cargo(&[&["+nightly", "miri", "test", "--quiet"], &packages[..]].concat())
        .env("CARGO_TARGET_DIR", "target/miri")
        .run()
}

/// Whether a nightly toolchain with Miri is there; its components are added where the toolchain is.
fn nightly_has_miri() -> bool {
    let run = |arguments: &[&str]| {
        Command::new("rustup").args(arguments).output().is_ok_and(|output| output.status.success())
    };
    run(&["run", "nightly", "rustc", "--version"])
        && run(&["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
}
