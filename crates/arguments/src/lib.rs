//! Which values calls had: from what users write and DWARF to programs that copy them
//! ([`everycall_format::capture`]), and from the copied bytes to text.
//!
//! ```text
//! "handle(path, len) if len > 4096" --Request::parse--> Request --+
//! ModuleDwarf, a function's address -----------------------------+--compile--> program, Layout
//!
//! capture, Layout --decode--> values --text::arguments, text::json--> text
//! ```
//!
//! `docs/design/arguments.md` says where a parameter is at a function's first instruction. What
//! isn't certain there is shown as missing. This crate opens no file and touches no process; files
//! are found and read by `everycall-symbols`.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod abi;
mod builder;
mod compile;
mod condition;
mod content;
mod decode;
mod error;
mod known;
pub mod layout;
mod module;
mod place;
mod secrets;
mod signature;
pub mod syntax;
pub mod text;
mod types;

pub use compile::{CaptureOptions, Compiled, Moment};
pub use decode::{Value, decode};
pub use error::ArgumentError;
pub use module::compile;
pub use secrets::Secrets;
pub use signature::FunctionPlace;
