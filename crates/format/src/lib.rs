//! Every byte that the two sides of everycall agree on.
//!
//! ```text
//! traced process                                  host
//!   hooks, ring, runtime  --> [arena] -->  recorder --> [.ect file] --> reader
//!                             event words          chunks
//! ```
//!
//! - [`event`]: the 8-byte word that a hook writes, and the longer records.
//! - [`label`]: the records of labels, instants and spans.
//! - [`xray_event`]: the records of XRay's custom and typed events.
//! - [`arena`]: the shared memory that holds the rings, the open-call stacks and the module table.
//! - [`crash`]: what an arena that outlives its process says about it.
//! - [`control`]: the socket by which others change what a process records.
//! - [`hub`]: through which the processes of a recording get their arenas.
//! - [`ect`]: the trace file made from it.
//! - [`site`]: the lists of patchable places in traced objects, and the notes that mark such
//!   objects.
//! - [`site_set`]: which functions triggers name, for programs that are started without `record`.
//! - [`budget`]: what tracing may cost, and what is said of functions that are off for it.
//! - [`dropped`]: counts of short calls that are dropped.
//! - [`sched`]: when the kernel ran which thread.
//! - [`env`](mod@env): the environment variables that reach a traced process.
//!
//! This crate does no I/O, reads no clock and holds no policy. A change here changes
//! `docs/format.md`, a version number below it, and leaves old files readable.
#![no_std]
// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
pub mod arena;
pub mod budget;
pub mod control;
pub mod crash;
pub mod dropped;
pub mod ect;
pub mod env;
pub mod event;
pub mod hub;
pub mod label;
pub mod log_line;
pub mod sched;
pub mod site;
pub mod site_set;
pub mod trigger;
mod wire;
pub mod xray_event;

pub use wire::{Field, Wire};

/// A text that is padded with zeros, or ended by one, without them.
#[must_use]
pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
