//! The formats that the traced process and the host tools share, byte by byte.
//!
//! ```text
//! traced process                                  host
//!   hooks, ring, runtime  --> [arena] -->  recorder --> [.ect file] --> reader
//!                             event words          chunks
//! ```
//!
//! - [`event`]: the 8-byte word that a hook writes, and the longer records.
//! - [`stamp`]: which events have a time of their own.
//! - [`arch`]: what is of one architecture.
//! - [`label`]: the records of labels, instants, spans and counters.
//! - [`tasks`]: tasks that are named by their code.
//! - [`log_line`]: the records of log lines.
//! - [`xray_event`]: the records of XRay's custom and typed events.
//! - [`arena`]: the shared memory that holds the rings, the open-call stacks and the module table.
//! - [`crash`]: the record of how a process was started, and crash files.
//! - [`trigger`]: triggers, armed functions and posted calls in the arena.
//! - [`frame`]: frames by id, and their names; [`frame_pattern`]: which of them a pattern means.
//! - [`control_socket`]: the socket by which other processes change what a process records.
//! - [`hub`]: the shared memory through which the processes of a recording get their arenas.
//! - [`ect`]: the trace file.
//! - [`embedded`]: symbols and sources in a trace file.
//! - [`site`]: the lists of sites in traced objects, and the notes that mark such objects.
//! - [`site_set`]: sets of functions, for triggers and selections.
//! - [`budget`]: the limit on the cost of tracing, and the instants that report about it.
//! - [`calibration`]: what the hooks cost.
//! - [`capture`]: programs that copy values of calls, and what they write.
//! - [`capture_set`]: the functions that have such programs.
//! - [`dropped`]: counts of calls that are not recorded.
//! - [`all_calls`]: counts of all calls, beside the rings.
//! - [`value_counts`]: counts of calls by their values.
//! - [`times`]: times of calls that are counted; [`memory`]: what they allocate and free.
//! - [`sched`]: scheduling events of the kernel.
//! - [`env`](mod@env): the environment variables that reach a traced process.
//!
//! This crate does no I/O, reads no clock and has no policy. If you change a format, change
//! `docs/format.md` and the format's version, and keep old files readable.
//!
//! Not here: I/O, clocks, policy.
//!
//! Checked by: size assertions, old files, `synth`.
#![no_std]
// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
pub mod all_calls;
pub mod arch;
pub mod arena;
pub mod budget;
pub mod calibration;
pub mod capture;
pub mod capture_set;
pub mod control_socket;
pub mod crash;
pub mod dropped;
pub mod ect;
pub mod embedded;
pub mod env;
pub mod event;
pub mod frame;
pub mod frame_pattern;
pub mod hub;
pub mod kept_states;
pub mod label;
pub mod log_line;
pub mod memory;
pub mod sched;
pub mod site;
pub mod site_set;
pub mod stacks;
pub mod stamp;
pub mod tasks;
pub mod times;
pub mod trampoline;
pub mod trigger;
pub mod value_counts;
mod wire;
pub mod xray_event;

pub use wire::{Field, Wire};

/// A text without the zeros that end or pad it.
#[must_use]
pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
