//! Snapshots of running traced programs, taken from outside: no signal, no thread in the program,
//! and nothing for the program to do.
//!
//! ```text
//! find        /proc/PID/maps: which shared memory is its arena, and how to map it
//! mapping     that memory, mapped; the only module with `unsafe`
//! arena       its contents; every number is untrusted input
//! pinner      this process's entry in the table of pinners; entries of dead processes
//! take        pins all segments of all threads at once, copies those still being written
//! follow      what threads have written since the last look
//! recent      the newest of that, in bounded memory
//! stream      a session's events, written to a file while the process runs
//! write       the trace file, segment by segment; each is unpinned as soon as it is copied
//! control     the socket by which others choose what it records
//! images      files of modules that were deleted since
//! ```
//!
//! ```no_run
//! let arena = everycall_live::attach(1234)?;
//! let snapshot = everycall_live::take(&arena, None)?;
//! let summary = snapshot.write(std::fs::File::create("app.ect")?, "1.0")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: what records mean, symbols.
//!
//! Checked by: programs end to end while threads come and go; clients killed at any moment;
//! scribbled arenas.

// Messages go through `everycall_io::messages`, because these macros panic if standard error can't
// be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arena;
mod client;
mod error;
mod find;
mod follow;
mod images;
mod list;
mod mapping;
mod names;
mod pinner;
mod process;
mod recent;
#[cfg(test)]
mod scribbled;
mod states;
mod stream;
mod take;
mod write;

pub use arena::{LiveArena, Reached};
pub use client::{Control, ControlError};
pub use error::LiveError;
pub use everycall_tracefile::AllCalls;
pub use find::{attach, attach_to_file};
pub use follow::{Follower, RingOwner, Settled, Written};
pub use list::{Listed, list};
pub use process::ProcessFacts;
pub use recent::{Picture, Recent};
pub use stream::{SessionStream, StreamError};
pub use take::{SessionFacts, Snapshot, cpu_nanoseconds, now_ticks, take};
pub use write::{write_counts, write_kept};
