//! How commands meet the system around them, where it may be full, closed or somebody else's:
//!
//! - [`messages`]: text on standard error, which is left out if it can't be written.
//! - [`outfile`]: outputs that appear under their name only when they are whole.
//! - [`cache`]: folders in which nobody else can put anything in a file's place.

// Messages go through `messages`: these macros panic if nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

pub mod cache;
pub mod messages;
pub mod outfile;
