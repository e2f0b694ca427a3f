//! The process that owns the arenas: it starts the program, waits for its end and writes the trace file.
//!
//! ```text
//! Recorder::create ──> start ──> Running::wait ───────> Ended::write
//!   hub, spare arenas   fork,      processes come and go, .ect from what the arenas hold
//!                       exec       names, clocks, files
//! ```
//!
//! Layers, each of which imports downwards only (a test keeps that):
//!
//! ```text
//! session  what is started, waited for and ended
//! output   the trace file: rings at the end, streams meanwhile
//! tree     the program and its descendants; who answers the doorbell, who keeps calls
//! process  one of them: its modules and their files, names of threads, functions that triggers name
//! memory   arenas, the hub, and what of them is mapped here; checked, as the programs may have scribbled on it
//! sys      clocks, signals, processes, how a program is started
//! ```
//!
//! The traced process writes nothing and needs nobody at its end: a crash, `_exit` and SIGKILL are recorded
//! like anything else. If the recorder dies, the program runs on.
//!
//! It interprets no records beyond what is needed to copy whole segments and to count.
//!
//! Not here: what records mean.
//!
//! Checked by: a stand-in for the program that does its worst; arenas that are written over by
//! seeds, before and meanwhile; a test of its imports.

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod memory;
mod output;
mod process;
#[cfg(test)]
mod scribbled;
mod session;
mod sys;
mod tree;

pub use everycall_sched::Choice as StatesFrom;
pub use everycall_tracefile::{Child, Summary, ThreadSummary};
pub use memory::arena::{Arena, Counting, MinDuration, Unrecorded};
pub use memory::capacity::Stream;
pub use memory::contents::{ArenaContents, ArenaFront};
pub use memory::scan;
pub use memory::shared_triggers::{Fired, Quiet, SharedTriggers};
pub use output::log_files::{LogFile, LogFileLine};
pub use output::rotation::Rotation;
pub use output::trace_writer::TraceWriter;
pub use process::selector::SelectFunctions;
pub use process::triggers::{self, FindSites, KeepCalls, TriggeredProcess, Triggers};
pub use session::{Ended, FirstArena, Options, Recorder, Running, run_alone, start, start_by, start_with};
pub use sys::error::RecordError;
pub use sys::launch::{Launch, find_program};
pub use sys::signals::{die_of, outlive_size_limit};
