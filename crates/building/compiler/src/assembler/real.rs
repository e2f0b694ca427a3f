//! The real assembler: the one that the compiler would have run.
//!
//! gcc runs GNU `as`. clang has an integrated assembler, which supports everything that clang
//! writes. clang runs this step because an option made it use an external assembler, and is then
//! run again as that assembler.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::compiler::{self, Family};
use crate::mode::Step;

pub(super) enum Assembler {
    Gnu(PathBuf),
    Clang(PathBuf),
}

/// Options of `as` with a value in the next argument that clang accepts, too.
const ALIKE: [&[u8]; 2] = [b"-o", b"-I"];

impl Assembler {
    /// clang, if it runs this program; otherwise gcc's own folders come first, in gcc's order.
    pub(super) fn find(step: Step) -> Option<Assembler> {
        if let Some(clang) = parent().filter(|path| is_clang(path)) {
            return Some(Assembler::Clang(clang));
        }
        if step == Step::Marks {
            return of_gcc().map(Assembler::Gnu);
        }
        let folders = ["COMPILER_PATH", "PATH"].into_iter().filter_map(std::env::var_os);
        let folders: Vec<PathBuf> =
            folders.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).collect();
        compiler::find_in(folders.into_iter(), OsStr::new("as")).map(Assembler::Gnu)
    }

    pub(super) fn path(&self) -> &Path {
        let (Assembler::Gnu(path) | Assembler::Clang(path)) = self;
        path
    }

    /// Reads a compiler's text from standard input. clang warns about some of its own text
    /// (`inconsistent use of MD5 checksums`) when it reads it.
    pub(super) fn on_stdin(&self, args: &[OsString]) -> Command {
        let mut command = self.command(args, false);
        if let Assembler::Clang(_) = self {
            command.args(["-Xassembler", "--no-warn"]);
        }
        command.arg("-");
        command
    }

    /// Reads an unchanged file, which may be the user's.
    pub(super) fn on_file(&self, args: &[OsString], name: &OsStr) -> Command {
        let mut command = self.command(args, true);
        command.arg(name);
        command
    }

    /// Runs the assembler with unchanged arguments.
    pub(super) fn unchanged(&self, args: &[OsString]) -> Command {
        let mut command = match self {
            Assembler::Gnu(path) => Command::new(path),
            Assembler::Clang(_) => Command::new("as"),
        };
        command.args(args);
        command
    }

    fn command(&self, args: &[OsString], has_debug_options: bool) -> Command {
        let path = match self {
            Assembler::Gnu(path) => {
                let mut command = Command::new(path);
                command.args(args);
                return command;
            }
            Assembler::Clang(path) => path,
        };
        let mut command = Command::new(path);
        command.args(["-fintegrated-as", "-Qunused-arguments", "-c", "-x", "assembler"]);
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let bytes = arg.as_bytes();
            if ALIKE.contains(&bytes) {
                command.arg(arg).args(rest.next());
            } else if bytes == b"--64" {
                // The only supported architecture.
            } else if bytes.starts_with(b"-g") {
                // A compiler's text has its own line information.
                command.args(has_debug_options.then_some(arg));
            } else {
                command.arg("-Xassembler").arg(arg);
            }
        }
        command
    }
}

/// The assembler of the gcc that runs this program: cross-compilers have their own, whose folder
/// they don't hand on.
fn of_gcc() -> Option<PathBuf> {
    let gcc = parent()?;
    let beside = gcc.file_name().and_then(OsStr::to_str).and_then(assembler_beside);
    let beside = beside.map(|name| gcc.with_file_name(name)).filter(|path| path.exists());
    beside.or_else(|| {
        let answer = Command::new(&gcc).arg("-print-prog-name=as").stdin(Stdio::null()).output().ok()?;
        compiler::find_program(OsStr::from_bytes(answer.stdout.trim_ascii()))
    })
}

/// The name of the assembler beside a cross-compiler.
fn assembler_beside(gcc: &str) -> Option<String> {
    let target = ["-gcc", "-g++"].iter().find_map(|name| gcc.rfind(name)).map(|end| &gcc[..end])?;
    Some(format!("{target}-as"))
}

/// The program that runs this one.
fn parent() -> Option<PathBuf> {
    let parent = rustix::process::getppid()?;
    std::fs::read_link(format!("/proc/{}/exe", parent.as_raw_nonzero())).ok()
}

fn is_clang(path: &Path) -> bool {
    path.file_name().and_then(compiler::family_of_name) == Some(Family::Clang)
}

#[cfg(test)]
mod tests {
    use super::assembler_beside;

    #[test]
    fn cross_compilers_have_their_assembler_beside_them() {
        let name = assembler_beside("aarch64-linux-gnu-g++-12");
        assert_eq!(name.as_deref(), Some("aarch64-linux-gnu-as"));
        assert_eq!(assembler_beside("gcc-12"), None);
    }
}
