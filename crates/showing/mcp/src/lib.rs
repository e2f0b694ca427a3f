//! Tools for agents over MCP, the Model Context Protocol: JSON-RPC messages, one in each line of
//! standard input and output.
//!
//! ```text
//! places    which files may be read and written
//! run       runs of the command, with limits on time and output
//! bounded   JSON that is cut to a size, and says what is left out
//! source    lines of source files in allowed folders
//! answer    an answer: words of the server, and data of the traced program apart
//! tools     what an agent may ask for
//! protocol  messages -> tools -> messages
//! ```
//!
//! Each tool is a run of the `everycall` command in a process of its own: a hostile trace or an
//! endless query ends that run alone. Not here: numbers, texts about calls: they are the command's.
//!
//! Checked by: messages that are wrong; paths outside of the folder; a client that finds planted
//! causes in real traces by these tools alone.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Standard output belongs to the protocol.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod answer;
mod bounded;
mod places;
mod protocol;
mod run;
mod source;
mod tools;

pub use places::{Allowed, Options};
pub use protocol::Server;
