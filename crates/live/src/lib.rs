//! Snapshots of traced programs that run, taken from outside: no signal, no thread in the program, nothing that it has to do.
//!
//! ```text
//! find        /proc/PID/maps: which shared memory is its arena, and how we get at it
//! mapping     that memory, mapped; the only room with `unsafe`
//! arena       what stands in it, every number taken as input from a stranger
//! pinner      our entry in the table of pinners, and what the dead have left
//! take        pins all segments of all threads at once, copies what is still being written
//! write       the trace file, segment by segment; each is released as soon as it was copied
//! control     the socket by which we choose what it records
//! armed       triggers that we have armed in it
//! images      files of modules that were deleted since
//! ```
//!
//! ```no_run
//! let arena = everycall_live::attach(1234)?;
//! let snapshot = everycall_live::take(&arena, None)?;
//! let summary = snapshot.write(std::fs::File::create("app.ect")?, "1.0")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Messages go through `everycall_io::messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arena;
mod armed;
mod control;
mod error;
mod find;
mod images;
mod list;
mod mapping;
mod pinner;
mod process;
#[cfg(test)]
mod scribbled;
mod take;
mod write;

pub use arena::{LiveArena, Reached};
pub use armed::armed;
pub use control::{Control, ControlError};
pub use error::LiveError;
pub use find::{attach, attach_to_file};
pub use list::{Listed, list};
pub use process::ProcessFacts;
pub use take::{SessionFacts, Snapshot, cpu_nanoseconds, now_ticks, take};
pub use write::write_kept;
