//! Why there is no snapshot, each as a sentence that ends in what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use everycall_format::arena::ARENA_VERSION;

/// Why a process can't be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no such process.
    NoProcess,
    /// It has ended, and its parent hasn't noticed yet.
    Ended,
    /// Its facts are for its own user and root alone.
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
    /// It is traced, but its memory is of the kind that nobody else can reach.
    Unreachable,
    /// Its recorder is gone, and with it the way to the memory.
    NoRecorder,
    /// Its crash file isn't at its path any more.
    NoCrashFile(PathBuf),
    /// It lives in another IPC namespace.
    OtherNamespace,
    /// Its memory can't be mapped here.
    Map(io::Error),
    /// So many others hold segments of it.
    TooManyHolders(u32),
}

impl fmt::Display for LiveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::NoProcess => {
                out.write_str("there is no such process; `everycall ps` lists those that can be asked")
            }
            LiveError::Ended => out.write_str(
                "the process has ended; to have the calls of programs that end, run them under `everycall record`",
            ),
            LiveError::NotOurs(error) => write!(
                out,
                "only the process's own user and root may look at it ({error}); ask as one of these, such as with sudo"
            ),
            LiveError::NotTraced => out.write_str(
                "the process isn't traced: build its program with `everycall cc -- g++ ...`, then start it; `everycall ps` \
                 lists those that can be asked",
            ),
            LiveError::Inherited { from } => write!(
                out,
                "the process is a forked child that isn't followed: it has its parent's memory and writes nothing there; ask \
                 {from} for the parent's calls"
            ),
            LiveError::Version(version) => write!(
                out,
                "the program was built by another version of everycall, with memory of version {version}, and this one reads \
                 version {ARENA_VERSION}; ask with that version, or build the program anew"
            ),
            LiveError::Damaged => out.write_str(
                "the process's memory of everycall is damaged: its sizes contradict each other; the program may have written \
                 over it, and has to be started anew",
            ),
            LiveError::Unreachable => out.write_str(
                "the process is traced, but its memory can't be reached from outside: the system refused it a shared segment \
                 (a seccomp filter, or the limits kernel.shmmax, shmall, shmmni); start it under `everycall record`",
            ),
            LiveError::NoRecorder => out.write_str(
                "the process's recorder is gone, and with it the way to its memory; root can still ask (sudo)",
            ),
            LiveError::NoCrashFile(path) => write!(
                out,
                "the process keeps its calls in {}, which isn't there any more or is in another container; root can still \
                 ask (sudo)",
                path.display()
            ),
            LiveError::OtherNamespace => out.write_str(
                "the process lives in another container (IPC namespace); ask from within it, or with \
                 `nsenter --target PID --ipc everycall snapshot PID`",
            ),
            LiveError::Map(error) => write!(
                out,
                "its memory can't be mapped: {error}; raise the limit of address space (ulimit -v), which is taken but hardly \
                 used"
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
