//! A folder for each test: the prefix under its names, the oracle as its kit, an empty folder for
//! temporary files, and a cache.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod image;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Lab {
    root: PathBuf,
    path: String,
}

pub const CLANGS: [&str; 4] = ["14", "16", "19", "22"];

impl Lab {
    pub fn new() -> Lab {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("everycall-lab-{}-{number}", std::process::id()));
        for folder in ["bin/kit", "work", "tmp", "cache", "home"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let bin = root.join("bin");
        let deps = std::env::current_exe().unwrap();
        let example = deps.parent().and_then(Path::parent).unwrap().join("examples/cc");
        fs::copy(&example, bin.join("everycall")).unwrap_or_else(|error| {
            panic!("{}: {error}; build it: cargo build --example cc", example.display())
        });
        let clangs =
            CLANGS.iter().flat_map(|version| [format!("clang-{version}"), format!("clang++-{version}")]);
        for name in ["gcc", "g++"].into_iter().map(str::to_owned).chain(clangs) {
            symlink("everycall", bin.join(format!("everycall-{name}"))).unwrap();
        }
        symlink("/usr/bin/ld.lld-19", bin.join("ld.lld")).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let lab = Lab { root, path };
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/oracle/build.sh");
        lab.ok(Command::new(oracle).arg(bin.join("kit")));
        lab
    }

    /// The folder where commands run; initially empty.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    pub fn kit(&self) -> PathBuf {
        self.root.join("bin/kit")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.work().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A command line of words separated by spaces, run in the work folder.
    pub fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command
    }

    pub fn run(&self, command: &mut Command) -> Output {
        command
            .current_dir(self.work())
            .env("PATH", &self.path)
            .env("TMPDIR", self.root.join("tmp"))
            .env("XDG_CACHE_HOME", self.root.join("cache"))
            .env("HOME", self.root.join("home"))
            .env("CCACHE_DIR", self.root.join("ccache"))
            .env("LC_ALL", "C");
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let left: Vec<_> =
            fs::read_dir(self.root.join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{command:?} left {left:?}");
        output
    }

    /// Runs a command that must succeed with an empty standard error; returns its standard output.
    pub fn ok(&self, command: &mut Command) -> String {
        let output = self.run(command);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{command:?}: {}\n{errors}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn sh(&self, line: &str) -> String {
        self.ok(&mut self.command(line))
    }

    pub fn output(&self, line: &str) -> Output {
        self.run(&mut self.command(line))
    }

    /// The names in the work folder.
    pub fn names(&self) -> BTreeSet<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(self.work()).unwrap().map(name).collect()
    }

    pub fn clear(&self) {
        fs::remove_dir_all(self.work()).unwrap();
        fs::create_dir(self.work()).unwrap();
    }

    /// Copies the test programs into the work folder.
    pub fn take_programs(&self) {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), self.work().join(entry.file_name())).unwrap();
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn env_is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value != OsStr::new(""))
}
