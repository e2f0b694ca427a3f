//! Outputs of verbs: their paths, and the traces that a verb reads and writes.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use everycall_export::{Calendar, NameLength};
use everycall_io::outfile::{Existing, MODE_PRIVATE, OutFile, OutFileError};
use everycall_io::terminal::{self, Escapes};
use everycall_recorder::Summary;
use nix::sys::signal::Signal;
use rustix::termios::tcgetwinsize;

use crate::arguments::Force;
use crate::exit_code;
use crate::failure::Failure;

/// Bytes gathered before they are written.
pub const BUFFER: usize = 256 << 10;

/// Where an output goes.
#[derive(Clone, Debug)]
pub struct Destination {
    pub path: PathBuf,
    /// Whether the user named it: otherwise, links there aren't followed.
    is_chosen: bool,
    existing: Existing,
}

impl Destination {
    /// The output that the user named, or `default`.
    pub fn new(asked: Option<&Path>, force: Force, default: impl FnOnce() -> PathBuf) -> Destination {
        Destination::of_process(std::process::id(), asked, force, default)
    }

    /// As [`Destination::new`], where `%p` is this process.
    pub fn of_process(
        pid: u32,
        asked: Option<&Path>,
        force: Force,
        default: impl FnOnce() -> PathBuf,
    ) -> Destination {
        let existing = Existing { is_forced: force.force, is_kept: false };
        let path = asked.map(|path| filled_in(path, pid));
        Destination { is_chosen: path.is_some(), path: path.unwrap_or_else(default), existing }
    }

    /// For what can't be made again: an existing recording of this name becomes `NAME.old`.
    #[must_use]
    pub fn keeping_old(mut self) -> Destination {
        self.existing.is_kept = true;
        self
    }

    /// An output that the user didn't name.
    pub fn by_default(path: PathBuf) -> Destination {
        Destination { path, is_chosen: false, existing: Existing::default() }
    }

    /// Opens it.
    pub fn open(&self, mode: u32) -> Result<OutFile, OutFileError> {
        let create = if self.is_chosen { OutFile::create } else { OutFile::create_by_default };
        create(&self.path, mode, self.existing)
    }

    /// Fails if it is `input`, which would be overwritten.
    pub fn is_not(&self, input: &Path) -> Result<(), Failure> {
        match (identity(&self.path), identity(input)) {
            (Some(output), Some(input)) if output == input => Err(Failure::new(
                exit_code::USAGE,
                format!(
                    "{} is the input, and would be overwritten; name another file with -o",
                    self.path.display()
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// The name that the user meant: `%p` is a process id, `%t` the local time, `%%` a percent sign.
fn filled_in(path: &Path, pid: u32) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        let (text, taken) = match (first, behind.first()) {
            (b'%', Some(b'p')) => (pid.to_string(), 2),
            (b'%', Some(b't')) => (Calendar::local().file_name(SystemTime::now()), 2),
            (b'%', Some(b'%')) => ("%".to_owned(), 2),
            _ => (String::new(), 1),
        };
        if taken == 1 {
            name.push(*first);
        }
        name.extend_from_slice(text.as_bytes());
        rest = &rest[taken..];
    }
    PathBuf::from(OsString::from_vec(name))
}

/// The room that text for people has.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Columns of a line; `None` if lines may have any length.
    pub width: Option<usize>,
    /// How much of functions' names is shown.
    pub names: NameLength,
}

impl Room {
    /// As wide as the terminal, if there is one.
    pub fn of_terminal(names: NameLength) -> Room {
        Room { width: terminal_width(), names }
    }
}

/// A table as text. Columns are right-aligned, except for `at_the_left` and the last one.
pub fn lines<const N: usize>(rows: &[[String; N]], at_the_left: &[usize]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if column + 1 == N {
                text.push_str(cell);
                continue;
            }
            let space = std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()));
            if at_the_left.contains(&column) {
                text.push_str(cell);
                text.extend(space);
            } else {
                text.extend(space);
                text.push_str(cell);
            }
            text.push_str("  ");
        }
        text.push('\n');
    }
    text
}

/// Identifies the file that `path` leads to: device and inode. `None` if it isn't a regular file.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().filter(|data| data.is_file()).map(|data| (data.dev(), data.ino()))
}

/// A text of others on one line, without characters that could steer a terminal.
pub fn clean(text: &str) -> String {
    terminal::line(text).into_owned()
}

/// Writes text to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    print_as(Escapes::Text, text)
}

/// Writes text to standard output, where it may be JSON.
pub fn print_as(escapes: Escapes, text: &str) -> Result<(), Failure> {
    let mut out = terminal::stdout(escapes);
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::writing_to_stdout)
}

/// An output that appears under its name only when it is complete.
pub struct Output<'a> {
    path: &'a Path,
    file: OutFile,
}

impl<'o> Output<'o> {
    /// Creates the file with access for its owner only.
    pub fn create(destination: &'o Destination) -> Result<Output<'o>, Failure> {
        Ok(Output { path: &destination.path, file: destination.open(MODE_PRIVATE)? })
    }

    /// The path and the file, for a verb that gives it its name earlier.
    pub fn into_parts(self) -> (&'o Path, OutFile) {
        (self.path, self.file)
    }

    /// Calls `write` to write it, and then gives it its name.
    pub fn write(
        self,
        write: impl FnOnce(&mut BufWriter<OutFile>) -> io::Result<Summary>,
    ) -> Result<Summary, Failure> {
        let failed = |error| Failure::writing(self.path, error);
        let mut buffered = BufWriter::with_capacity(BUFFER, self.file);
        let summary = write(&mut buffered).map_err(failed)?;
        buffered.into_inner().map_err(|error| failed(error.into_error()))?.finish()?;
        Ok(summary)
    }
}

/// Columns of the terminal that standard output is; `None` if it is none, or doesn't say.
pub fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    let size = if stdout.is_terminal() { tcgetwinsize(&stdout).ok() } else { None };
    size.map(|size| size.ws_col.into()).filter(|width| *width > 0)
}

/// The name of a signal in parentheses, after its number.
pub fn signal_name(signal: u32) -> String {
    let known = i32::try_from(signal).ok().and_then(|signal| Signal::try_from(signal).ok());
    known.map(|signal| format!(" ({})", signal.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_of_columns_is_found_once() {
        // Found for each row, this would take hours.
        let rows: Vec<[String; 3]> =
            (0..200_000).map(|row: u32| [row.to_string(), format!("f{row}"), "x".to_owned()]).collect();
        let text = lines(&rows, &[1]);
        assert!(text.starts_with("     0  f0       x\n"), "{}", &text[..40]);
        assert!(text.ends_with("199999  f199999  x\n"));
    }
}
