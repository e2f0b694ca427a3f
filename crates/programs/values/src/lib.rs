//! Values of calls: from the bytes of a capture ([`everycall_format::capture`]) to text.
//!
//! ```text
//! capture, Layout --decode--> values --text::arguments, text::json--> text
//! ```
//!
//! A [`Layout`](layout::Layout) says what a capture's items are. `everycall-arguments` makes it
//! from DWARF; trace files have it as JSON, which later versions can extend.
//!
//! Not here: DWARF, traces, where text is shown.
//!
//! Checked by: made-up values; what `arguments` checks against programs.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod decode;
pub mod layout;
pub mod text;

pub use decode::{Value, decode};

/// The name of the item that has the C library's `errno`.
pub const ERROR: &str = "errno";

/// The name of the item that says where a call was made.
pub const CALL_SITE: &str = "call_site";

/// A value's name as names are compared: without spaces, and with `.` for `->`, which mean the
/// same.
#[must_use]
pub fn plain_name(name: &str) -> String {
    let name: String = name.chars().filter(|letter| !letter.is_whitespace()).collect();
    name.replace("->", ".")
}
