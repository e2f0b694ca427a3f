//! Triggers: which calls are kept, and keeping them.
//!
//! ```text
//! trigger    `handle_request > 20ms`: a pattern and a condition
//! frames     frames by id that triggers name
//! functions  the functions of a module that triggers name, as the runtime receives them
//! set        the same in a file, for programs that are started without `record`
//! thrown     the types of exceptions that triggers name
//! rate       nanoseconds and ticks, while the clock is still being measured
//! scan       searches the events that threads write: entries, and percentiles
//! policy     which calls that met the condition are kept
//! tails      tail calls that were still running when their process ended
//! kept       a snapshot of one call, waiting in a file for the end of the recording
//! armed      the triggers that a client has armed in a running process
//! keeper     joins all of these while the program runs
//! ```
//!
//! The traced process decides whether a call met its trigger's condition, exactly and without help.
//! This crate receives these calls and decides which of them get a snapshot.
//!
//! Not here: when a call met its condition: the runtime decides that.
//!
//! Checked by: choices against a model; a program's own clock against what is kept; sets truncated,
//! changed and inconsistent.

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod armed;
mod conditions;
mod frames;
mod functions;
mod keeper;
mod kept;
mod policy;
mod rate;
mod scan;
mod set;
mod tails;
mod thrown;
mod trigger;

pub use armed::{ArmedArena, armed, conditions_in_use};
pub use conditions::{Numbers, TooManyConditions, numbers, numbers_beside};
pub use everycall_patterns::NamePattern as Pattern;
pub use functions::{Functions, Trampolines};
pub use keeper::{Keeper, Outcome, Tally};
pub use policy::{KeepBy, Limit, Policy};
pub use rate::Rate;
pub use set::{SetBuilder, SetError};
pub use thrown::unknown_types;
pub use trigger::{Condition, ParseError, Trigger};
