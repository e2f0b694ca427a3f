//! Which functions of a module a pattern or selection matches.
//!
//! ```text
//! names      demangled names, and globs and regular expressions over them
//! pattern    `handle_*`, `file:net/*.c & size:<20`, ...: what a function has to be
//! functions  the functions of a file that have sites
//! code       their instructions: how many, and whether they loop
//! selection  rules in order, lists in files, and what they select
//! ```
//!
//! Not here: processes, what is done with them.
//!
//! Checked by: every condition, invalid patterns; compilers' own tools end to end.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod arch;
mod code;
mod functions;
mod names;
mod pattern;
mod selection;

pub use code::Code;
pub use functions::{FunctionTable, Instrumented, TableError, linked_only};
pub use names::{NamePattern, Names};
pub use pattern::{Compiled, Pattern, path_matches};
pub use selection::{Matched, Resolved, Rule, Selection, SelectionError};
