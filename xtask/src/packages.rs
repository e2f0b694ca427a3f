//! System packages that a task needs: finds missing ones, installs them if it may, and otherwise
//! prints the command that does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Step;

/// A Debian package.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    name: &'static str,
    /// The program that it is needed for, wherever that comes from: npm is often another source's.
    /// A library has none. Its files don't show that it is installed, because other packages may
    /// have files of the same name: dpkg knows.
    program: Option<&'static str>,
    /// The part of the work that needs it, which is left out where it can't be installed; `None` if
    /// everything needs it.
    without: Option<&'static str>,
}

const fn program(name: &'static str, program: &'static str) -> Package {
    Package { name, program: Some(program), without: None }
}

const fn library(name: &'static str) -> Package {
    Package { name, program: None, without: None }
}

/// Packages that the demo needs.
pub const DEMO: [Package; 2] = [program("g++", "g++"), program("binutils", "objcopy")];

/// Packages that pictures need.
pub const PICTURES: [Package; 4] = [
    program("g++", "g++"),
    program("binutils", "objcopy"),
    program("chromium", "chromium"),
    program("npm", "npm"),
];

/// Packages that a release is built with.
pub const DIST: [Package; 5] = [
    program("g++", "g++"),
    program("binutils", "objcopy"),
    program("musl-tools", "musl-gcc"),
    program("dpkg", "dpkg-deb"),
    program("python3-pip", "pip3"),
];

/// Packages that a release is tried with.
pub const DIST_TRY: [Package; 1] = [program("debootstrap", "debootstrap")];

/// Packages that the benchmarks can't do without. Other compilers and tracers are measured where
/// they are installed.
pub const BENCH: [Package; 3] =
    [program("g++", "g++"), program("binutils", "objcopy"), program("util-linux", "taskset")];

/// Packages that the tests need.
pub const TESTS: [Package; 30] = [
    program("g++", "g++"),
    program("binutils", "objcopy"),
    program("clang-14", "clang-14"),
    program("clang-16", "clang-16"),
    program("clang-19", "clang-19"),
    program("lld-19", "ld.lld-19"),
    program("llvm-19", "llvm-symbolizer-19"),
    program("clang-22", "clang-22"),
    program("lld-22", "ld.lld-22"),
    program("ccache", "ccache"),
    program("cmake", "cmake"),
    program("make", "make"),
    program("ninja-build", "ninja"),
    program("pkg-config", "pkg-config"),
    program("gdb", "gdb"),
    library("libgoogle-perftools-dev"),
    program("musl-tools", "musl-gcc"),
    program("strace", "strace"),
    program("valgrind", "valgrind"),
    program("linux-perf", "perf"),
    library("libboost-context-dev"),
    library("libunwind-19"),
    // It can't be installed beside libunwind-dev.
    Package { without: Some("programs with LLVM's C++ library aren't tested"), ..library("libc++-19-dev") },
    program("chromium", "chromium"),
    program("npm", "npm"),
    library("python3-dev"),
    library("python3-setuptools"),
    program("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    program("g++-aarch64-linux-gnu", "aarch64-linux-gnu-g++"),
    program("qemu-user", "qemu-aarch64"),
];

/// The target of rustc's for which the runtime of the second machine is built.
pub const RUNTIME_TARGET: &str = "aarch64-unknown-none-softfloat";

/// Installs what rustc needs for that runtime, if it comes from rustup. Where that fails, there is
/// no runtime for the second machine, and its programs aren't tested.
pub fn add_runtime_target() {
    if found("rustup").is_none() {
        return;
    }
    let installed = output_of("rustup", &["target", "list", "--installed"]).unwrap_or_default();
    if installed.lines().any(|line| line == RUNTIME_TARGET) {
        return;
    }
    let added = Step::new(Path::new("/"), "rustup").args(["target", "add", RUNTIME_TARGET]).run();
    if let Err(error) = added {
        eprintln!("xtask: {error}; programs of 64-bit Arm aren't tested");
    }
}

/// How packages are installed: none may be removed for them.
const INSTALL: [&str; 5] = ["install", "-y", "-qq", "--no-install-recommends", "--no-remove"];

/// Makes sure that all packages are there.
///
/// # Errors
/// Where some are missing and can't be installed; as a sentence with the command that does it.
pub fn ensure(packages: &[Package]) -> Result<(), String> {
    let missing = missing(packages, |name| found(name).is_some(), &installed(packages));
    if missing.is_empty() {
        return Ok(());
    }
    let (needed, others): (Vec<Package>, Vec<Package>) =
        missing.into_iter().partition(|package| package.without.is_none());
    let names =
        |packages: &[Package]| packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ");
    let leave_out = |package: &Package, why: &str| {
        let without = package.without.unwrap_or_default();
        println!("{without}: {why}; to install it: sudo apt-get install {}", package.name);
    };
    let Some(apt) = apt_get() else {
        others.iter().for_each(|package| leave_out(package, &format!("{} is missing", package.name)));
        if needed.is_empty() {
            return Ok(());
        }
        let list = names(&needed);
        return Err(format!("these packages are missing; install them with: sudo apt-get install -y {list}"));
    };
    let run = |arguments: &[&str]| {
        let (program, first) = apt.split_first().expect("a program");
        Step::new(Path::new("/"), program).args(first.iter().chain(arguments)).run()
    };
    let install = |packages: &[Package]| {
        let names = packages.iter().map(|package| package.name);
        run(&INSTALL.into_iter().chain(names).collect::<Vec<_>>())
    };
    run(&["update", "-qq"])
        .map_err(|error| format!("{error}; these packages are needed: {}", names(&needed)))?;
    if !needed.is_empty() {
        install(&needed).map_err(|error| {
            let list = names(&needed);
            format!(
                "{error}; these packages are needed: {list}. Packages that are in their way aren't removed: see what \
                 `sudo apt-get install {list}` would remove, and decide"
            )
        })?;
    }
    for package in others {
        if install(&[package]).is_err() {
            leave_out(&package, &format!("{} can't be installed beside what is installed", package.name));
        }
    }
    Ok(())
}

/// Makes sure that cargo-nextest, which runs the tests, is there.
///
/// # Errors
/// It can't be built; as a sentence.
pub fn ensure_nextest() -> Result<(), String> {
    if found("cargo-nextest").is_some() {
        return Ok(());
    }
    Step::new(Path::new("/"), "cargo").args(["install", "--locked", "cargo-nextest"]).run()
}

/// Packages that aren't there. `is_found`: whether a program is in the search path; `installed`:
/// what dpkg has, `None` on a system without it, where libraries are taken to be there.
fn missing(
    packages: &[Package],
    is_found: impl Fn(&str) -> bool,
    installed: &Option<Vec<String>>,
) -> Vec<Package> {
    let is_there = |package: &Package| match (package.program, installed) {
        (Some(program), _) => is_found(program),
        (None, Some(installed)) => installed.iter().any(|name| name == package.name),
        (None, None) => true,
    };
    packages.iter().filter(|package| !is_there(package)).copied().collect()
}

/// Those of the packages that dpkg has installed; `None` where there is no dpkg.
fn installed(packages: &[Package]) -> Option<Vec<String>> {
    let mut command = Command::new("dpkg-query");
    command.args(["-W", "-f", "${db:Status-Status} ${Package}\\n"]);
    // It fails if it doesn't know one of them, and prints the others all the same.
    let output = command.args(packages.iter().map(|package| package.name)).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect())
}

/// The command that installs, if it asks nothing.
fn apt_get() -> Option<&'static [&'static str]> {
    if is_root() { Some(&["apt-get"]) } else { sudo_asks_nothing().then_some(&["sudo", "-n", "apt-get"]) }
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
    found("sudo").is_some() && output_of("sudo", &["-n", "true"]).is_some()
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_come_from_anywhere_and_a_library_is_asked_of_dpkg() {
        let packages = [program("npm", "npm"), library("libboost-context-dev"), library("python3-dev")];
        let missing = |has_npm: bool, installed: Option<&[&str]>| {
            let installed = installed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let missing = missing(&packages, |name| has_npm && name == "npm", &installed);
            missing.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(missing(true, Some(&["libboost-context-dev", "python3-dev"])), "");
        assert_eq!(missing(false, Some(&["libboost-dev", "npm"])), "npm libboost-context-dev python3-dev");
        assert_eq!(missing(false, None), "npm");
        assert!(found("sh").is_some() && found("no-such-program").is_none());
    }

    #[test]
    fn dpkg_tells_what_is_installed() {
        let asked = [library("dpkg"), library("no-such-package")];
        let expected = found("dpkg-query").map(|_| vec!["dpkg".to_owned()]);
        assert_eq!(installed(&asked), expected);
    }

    #[test]
    fn no_package_is_removed_for_another() {
        assert!(INSTALL.contains(&"--no-remove"));
    }
}
