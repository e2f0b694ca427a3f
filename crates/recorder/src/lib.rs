//! The process that owns an arena: it starts the program, waits for its end and writes the trace file.
//!
//! ```text
//! Arena::create ──> start ──> Running::wait ──> Ended::write(output)
//!   memfd, header    fork,      names, clocks,     .ect from what the arena holds
//!                    exec       module files
//! ```
//!
//! - [`arena`]: the shared memory; everything that comes out of it is checked, as the traced program may have
//!   scribbled on it.
//! - [`program`]: the traced program, which must not notice that it has a recorder.
//! - [`clock`], [`names`], [`modules`]: what is noticed while it runs.
//! - [`trace`]: the file.
//!
//! The traced process writes nothing and needs nobody at its end: a crash, `_exit` and SIGKILL are recorded
//! like anything else. If the recorder dies, the program runs on.
//!
//! It interprets no records beyond what is needed to copy whole segments and to count.

pub mod arena;
pub mod clock;
mod counter;
mod error;
mod header_page;
mod host;
mod inherited;
pub mod modules;
pub mod names;
pub mod program;
mod signals;
pub mod trace;

pub use arena::Arena;
pub use error::RecordError;
pub use everycall_tracefile::{Child, Summary, ThreadSummary};
pub use program::{Ended, Launch, Running, start};
pub use signals::{die_of, outlive_size_limit};
