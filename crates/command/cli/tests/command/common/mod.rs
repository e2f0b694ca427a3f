//! The command under test, and a traced program for it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for one test, and everycall in it.
pub struct Workplace(tempfile::TempDir);

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Workplace {
    pub fn new() -> Workplace {
        Workplace(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The command `everycall`, without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everycall"));
        // The tests of one build share the kit, and the user's own cache isn't touched.
        command.current_dir(self.0.path()).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        for name in ["EVERYCALL_RING_SIZE", "EVERYCALL_START", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs everycall with the arguments in `line`.
    pub fn run(&self, line: &str) -> Outcome {
        self.command().args(line.split_whitespace()).output().unwrap().into()
    }

    /// Runs everycall, which must succeed.
    pub fn succeed(&self, line: &str) -> Outcome {
        let outcome = self.run(line);
        assert_eq!(outcome.code, Some(0), "{line}: {outcome:?}");
        outcome
    }

    /// Runs a shell's line with everycall as `$EVERYCALL`.
    pub fn shell(&self, line: &str) -> Outcome {
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .current_dir(self.0.path())
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.env("EVERYCALL", env!("CARGO_BIN_EXE_everycall")).output().unwrap().into()
    }

    /// Runs everycall, which must fail with `code` and a message that contains all of `words`.
    pub fn fail(&self, line: &str, code: i32, words: &[&str]) {
        let outcome = self.run(line);
        is_failure(line, &outcome, code, words);
    }

    /// Names of the folder's files.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Builds `app` from a C++ program that calls `leaf` a hundred times in each of two threads,
    /// throws through two frames, and exits with its first argument.
    pub fn build_app(&self) {
        self.write("app.cpp", APP);
        self.succeed("cc -- g++ -O1 -g -pthread app.cpp -o app");
    }
}

/// Whether an outcome is a failure with a helpful sentence.
pub fn is_failure(line: &str, outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{line}: {outcome:?}");
    assert!(outcome.stderr.starts_with("everycall") || code == 2, "{line}: {outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{line}: {outcome:?}");
    for word in words {
        assert!(outcome.stderr.contains(word), "{line}: no {word:?} in {}", outcome.stderr);
    }
}

const APP: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <thread>

namespace shop {
__attribute__((noinline)) int leaf(int x) { asm volatile(""); return 2 * x; }
__attribute__((noinline)) void fail(int depth) {
    if (depth == 0) throw std::runtime_error("deliberate");
    fail(depth - 1);
    asm volatile("");
}
__attribute__((noinline)) void work() {
    for (int i = 0; i < 100; ++i) leaf(i);
    try { fail(1); } catch (const std::exception&) {}
}
}

int main(int count, char** words) {
    std::thread helper([] { pthread_setname_np(pthread_self(), "helper"); shop::work(); });
    helper.join();
    shop::work();
    std::puts("done");
    return count > 1 ? std::atoi(words[1]) : 0;
}
"#;
