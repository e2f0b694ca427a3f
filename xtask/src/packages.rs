//! System packages that a task needs: finds missing ones, installs them if it may, and otherwise
//! prints the command that does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Step;

/// A Debian package, and the program, or the file by its whole path, that shows that it is
/// installed.
pub type Package = (&'static str, &'static str);

/// What the demo needs.
pub const DEMO: [Package; 2] = [("g++", "g++"), ("binutils", "objcopy")];

/// What pictures need.
pub const PICTURES: [Package; 4] =
    [("g++", "g++"), ("binutils", "objcopy"), ("chromium", "chromium"), ("npm", "npm")];

/// What the benchmarks can't do without. Other compilers and tracers are measured where they are
/// installed.
pub const BENCH: [Package; 3] = [("g++", "g++"), ("binutils", "objcopy"), ("util-linux", "taskset")];

/// What the tests need.
pub const TESTS: [Package; 24] = [
    ("g++", "g++"),
    ("binutils", "objcopy"),
    ("clang-19", "clang-19"),
    ("lld-19", "ld.lld-19"),
    ("llvm-19", "llvm-symbolizer-19"),
    ("clang-22", "clang-22"),
    ("lld-22", "ld.lld-22"),
    ("ccache", "ccache"),
    ("cmake", "cmake"),
    ("make", "make"),
    ("ninja-build", "ninja"),
    ("pkg-config", "pkg-config"),
    ("gdb", "gdb"),
    ("libgoogle-perftools-dev", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so"),
    ("musl-tools", "musl-gcc"),
    ("strace", "strace"),
    ("valgrind", "valgrind"),
    ("linux-perf", "perf"),
    ("libboost-context-dev", "/usr/include/boost/context/fiber.hpp"),
    ("libc++-19-dev", "/usr/lib/llvm-19/lib/libc++.a"),
    ("chromium", "chromium"),
    ("npm", "npm"),
    ("python3-dev", "/usr/include/python3.11/Python.h"),
    ("python3-setuptools", "/usr/lib/python3/dist-packages/setuptools/__init__.py"),
];

/// Makes sure that all packages are there.
///
/// # Errors
/// Where some are missing and can't be installed; as a sentence with the command that does it.
pub fn ensure(packages: &[Package]) -> Result<(), String> {
    let missing: Vec<&str> =
        packages.iter().filter(|(_, program)| !is_installed(program)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let apt: &[&str] = if is_root() {
        &["apt-get"]
    } else if sudo_asks_nothing() {
        &["sudo", "-n", "apt-get"]
    } else {
        return Err(format!("these packages are missing; install them with: sudo apt-get install -y {list}"));
    };
    let run = |arguments: &[&str]| {
        let (program, first) = apt.split_first().expect("a program");
        Step::new(Path::new("/"), program).args(first.iter().chain(arguments)).run()
    };
    run(&["update", "-qq"])
        .and_then(|()| {
            run(&["install", "-y", "-qq", "--no-install-recommends"]
                .into_iter()
                .chain(missing.iter().copied())
                .collect::<Vec<_>>())
        })
        .map_err(|error| format!("{error}; these packages are needed: {list}"))
}

/// Whether a program is in the search path, or a file exists.
pub fn is_installed(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    found(program).is_some()
}

/// A program's path, if it is in the search path.
pub fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn is_root() -> bool {
    output_of("id", &["-u"]).is_some_and(|id| id.trim() == "0")
}

fn sudo_asks_nothing() -> bool {
    is_installed("sudo") && output_of("sudo", &["-n", "true"]).is_some()
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_files() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
        assert!(is_installed("/bin/sh") && !is_installed("/no/such/file"));
    }
}
