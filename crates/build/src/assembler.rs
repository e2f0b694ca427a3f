//! The assembler step of mode `nops`: gcc runs it as `as`; it turns hook calls into sites on the way to the real one.
//!
//! Text without hook calls (assembler sources, link-time-optimisation objects) isn't touched: the real assembler takes this program's
//! place. So it does where the text is small: it reads the rewritten text from memory, and there is no second process to start and
//! wait for. Else the text goes through a pipe, and is rewritten while the assembler works. In neither case is there a temporary file to leave
//! behind.

mod arguments;
mod rewriter;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use everycall_messages::say;

use crate::{EXIT_NOT_FOUND, EXIT_NOT_RUN, compiler};
use arguments::{Arguments, Input};

pub use rewriter::rewrite;

/// As large as a pipe's buffer is at first: more would only wait in it.
const CHUNK_BYTES: usize = 64 << 10;

/// Texts up to here are rewritten in less time than it takes to start a process.
const SMALL_BYTES: usize = 64 << 10;

/// Whether a program name is the one under which gcc runs the assembler step.
pub fn is_assembler_name(name: &OsStr) -> bool {
    name == "as"
}

/// Does what `as ARGS` does, with hook calls made into sites.
pub fn as_main(args: Vec<OsString>) -> ExitCode {
    let Some(assembler) = real_assembler() else {
        say!("everycall: no assembler `as` was found in COMPILER_PATH or PATH; install the binutils package");
        return ExitCode::from(EXIT_NOT_FOUND);
    };
    match assemble(&assembler, &args) {
        Ok(status) => mirror(status),
        Err(error) => {
            say!("everycall: the assembler step failed with `{}`: {error}", assembler.display());
            ExitCode::from(EXIT_NOT_RUN)
        }
    }
}

/// The assembler that gcc would have run: gcc's own folders come first, in the order it gives them.
fn real_assembler() -> Option<PathBuf> {
    let folders = ["COMPILER_PATH", "PATH"].into_iter().filter_map(std::env::var_os);
    let folders: Vec<PathBuf> =
        folders.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).collect();
    compiler::find_in(folders.into_iter(), OsStr::new("as"))
}

fn assemble(assembler: &Path, args: &[OsString]) -> io::Result<ExitStatus> {
    let parsed = Arguments::read(args);
    match parsed.input {
        Input::Stdin => {
            let child = start(assembler, &parsed.others)?;
            feed(child, &mut BufReader::with_capacity(CHUNK_BYTES, io::stdin().lock()), None)
        }
        Input::File(name) => match read_text(&name) {
            Some(text) if rewriter::has_hook_calls(&text) => {
                if text.len() <= SMALL_BYTES
                    && let Ok(rewritten) = in_memory(&text, &name)
                {
                    return Err(Command::new(assembler)
                        .args(&parsed.others)
                        .arg("-")
                        .stdin(rewritten)
                        .exec());
                }
                feed(start(assembler, &parsed.others)?, &mut &text[..], Some(&name))
            }
            _ => Err(Command::new(assembler).args(args).exec()),
        },
        Input::Other => Err(Command::new(assembler).args(args).exec()),
    }
}

/// The file's text; where it can't be read, the real assembler will say so.
fn read_text(name: &OsStr) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(name).and_then(|mut file| file.read_to_end(&mut text)).ok().map(|_| text)
}

/// The rewritten text as a file that has no name.
fn in_memory(text: &[u8], name: &OsStr) -> io::Result<File> {
    let file = rustix::fs::memfd_create("everycall", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, File::from(file));
    line_marker(&mut out, Some(name))?;
    rewrite(&mut &*text, &mut out)?;
    let mut file = out.into_inner()?;
    file.rewind()?;
    Ok(file)
}

fn start(assembler: &Path, args: &[OsString]) -> io::Result<Child> {
    Command::new(assembler).args(args).arg("-").stdin(Stdio::piped()).spawn()
}

fn feed(mut child: Child, text: &mut dyn BufRead, name: Option<&OsStr>) -> io::Result<ExitStatus> {
    let written = match child.stdin.take() {
        Some(pipe) => {
            let mut pipe = BufWriter::with_capacity(CHUNK_BYTES, pipe);
            line_marker(&mut pipe, name).and_then(|()| rewrite(text, &mut pipe)).and_then(|()| pipe.flush())
        }
        None => Ok(()),
    };
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Half a text must not become an object that looks whole.
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    child.wait()
}

/// Makes diagnostics name the file that gcc handed over.
fn line_marker(pipe: &mut dyn Write, name: Option<&OsStr>) -> io::Result<()> {
    match name.and_then(OsStr::to_str) {
        Some(name) if !name.contains(['"', '\\', '\n']) => writeln!(pipe, "# 1 \"{name}\""),
        _ => Ok(()),
    }
}

/// Ends as the child ended, by a signal if it was one.
fn mirror(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal().and_then(rustix::process::Signal::from_named_raw) {
        // Without a core of this program beside the assembler's own.
        let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, limit);
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    ExitCode::from(status.code().map_or(1, |code| code.clamp(0, 255) as u8))
}
