//! Which compiler a command runs: its family and its path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The two kinds of compilers that the prefix supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// gcc, g++ and their versioned and target-prefixed names.
    Gcc,
    /// clang, clang++ and their versioned and target-prefixed names.
    Clang,
}

impl Family {
    /// The compiler's usual name, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gcc => "gcc",
            Family::Clang => "clang",
        }
    }
}

/// Programs that run a compiler, or return its result from a cache.
const LAUNCHERS: [&str; 5] = ["ccache", "sccache", "distcc", "icecc", "buildcache"];

/// The parts of a command line: `[launcher...] compiler arguments...`.
pub struct CommandLine {
    /// Launchers with their own options, as given.
    pub launchers: Vec<OsString>,
    /// The compiler as given.
    pub compiler: OsString,
    /// The compiler's arguments.
    pub args: Vec<OsString>,
}

impl CommandLine {
    /// Splits a command into launchers, compiler and arguments; `None` if there is no compiler in it.
    pub fn split(command: Vec<OsString>) -> Option<CommandLine> {
        let at = compiler_index(&command)?;
        let mut launchers = command;
        let args = launchers.split_off(at + 1);
        let compiler = launchers.pop()?;
        Some(CommandLine { launchers, compiler, args })
    }
}

fn compiler_index(command: &[OsString]) -> Option<usize> {
    let mut at = 0;
    while is_launcher(command.get(at)?) {
        at += 1;
        // ccache takes settings as KEY=VALUE before the compiler.
        while command.get(at).is_some_and(|word| word.as_bytes().contains(&b'=')) {
            at += 1;
        }
    }
    command.get(at).map(|_| at)
}

fn is_launcher(word: &OsStr) -> bool {
    Path::new(word).file_name().is_some_and(|name| LAUNCHERS.iter().any(|launcher| name == *launcher))
}

/// The launcher that takes `everycall cc` for a compiler: the program that runs this one, if its
/// command line is `[launcher...] everycall cc ...`. Such a launcher takes `cc` and `--` for
/// arguments of a compiler, and moves them.
pub fn launcher_in_front() -> Option<OsString> {
    let parent = std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id())).ok()?;
    let words = parent.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    launcher_of(words.collect(), |program| find_real(program).is_some_and(|path| is_this_program(&path)))
}

/// The first launcher of a command line that has this program where a compiler should be, and `cc`
/// behind it.
fn launcher_of(command: Vec<OsString>, is_this: impl Fn(&OsStr) -> bool) -> Option<OsString> {
    let line = CommandLine::split(command)?;
    let is_wrong = line.args.first().is_some_and(|word| word == "cc") && is_this(&line.compiler);
    line.launchers.into_iter().next().filter(|_| is_wrong)
}

/// The family of a compiler by its name, such as `g++-12` behind a machine's name, or `clang++-19`.
pub fn family_of_name(name: &OsStr) -> Option<Family> {
    let name = name.to_str()?;
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let word = bare.rsplit_once('-').map_or(bare, |(_, word)| word);
    match word {
        "gcc" | "g++" => Some(Family::Gcc),
        "clang" | "clang++" => Some(Family::Clang),
        _ => None,
    }
}

/// Whether a compiler links the C++ library by default, according to its name.
pub fn links_cxx(compiler: &Path) -> bool {
    compiler.file_name().and_then(OsStr::to_str).is_some_and(|name| {
        name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-').ends_with("++")
    })
}

/// The family of a compiler: by its name, by the target of a link (`cc`), or by asking it.
pub fn family_of(compiler: &Path) -> Option<Family> {
    let by_name = |path: &Path| path.file_name().and_then(family_of_name);
    by_name(compiler)
        .or_else(|| by_name(&compiler.canonicalize().ok()?))
        .or_else(|| family_of_answer(compiler))
}

/// Asks for the version, because wrappers of compilers (`mpicc`) pass that on.
fn family_of_answer(compiler: &Path) -> Option<Family> {
    let answer = Command::new(compiler).arg("-v").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&answer.stderr);
    if text.contains("clang version") {
        Some(Family::Clang)
    } else if text.contains("gcc version") {
        Some(Family::Gcc)
    } else {
        None
    }
}

/// Finds a program as a shell does: a word with a slash is a path, others are looked up in `PATH`.
/// Never finds this program itself, so that a link named like a compiler can't call itself for ever.
pub fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return is_program(&path).then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    find_in(std::env::split_paths(&path), name)
}

/// The program that a shell would run, also if it is this one.
fn find_real(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// The first folder's program of that name that isn't this one.
pub fn find_in(folders: impl Iterator<Item = PathBuf>, name: &OsStr) -> Option<PathBuf> {
    folders.map(|folder| folder.join(name)).find(|path| is_program(path) && !is_this_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn is_this_program(path: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    identity(path).is_some() && identity(path) == identity(Path::new("/proc/self/exe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_family() {
        for name in ["gcc", "g++", "gcc-12", "x86_64-linux-gnu-g++-12", "g++-13.2"] {
            assert_eq!(family_of_name(OsStr::new(name)), Some(Family::Gcc), "{name}");
        }
        for name in ["clang", "clang++", "clang-19", "clang++-22", "x86_64-pc-linux-gnu-clang++"] {
            assert_eq!(family_of_name(OsStr::new(name)), Some(Family::Clang), "{name}");
        }
        for name in ["cc", "gcc-ar", "clang-tidy-19", "clang-cpp", "ld", "", "-"] {
            assert_eq!(family_of_name(OsStr::new(name)), None, "{name}");
        }
    }

    #[test]
    fn launchers_stand_before_the_compiler() {
        let split = |text: &str| {
            let line = CommandLine::split(text.split(' ').map(OsString::from).collect())?;
            Some((line.launchers.len(), line.compiler, line.args.len()))
        };
        assert_eq!(split("gcc -c a.c"), Some((0, "gcc".into(), 2)));
        assert_eq!(
            split("/usr/bin/ccache gcc -c"),
            Some((1, "/usr/bin/gcc".replace("/usr/bin/", "").into(), 1))
        );
        assert_eq!(split("ccache debug=true distcc g++"), Some((3, "g++".into(), 0)));
        assert_eq!(split("ccache"), None);
        let launcher = |text: &str| {
            launcher_of(text.split(' ').map(OsString::from).collect(), |program| program == "everycall")
        };
        assert_eq!(launcher("ccache everycall cc -- gcc -c a.c"), Some("ccache".into()));
        assert_eq!(launcher("/usr/bin/distcc everycall cc gcc"), Some("/usr/bin/distcc".into()));
        for right in
            ["everycall cc -- ccache gcc", "ccache gcc -c a.c", "ccache everycall", "make CC=everycall"]
        {
            assert_eq!(launcher(right), None, "{right}");
        }
    }
}
