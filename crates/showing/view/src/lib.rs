//! The viewer behind `everycall view`: what its page draws, made from a trace of any size, and the
//! server that the page asks.
//!
//! ```text
//! file, library    inputs -> opened files, with the threads that read them
//! glance           what is known of a file before its events are
//! sketch           parts of a large file, before it was read in order
//! read             File -> levels, marks, series: one pass, whose memory is bounded
//! levels           what is drawn at each width of a pixel; cell: of a call or several
//! packed, spill    its cells in little memory, or in a temporary file
//! sampled          sampled stacks, as runs within calls
//! running          a program that runs: one small trace after the other
//! window           calls from the file, where levels are too coarse
//! counted          calls that were counted beside the rings
//! answers          values about the files, for a viewer in this process, such as the terminal's
//! requests         requests of the page -> these answers in JSON, or in columns
//! alone            one page with everything in it; gathered: its calls
//! http, server     loopback only, with a secret; assets: the page's files
//! ```
//!
//! Numbers about calls come from `everycall_analysis`, as `report` prints them.
//!
//! Not here: numbers of its own: they are `analysis`'s.
//!
//! Checked by: levels against random calls; answers against the timeline and `report`; strangers,
//! garbage and damaged files on real connections.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod alone;
pub mod answers;
mod assets;
mod cell;
mod context;
mod counted;
mod facts;
mod file;
mod functions;
mod gathered;
mod glance;
mod http;
mod levels;
mod library;
mod marks;
mod packed;
mod parts;
mod peers;
mod read;
mod requests;
mod running;
mod sampled;
mod series;
mod server;
mod sketch;
mod spill;
mod stops;
mod stretches;
mod threads;
mod window;

pub use alone::{Written, write_page};
pub use everycall_answers::bits;
pub use file::Input;
pub use functions::FunctionFacts;
pub use library::{Library, STOPPED};
pub use running::{Keep, Newest, Running, RunningFacts, States};
pub use series::Point;
pub use server::Server;
