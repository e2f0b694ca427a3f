//! Which values calls had: from what users write and DWARF to programs that copy them
//! ([`everycall_format::capture`]). `everycall-values` has the way from the copied bytes to text.
//!
//! ```text
//! "handle(path, len) if len > 4096" --Request::parse--> Request --+
//! ModuleDwarf, a function's address -----------------------------+--compile--> program, Layout
//! ```
//!
//! `docs/design/arguments.md` says where a parameter is at a function's first instruction. What
//! isn't certain there is shown as missing. This crate touches no process.
//!
//! Not here: when programs run, what events are, finding files (`symbols` does).
//!
//! Checked by: programs made at random that write down their own arguments and results, stopped at
//! each call; conditions against a model.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

#[path = "x86_64.rs"]
mod arch;
mod builder;
mod compile;
mod condition;
mod content;
mod error;
mod known;
mod layout;
mod module;
mod passed;
mod place;
mod prototypes;
mod recorded;
mod secrets;
mod set;
mod signature;
pub mod syntax;
mod types;
mod units;

pub use compile::{CaptureOptions, Compiled, Moment};
pub use error::ArgumentError;
pub use module::compile;
pub use recorded::RecordedCondition;
pub use secrets::Secrets;
pub use set::{CaptureSetTooLarge, CapturedFile, Met, RequestError, Wanted, capture_file, set_of};
pub use signature::FunctionPlace;
