//! Why one call took longer than others of its function.
//!
//! ```text
//! commands   the commands that show more, as a shell takes them
//! parts      Explanation -> parts of calls, and how they differ
//! answer     what is known in the end, as values
//! inside     one call's events: labels, losses, gaps, calls that waited
//! choose     which call it is about
//! steps      the path down to where the time went
//! functions  every function in the call, beside those of a median call
//! values     arguments: how long calls with the same value took
//! missing    what the trace lacks, and which claims could be wrong because of it
//! claims     what can be said, with its doubts and the next command
//! why        TraceView -> Why
//! json, text Why -> for programs, for people
//! ```
//!
//! Not here: numbers of its own: sums, medians and states are `analysis`'s. Opening files, options.
//!
//! Checked by: kept outputs of a kept trace; each number against `report`; each command, run.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod answer;
mod choose;
mod claims;
pub mod commands;
mod functions;
mod inside;
mod json;
mod missing;
mod parts;
mod steps;
mod text;
mod values;
mod why;

pub use answer::{
    Cause, Chosen, Claim, Concern, Holder, Median, Missing, Named, OneCall, PartOfCall, RowNumbers, Sampled,
    Step, TwoRows, ValueRow, WaitingCall, Waits, Why,
};
pub use choose::Question;
pub use json::SCHEMA;
pub use parts::{Part, PartKind, parts};
pub use text::Style;
pub use why::why;
