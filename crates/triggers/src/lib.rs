//! Triggers: which calls are kept, and keeping them.
//!
//! ```text
//! trigger    `handle_request > 20ms`: a pattern and a condition
//! functions  which functions of a module, as the runtime is told
//! set        the same in a file, for programs that are started without `record`
//! thrown     which types of exceptions
//! rate       nanoseconds and ticks, while the clock is still being measured
//! scan       what we look for ourselves in what threads write: entries, and percentiles
//! policy     which calls that met the condition are kept
//! tails      calls that had jumped away and were never heard of again
//! kept       a snapshot of the moment, waiting in a file for the recording's end
//! keeper     all of it, while the program runs
//! ```
//!
//! The traced process decides whether a call met its trigger's condition, exactly and by itself; what is here learns of it, and
//! decides which of these calls are worth a snapshot.

// Messages go through `everycall_io::messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

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

pub use everycall_patterns::NamePattern as Pattern;
pub use functions::Functions;
pub use keeper::{Keeper, Outcome, Tally};
pub use policy::{KeepBy, Policy};
pub use rate::Rate;
pub use set::{SetBuilder, SetError};
pub use thrown::unknown_types;
pub use trigger::{Condition, ParseError, Trigger};
