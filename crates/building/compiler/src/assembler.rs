//! The assembler step: compilers run it as `as`, and it runs the real assembler.
//!
//! In mode `nops` it turns hook calls into sites. In `fentry` and `xray` it leaves hook calls and
//! sleds as they are. In all three it completes the unwind information at exits. In `trace-insn` it
//! turns hook calls and sleds into TRACE instructions. On 64-bit Arm, where gcc only marks entries,
//! mode `nops` makes sites of marks and of the instructions that leave functions. The folder that
//! it is run from names the mode, see [`Toolbox`](crate::toolbox::Toolbox).
//!
//! | text | what happens |
//! |---|---|
//! | without hook calls (assembler sources, objects for link-time optimisation) | the real assembler replaces this process and reads the file |
//! | small | rewritten in memory, then the real assembler replaces this process |
//! | large | rewritten into a pipe while the assembler works |
//!
//! None of them leaves a temporary file behind.

mod arguments;
mod exits;
mod frames;
mod leave_out;
mod lines;
mod marks;
mod real;
mod rewriter;
mod sections;
mod sleds;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use everycall_io::say;

use crate::exit_code::{EXIT_NOT_FOUND, EXIT_NOT_RUN};
use crate::mode::Step;
use crate::toolbox;
use arguments::{Arguments, Input};
use real::Assembler;

pub use rewriter::rewrite;

/// The initial size of a pipe's buffer: larger chunks would only wait in it.
const CHUNK_BYTES: usize = 64 << 10;

/// Rewriting texts up to this size takes less time than starting a process.
const SMALL_BYTES: usize = 64 << 10;

/// The option by which the compiler prefix passes the functions to leave out: a file of rules.
pub(crate) const LIST_ARGUMENT: &str = "--everycall-list=";

/// Whether a program name is the one under which gcc runs the assembler step.
pub fn is_assembler_name(name: &OsStr) -> bool {
    name == "as"
}

fn concerns(step: Step, text: &[u8]) -> bool {
    match step {
        Step::Sites => rewriter::has_hook_calls(text),
        Step::Traces => rewriter::has_hook_calls(text),
        Step::Exits => exits::are_in(text),
        Step::Sleds => sleds::are_in(text),
        Step::Marks => marks::are_in(text),
    }
}

fn run(step: Step, text: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<()> {
    match step {
        Step::Sites => rewrite(text, out),
        Step::Traces => rewriter::rewrite_to_traces(text, out),
        Step::Exits => lines::feed(text, exits::Exits::new(out)),
        Step::Sleds => lines::feed(text, sleds::Sleds::new(out)),
        Step::Marks => lines::feed(text, marks::Marks::new(out)),
    }
}

/// Does the work of `as ARGS` on text rewritten by the step that `called_as` selects.
pub fn as_main(called_as: &OsStr, args: Vec<OsString>) -> ExitCode {
    let step = toolbox::step_of(Path::new(called_as));
    let Some(assembler) = Assembler::find(step) else {
        say!(
            "everycall: no assembler `as` was found in COMPILER_PATH or PATH; install the compiler's binutils package"
        );
        return ExitCode::from(EXIT_NOT_FOUND);
    };
    match assemble(step, &assembler, &args) {
        Ok(status) => mirror(status),
        Err(error) => {
            say!("everycall: the assembler step failed with `{}`: {error}", assembler.path().display());
            ExitCode::from(EXIT_NOT_RUN)
        }
    }
}

fn assemble(step: Step, assembler: &Assembler, args: &[OsString]) -> io::Result<ExitStatus> {
    let mut args = args.to_vec();
    let lists: Vec<OsString> =
        args.extract_if(.., |arg| arg.as_bytes().starts_with(LIST_ARGUMENT.as_bytes())).collect();
    let args = &args;
    let parsed = Arguments::read(args);
    if let Some(list) = lists.last() {
        let list = Path::new(OsStr::from_bytes(&list.as_bytes()[LIST_ARGUMENT.len()..]));
        let selection = leave_out::selection(list)?;
        let (text, name) = match &parsed.input {
            Input::Stdin => {
                let mut text = Vec::new();
                io::stdin().lock().read_to_end(&mut text)?;
                (Some(text), None)
            }
            Input::File(name) => {
                (read_text(name).filter(|text| concerns(step, text)), Some(name.as_os_str()))
            }
            Input::Other => (None, None),
        };
        if let Some(text) = text {
            let text = leave_out::apply(text, &selection);
            return feed(step, start(assembler.on_stdin(&parsed.others))?, &mut &text[..], name);
        }
    }
    match parsed.input {
        Input::Stdin => {
            let child = start(assembler.on_stdin(&parsed.others))?;
            feed(step, child, &mut BufReader::with_capacity(CHUNK_BYTES, io::stdin().lock()), None)
        }
        Input::File(name) => match read_text(&name) {
            Some(text) if concerns(step, &text) => {
                if text.len() <= SMALL_BYTES
                    && let Ok(rewritten) = in_memory(step, &text, &name)
                {
                    return Err(assembler.on_stdin(&parsed.others).stdin(rewritten).exec());
                }
                feed(step, start(assembler.on_stdin(&parsed.others))?, &mut &text[..], Some(&name))
            }
            _ => Err(assembler.on_file(&parsed.others, &name).exec()),
        },
        Input::Other => Err(assembler.unchanged(args).exec()),
    }
}

/// The file's text; if it can't be read, the real assembler reports it.
fn read_text(name: &OsStr) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(name).and_then(|mut file| file.read_to_end(&mut text)).ok().map(|_| text)
}

/// The rewritten text in an unnamed file.
fn in_memory(step: Step, text: &[u8], name: &OsStr) -> io::Result<File> {
    let file = rustix::fs::memfd_create("everycall", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, File::from(file));
    line_marker(&mut out, Some(name))?;
    run(step, &mut &*text, &mut out)?;
    let mut file = out.into_inner()?;
    file.rewind()?;
    Ok(file)
}

fn start(mut assembler: Command) -> io::Result<Child> {
    assembler.stdin(Stdio::piped()).spawn()
}

fn feed(
    step: Step,
    mut child: Child,
    text: &mut dyn BufRead,
    name: Option<&OsStr>,
) -> io::Result<ExitStatus> {
    let written = match child.stdin.take() {
        Some(pipe) => {
            let mut pipe = BufWriter::with_capacity(CHUNK_BYTES, pipe);
            line_marker(&mut pipe, name).and_then(|()| run(step, text, &mut pipe)).and_then(|()| pipe.flush())
        }
        None => Ok(()),
    };
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // An incomplete text must not become an object that seems complete.
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    child.wait()
}

/// Makes diagnostics name the file that gcc passed.
fn line_marker(pipe: &mut dyn Write, name: Option<&OsStr>) -> io::Result<()> {
    match name.and_then(OsStr::to_str) {
        Some(name) if !name.contains(['"', '\\', '\n']) => writeln!(pipe, "# 1 \"{name}\""),
        _ => Ok(()),
    }
}

/// Ends in the same way as the child, by a signal if the child did.
fn mirror(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal().and_then(rustix::process::Signal::from_named_raw) {
        // Prevents a core of this process in addition to the assembler's.
        let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, limit);
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    ExitCode::from(status.code().map_or(1, |code| code.clamp(0, 255) as u8))
}
