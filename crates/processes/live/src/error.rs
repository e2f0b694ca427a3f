//! Why there is no snapshot, each as a sentence that ends in what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use everycall_format::arena::ARENA_VERSION;

/// Why no snapshot of a process can be taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no such process.
    NoProcess,
    /// It has ended, and its parent hasn't noticed yet.
    Ended,
    /// Only its own user and root may read its memory.
    NotOurs(io::Error),
    /// It has no memory of everycall.
    NotTraced,
    /// It has only that of the process that it was forked from.
    Inherited {
        /// That one's process id.
        from: u32,
    },
    /// It was built by another version.
    Version(u32),
    /// The memory is another process's or damaged: its numbers contradict themselves.
    Damaged,
    /// It is traced, but its memory can't be shared with other processes.
    Unreachable,
    /// Its recorder has ended, and its memory can't be reached without it.
    NoRecorder,
    /// Its crash file is no longer at its path.
    NoCrashFile(PathBuf),
    /// It lives in another IPC namespace.
    OtherNamespace,
    /// Its memory can't be mapped here.
    Map(io::Error),
    /// So many others have segments pinned of it.
    TooManyHolders(u32),
}

impl fmt::Display for LiveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::NoProcess => {
                out.write_str("there is no such process; `everycall ps` lists the traced processes")
            }
            LiveError::Ended => out.write_str(
                "the process has ended; to record a program that ends, start it with `everycall record`",
            ),
            LiveError::NotOurs(error) => write!(
                out,
                "only the process's own user and root may read it ({error}); run as one of these, for example with sudo"
            ),
            LiveError::NotTraced => out.write_str(
                "the process isn't traced: `everycall attach PID` traces it as it is, or build its program with \
                `everycall cc -- g++ ...`, then start it; `everycall ps` lists the traced processes",
            ),
            LiveError::Inherited { from } => write!(
                out,
                "the process is a forked child that is not recorded; for its parent's calls, take a snapshot of {from}"
            ),
            LiveError::Version(version) => write!(
                out,
                "the program was built by another version of everycall, with memory of version {version}, and \
                this one reads version {ARENA_VERSION}; use that version, or rebuild the program"
            ),
            LiveError::Damaged => out.write_str(
                "the process's trace memory is damaged: its sizes contradict each other; the program may have overwritten it. \
                 Restart the program",
            ),
            LiveError::Unreachable => out.write_str(
                "the process is traced, but its memory can't be reached from outside: the system refused it a shared segment \
                 (a seccomp filter, or the limits kernel.shmmax, shmall, shmmni); start it under `everycall record`",
            ),
            LiveError::NoRecorder => out.write_str(
                "the process's recorder is gone; only root can still read its memory (sudo)",
            ),
            LiveError::NoCrashFile(path) => write!(
                out,
                "the process's crash file {} was deleted or is in another container; root can still read its \
                memory (sudo)",
                path.display()
            ),
            LiveError::OtherNamespace => out.write_str(
                "the process is in another container (IPC namespace); run everycall in that container, or with \
                 `nsenter --target PID --ipc everycall snapshot PID`",
            ),
            LiveError::Map(error) => write!(
                out,
                "its memory can't be mapped: {error}; raise the address space limit (ulimit -v)"
            ),
            LiveError::TooManyHolders(count) => {
                write!(out, "{count} others are taking snapshots of it; try again when they are done")
            }
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LiveError::NotOurs(error) | LiveError::Map(error) => Some(error),
            _ => None,
        }
    }
}
