//! The process that owns the arenas: it starts the program, waits for its end and writes the trace file.
//!
//! ```text
//! Recorder::create ──> start ──> Running::wait ───────> Ended::write
//!   hub, spare arenas   fork,      members come and go,   .ect from what the arenas hold
//!                       exec       names, clocks, files
//! ```
//!
//! - `arena`, `hub`: the shared memory; everything that comes out of it is checked, as the traced programs may have
//!   scribbled on it. `hub_page`, `shared_pool`, `shared_triggers`: those parts of it that are mapped here.
//! - `program`: the traced program, which must not notice that it has a recorder; `signals`, `inherited`: so that it doesn't.
//! - `family`: it and its descendants, from their claims to their ends; `bell` answers them; `silent`: those that have yet to speak.
//! - [`clock`], `names`, [`modules`]: what is noticed while they run; [`proc_files`]: where the kernel tells of processes.
//! - [`triggers`]: functions that triggers name, and calls that are kept, by others' choice; [`scan`]: what threads write meanwhile.
//! - `stream`: everything of a run, stored while it runs.
//! - `trace`: the file; [`host`]: what it says of the machine.
//!
//! The traced process writes nothing and needs nobody at its end: a crash, `_exit` and SIGKILL are recorded
//! like anything else. If the recorder dies, the program runs on.
//!
//! It interprets no records beyond what is needed to copy whole segments and to count.

// Messages go through `everycall_messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arena;
mod bell;
pub mod clock;
mod counter;
mod error;
mod family;
pub mod host;
mod hub;
mod hub_page;
mod inherited;
pub mod modules;
mod names;
pub mod proc_files;
mod program;
pub mod scan;
#[cfg(test)]
mod scribbled;
mod shared_pool;
mod shared_triggers;
mod signals;
mod silent;
mod stream;
mod trace;
pub mod triggers;

pub use arena::{Arena, Stream};
pub use error::RecordError;
pub use everycall_tracefile::{Child, Summary, ThreadSummary};
pub use program::{Ended, Launch, Options, Recorder, Running, find_program, start};
pub use shared_triggers::{Fired, Quiet, SharedTriggers};
pub use signals::{die_of, outlive_size_limit};
pub use trace::{Progress, Rotation, TraceWriter};
pub use triggers::{FindSites, KeepCalls, Triggers, Watched};
