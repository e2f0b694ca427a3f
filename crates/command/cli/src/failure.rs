//! A failure: one sentence and an exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use everycall_io::outfile::OutFileError;
use everycall_io::say;
use everycall_recorder::RecordError;

use crate::exit_code;

/// Why a verb failed.
#[derive(Debug)]
pub struct Failure {
    /// The problem, the expectation, and a remedy.
    sentence: String,
    code: u8,
    /// Whether to print nothing, because the reader of a pipe has closed it.
    quiet: bool,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(code: u8, sentence: impl fmt::Display) -> Failure {
        Failure { sentence: sentence.to_string(), code, quiet: false }
    }

    /// The file at `path` can't be used, for this reason.
    pub fn of(path: &Path, reason: impl fmt::Display) -> Failure {
        Failure::new(exit_code::FAILED, format!("{}: {reason}", path.display()))
    }

    /// Something could not be written to `path`.
    pub fn writing(path: &Path, error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { sentence: String::new(), code: 0, quiet: true };
        }
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space or name another disk with -o"
            }
            io::ErrorKind::FileTooLarge => "; raise the limit (ulimit -f), or ask for less",
            _ => "; name another file with -o",
        };
        Failure::new(exit_code::FAILED, format!("can't write {}: {error}{advice}", path.display()))
    }

    /// Something could not be written to standard output.
    pub fn writing_to_stdout(error: io::Error) -> Failure {
        Failure::writing(Path::new("standard output"), error)
    }

    /// The problem, the expectation, and a remedy.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// This failure with another exit code.
    #[must_use]
    pub fn with_code(self, code: u8) -> Failure {
        if self.quiet { self } else { Failure { code, ..self } }
    }

    /// Whether it prints nothing.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints the sentence. Returns the exit code.
    pub fn report(&self) -> ExitCode {
        if self.quiet {
            return exit_code::closed_pipe();
        }
        say!("everycall: {}", self.sentence);
        ExitCode::from(self.code)
    }
}

impl From<OutFileError> for Failure {
    fn from(error: OutFileError) -> Failure {
        let quiet = error.is_broken_pipe();
        Failure { quiet, ..Failure::new(exit_code::FAILED, error) }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Failure {
        let code = match error {
            RecordError::NotFound { .. } => exit_code::NOT_FOUND,
            RecordError::NotExecutable { .. } => exit_code::NOT_EXECUTABLE,
            _ => exit_code::NOT_RECORDED,
        };
        Failure::new(code, error)
    }
}
