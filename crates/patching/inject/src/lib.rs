//! Changes a running process from outside: no library in it, no signal, no breakpoint.
//!
//! ```text
//! error, sys, procfs      sentences; ptrace; /proc/PID
//! maps, memory            where a region fits; reading and writing memory
//! thread                  one traced thread
//! frame, gadget, remote   system calls by a borrowed thread, which gets back by itself
//! region                  memory near a module
//! calm                    a thread that holds no locks of the C library
//! library                 loading a library
//! symbols, function       functions of the process that a borrowed thread calls
//! stacks                  where signal handlers return to
//! pages                   patches written page by page
//! patches, stopped        all threads stopped: patches written, threads moved; undone
//! refusal                 what can be known before anything is touched
//! process, start, tracer  what callers use
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use everycall_inject::{Access, PatchSet, Process, on_tracer};
//!
//! # let (pid, module, trampolines, sets) = (1, 0..1, vec![0u8], Vec::<PatchSet>::new());
//! let second = Duration::from_secs(1);
//! let outcomes = on_tracer(|| {
//!     let mut process = Process::open(pid)?;
//!     process.with_thread(second, |thread| thread.map_near(module, &trampolines, Access::Execute))?;
//!     process.with_all_stopped(second, |stopped| stopped.apply(&sets))
//! })?;
//! # Ok::<(), everycall_inject::InjectError>(())
//! ```
//!
//! The process is never left in a state that needs us: if this process is killed at any step, the
//! other one goes on and is right. `docs/design/untouched.md` says how.
//!
//! Not here: what is patched (`rewrite` plans it), hooks, symbols.
//!
//! Checked by: programs that check themselves while they are changed, blocked in each kind of
//! system call, parked inside of patches; the tracer killed before each of its requests.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod calm;
mod error;
mod frame;
mod function;
mod gadget;
mod library;
mod maps;
mod memory;
mod pages;
mod patches;
mod process;
mod procfs;
mod refusal;
mod region;
mod remote;
mod stacks;
mod start;
mod stopped;
mod symbols;
mod sys;
mod thread;
mod tracer;

pub use error::InjectError;
pub use maps::{Mapping, gap_near, mappings};
pub use patches::{Move, Outcome, Patch, PatchSet};
pub use process::{Process, Remote};
pub use refusal::{check, check_start};
pub use region::Access;
pub use start::{Started, start};
pub use stopped::Stopped;
pub use tracer::on_tracer;
