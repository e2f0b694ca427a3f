//! Errors of a recording, each as a sentence that ends in a remedy.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

/// Why there is no recording.
#[derive(Debug)]
pub enum RecordError {
    /// No arena of even the smallest size.
    Arena {
        /// Bytes of each ring.
        ring_size: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A limit of the process forbids even the smallest arena.
    Limit {
        /// `RLIMIT_AS` or `RLIMIT_FSIZE`.
        limit: &'static str,
        /// The shell's command that shows and changes it.
        command: &'static str,
        /// Its value in bytes.
        bytes: u64,
        /// Bytes that the smallest arena needs.
        needed: u64,
    },
    /// The program isn't there (a shell's status 127).
    NotFound {
        /// As the user wrote it.
        program: OsString,
        /// Whether a file of this name is there, so that its interpreter must be what is missing.
        exists: bool,
    },
    /// The program is there, but can't be run (a shell's status 126).
    NotExecutable {
        /// As the user wrote it.
        program: OsString,
        /// The system's error.
        source: io::Error,
    },
    /// The program could not be started or waited for.
    System {
        /// The attempt, as in "can't *wait for the program*".
        attempt: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Arena { ring_size, source } => {
                write!(out, "can't make shared memory for rings of {ring_size} bytes: {source}; ")?;
                match source.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        write!(out, "raise the limit of open files (ulimit -n)")
                    }
                    _ => write!(out, "try a smaller --ring-size, such as 64K"),
                }
            }
            RecordError::Limit { limit, command, bytes, needed } => write!(
                out,
                "{limit} is {bytes} bytes, and rings of this size need {needed} at least; raise it with `{command}`, or \
                 choose a smaller --ring-size (not below 64K)"
            ),
            RecordError::NotFound { program, exists: false } => write!(
                out,
                "{} does not exist; name a program on PATH, or give its path, such as ./app",
                program.display()
            ),
            RecordError::NotFound { program, exists: true } => write!(
                out,
                "{} can't be started, because its interpreter does not exist; \
                 see its first line, or `readelf -l` for PT_INTERP",
                program.display()
            ),
            RecordError::NotExecutable { program, source } => {
                if Path::new(program).is_dir() {
                    return write!(out, "{} is a folder; name a program", program.display());
                }
                let program = program.display();
                write!(out, "{program} can't be executed: {source}; ")?;
                match source.kind() {
                    io::ErrorKind::PermissionDenied => {
                        write!(out, "name a program, and make sure that it is executable (chmod +x)")
                    }
                    _ => write!(out, "name a program or a script for this machine"),
                }
            }
            RecordError::System { attempt, source } => {
                write!(out, "can't {attempt}: {source}")?;
                match source.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        write!(out, "; raise the limit of open files (ulimit -n)")
                    }
                    Some(libc::EAGAIN) => {
                        write!(out, "; raise the limit of processes (ulimit -u), or end some")
                    }
                    Some(libc::E2BIG) => {
                        write!(out, "; its arguments and environment are too large: shorten them")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecordError::Arena { source, .. }
            | RecordError::NotExecutable { source, .. }
            | RecordError::System { source, .. } => Some(source),
            RecordError::Limit { .. } | RecordError::NotFound { .. } => None,
        }
    }
}
