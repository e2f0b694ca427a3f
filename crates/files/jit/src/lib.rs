//! Names of machine code that a just-in-time compiler made, as compilers write them for perf.
//!
//! - [`perf_map`]: `perf-PID.map`, lines of text.
//! - [`jitdump`]: `jit-PID.dump`, records with times, files and lines.
//! - [`Table`]: which code was at an address, and when.
//!
//! Input is untrusted and may be cut anywhere, as its writer may still run. Whatever can't be used
//! is counted.
//!
//! Not here: where the files lie (`machine` finds them, `runtime` copies them into snapshots),
//! processes.
//!
//! Checked by: files cut at every byte; fuzzing; a program that writes them end to end.

#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod clock;
pub mod jitdump;
pub mod perf_map;
mod table;

pub use clock::ticks_of_monotonic;
pub use table::{Code, FOREVER, Table};
