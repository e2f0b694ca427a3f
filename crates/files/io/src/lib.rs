//! Inputs and outputs where disks may be full, pipes closed, and folders another user's:
//!
//! - [`messages`]: text on standard error, which is left out if it can't be written.
//! - [`infile`]: inputs that are named, of which only regular files are read.
//! - [`outfile`]: outputs that appear under their name only when they are complete.
//! - [`ours`]: which files everycall wrote, as only these are replaced by outputs.
//! - [`terminal`]: text of others, which must not steer a terminal.
//! - [`cache`]: folders in which no other user can replace a file.
//!
//! Not here: what is said, written or kept there.
//!
//! Checked by: outputs that take nothing; folders, links, owners and modes of each kind; another
//! user who swaps them.

// Messages go through `messages`, because these macros panic if standard error can't be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

pub mod cache;
pub mod infile;
pub mod messages;
pub mod ours;
pub mod outfile;
pub mod terminal;
