//! The lock-free parts under a model checker, Miri and ThreadSanitizer.

use std::process::Command;

use crate::step::{Step, workspace};

/// Checks of the lock-free parts that take longer, or need a nightly toolchain: the model checker,
/// Miri and ThreadSanitizer. See `docs/design/memory-model.md`.
///
/// # Errors
/// The failure, as a sentence.
pub fn models() -> Result<(), String> {
    model_checker()?;
    nightly()
}

/// The model checker alone: it needs no nightly toolchain.
///
/// # Errors
/// The failure, as a sentence.
pub fn model_checker() -> Result<(), String> {
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    let loom_of = |file: &str, test: &str| {
        cargo(&["test", "--release", "-p", "everycall-ring", "--test", file, test])
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_PREEMPTIONS", "1")
            .env("CARGO_TARGET_DIR", "target/loom")
            .run()
    };
    let loom = |test: &str| loom_of("loom", test);
    loom_of("taken_back", "moment")?;
    loom_of("taken_back", "at_once")?;
    loom("by_pinning")?;
    loom("the_pool")?;
    loom("by_the_segment")
}

fn nightly() -> Result<(), String> {
    if !nightly_has_miri() {
        return Err("Miri and ThreadSanitizer want a nightly toolchain: run `rustup toolchain install nightly --component miri,rust-src`".to_owned());
    }
    let cargo = |arguments: &[&str]| Step::new(&workspace(), "cargo").args(arguments);
    let packages = ["ring", "format", "patch", "reader"].map(|package| format!("everycall-{package}"));
    let packages: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    cargo(&[&["+nightly", "miri", "test", "--quiet", "--lib"], &packages[..]].concat())
        .env("CARGO_TARGET_DIR", "target/miri")
        .run()?;
    let with_thread_sanitizer = |what: &[&str]| {
        cargo(&["+nightly", "test", "-Zbuild-std", "--target", "x86_64-unknown-linux-gnu", "--release"])
            .args(what)
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            // Its reports need names and lines.
            .env("CARGO_PROFILE_RELEASE_DEBUG", "1")
            .env("CARGO_PROFILE_RELEASE_STRIP", "none")
            .env("RING_STRESS_SECONDS", "5")
            .env("CARGO_TARGET_DIR", "target/tsan")
            .run()
    };
    with_thread_sanitizer(&["-p", "everycall-ring", "--test", "stress"])?;
    // The slow path, under random programs.
    with_thread_sanitizer(&["-p", "everycall-runtime", "--lib", "tests::scripts"])
}

/// Whether a nightly toolchain with Miri is installed; missing components of an installed toolchain
/// are added.
fn nightly_has_miri() -> bool {
    let run = |arguments: &[&str]| {
        Command::new("rustup").args(arguments).output().is_ok_and(|output| output.status.success())
    };
    run(&["run", "nightly", "rustc", "--version"])
        && run(&["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
}
