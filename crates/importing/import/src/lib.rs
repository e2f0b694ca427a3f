//! Traces of other tools, as trace files of everycall: what reads those serves them too.
//!
//! ```text
//! detect      path -> Format, by content
//! import      path -> .ect
//!   chrome    Chrome JSON: a scanner of JSON, events spooled and sorted, slices as calls
//!   device    rings of an emulated device with the TRACE instruction
//!   funtrace  funtrace's raw files: rings of addresses
//!   perf      perf script's text of Intel PT: calls and returns, or branches
//!   pt        perf's own file of Intel PT, decoded
//!   uftrace   uftrace's folders: a record file for each thread, maps and symbols
//!   xray      XRay's basic and FDR logs, functions by a binary's tables
//! output      processes, threads, names and events -> .ect, as they come
//! image       names without a binary, as a file with nothing but symbols
//! ```
//!
//! A source's times become ticks, with clock readings by what it says of its clock. What it says of
//! lost events becomes missing segments with their count. What it doesn't say isn't made up: it is
//! in the file's notes, which `everycall info` shows.
//!
//! No number in the input is trusted; input that doesn't make sense gives an error with its offset,
//! or, behind something of use, a note.
//!
//! Not here: guessing what a source doesn't tell.
//!
//! Checked by: the tools' own outputs of kept traces; every cut; fuzzing.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod binary;
mod chrome;
mod detect;
mod device;
mod error;
mod folder;
mod funtrace;
mod image;
mod input;
mod modules;
mod output;
mod perf;
mod pt;
mod uftrace;
mod xray;

use std::io::{BufReader, Write};
use std::path::Path;

use everycall_tracefile::Summary;

pub use detect::{Format, detect};
pub use error::ImportError;
pub use folder::{Folder, MemoryFolder};
pub use input::{ImportOptions, Input};
pub use xray::{FoundBinary, binary_of_log};

use crate::folder::DiskFolder;
use crate::input::BUFFER;
use crate::output::Output;

/// Imports the file or folder at `path`, which has this format, into a trace file. `tool_version`
/// is everycall's. The output should be buffered. Returns the file's summary; its warnings are the
/// import's notes.
///
/// # Errors
///
/// The source can't be read, or nothing in it makes sense; the output can't be written.
pub fn import(
    path: &Path,
    format: Format,
    options: &ImportOptions,
    output: impl Write,
    tool_version: &str,
) -> Result<Summary, ImportError> {
    if format == Format::Uftrace {
        return import_folder(&DiskFolder::new(path), options, output, tool_version);
    }
    let file = everycall_io::infile::open(path).map_err(|error| ImportError::Unreadable(None, error))?;
    let mut options = options.clone();
    options.written = file.metadata().and_then(|data| data.modified()).ok();
    // The parent of a bare name is empty: the current folder.
    options.folder = path.parent().map(Path::to_owned);
    let input = BufReader::with_capacity(BUFFER, file);
    import_bytes(input, format, &options, output, tool_version)
}

/// Imports bytes of this format into a trace file, as [`import`] does.
///
/// # Errors
///
/// As [`import`].
pub fn import_bytes(
    mut input: impl Input,
    format: Format,
    options: &ImportOptions,
    output: impl Write,
    tool_version: &str,
) -> Result<Summary, ImportError> {
    let mut out = Output::begin(output).map_err(ImportError::Unwritable)?;
    out.facts.from = format!("{} {}", format.description(), options.name);
    match format {
        Format::Chrome => chrome::read(&mut input, options, &mut out)?,
        Format::Device => device::read(&mut input, &mut out)?,
        Format::Funtrace => funtrace::read(&mut input, &mut out)?,
        Format::Perf => perf::read(&mut input, &mut out)?,
        Format::PerfData => pt::read(&mut input, options, &mut out)?,
        Format::XrayBasic | Format::XrayFdr => xray::read(&mut input, options, &mut out)?,
        Format::Uftrace => return Err(ImportError::Unknown(Some("a file, where uftrace has a folder"))),
    }
    out.end(tool_version).map(|(summary, _)| summary).map_err(ImportError::Unwritable)
}

/// Imports a folder of uftrace into a trace file, as [`import`] does.
///
/// # Errors
///
/// As [`import`].
pub fn import_folder(
    folder: &dyn Folder,
    options: &ImportOptions,
    output: impl Write,
    tool_version: &str,
) -> Result<Summary, ImportError> {
    let mut out = Output::begin(output).map_err(ImportError::Unwritable)?;
    out.facts.from = format!("{} {}", Format::Uftrace.description(), options.name);
    uftrace::read(folder, &mut out)?;
    out.end(tool_version).map(|(summary, _)| summary).map_err(ImportError::Unwritable)
}
