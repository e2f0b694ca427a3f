//! Why the runtime didn't do something.

use std::fmt;

/// A code of the runtime; its text says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    code: i32,
}

impl Error {
    /// This process has no runtime.
    pub const NOT_TRACED: Error = Error { code: -1 };
    /// An argument is out of its range.
    pub const ARGUMENT: Error = Error { code: -2 };
    /// The runtime is older than this crate.
    pub const OLD_RUNTIME: Error = Error { code: -7 };

    /// The result of a function of the runtime.
    pub(crate) fn of(code: i32) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error { code }) }
    }

    /// The number, as in `everycall.h`.
    #[must_use]
    pub fn code(self) -> i32 {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.code {
            -1 => "this process is not traced: build the program with `cargo everycall`",
            -2 => "an argument is out of its range: a path contains a zero byte, or a snapshot is gone",
            -3 => "everycall is busy in this thread or with other snapshots: call it again later",
            -4 => "this thread is not recorded",
            -5 => "there is no room",
            -6 => "the program was started with EVERYCALL_START=off, which its older runtime can't undo: link it again",
            -7 => "the program has an everycall runtime that is older than this crate: build it again",
            -8 => "the kernel has no memory for it: free memory, and try again",
            -9 => "the function that was given for the snapshot's bytes failed",
            -10 => "the trace file can't be made: a folder of its path isn't there; make the folder first",
            -11 => "the trace file can't be made: the process may not write into that folder; name another one",
            -12 => "the trace file can't be written: the disk, the quota or the limit of file sizes is full; make room",
            -13 => "the trace can't be written",
            _ => "an error that this crate doesn't know: it is older than the runtime",
        })
    }
}

impl std::error::Error for Error {}
