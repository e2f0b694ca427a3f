//! Why a process couldn't be changed.

use std::fmt;
use std::io;

/// Each message is a sentence without a period, for a user.
#[derive(Debug)]
#[non_exhaustive]
pub enum InjectError {
    /// The process can't or mustn't be changed. Nothing was touched.
    Refused(String),
    /// A thread didn't stop in time. All threads go on as before.
    NotStopped {
        /// The thread.
        tid: i32,
        /// Its state in `/proc`.
        state: char,
    },
    /// A function that a thread was to call hasn't returned in time. When it returns, the thread
    /// goes back to what it did.
    NotReturned {
        /// The thread.
        tid: i32,
    },
    /// An instruction of a function that a thread was to call failed. The thread was led back to
    /// what it did; locks that the function held stay locked.
    Faulted {
        /// The thread.
        tid: i32,
        /// `SIGSEGV`, for instance.
        signal: i32,
    },
    /// The process or its last thread ended meanwhile.
    Ended {
        /// The process.
        pid: i32,
    },
    /// The kernel refused a request.
    System {
        /// The attempt.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for InjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::NotStopped { tid, state: 'D' } => {
                write!(
                    f,
                    "thread {tid} can't be stopped: it waits in the kernel, for a device or a child of vfork (state D)"
                )
            }
            Self::NotStopped { tid, state } => {
                write!(f, "thread {tid} could not be stopped in time (state {state})")
            }
            Self::NotReturned { tid } => {
                write!(
                    f,
                    "thread {tid} is still in the function that it was to call, and goes on when that ends"
                )
            }
            Self::Faulted { tid, signal } => {
                write!(f, "the function that thread {tid} was to call failed with signal {signal}")
            }
            Self::Ended { pid } => write!(f, "process {pid} has ended"),
            Self::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl InjectError {
    /// Whether something is mapped already where memory was to be mapped.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::System { error, .. } if error.raw_os_error() == Some(libc::EEXIST))
    }
}

impl std::error::Error for InjectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Names the attempt that an error of the kernel belongs to.
pub(crate) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> InjectError {
    move |error| InjectError::System { what, error }
}
