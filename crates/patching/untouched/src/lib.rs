//! Hooks for programs that were built without them: which files and functions get some, and how
//! they get into a process.
//!
//! ```text
//! modules     which files of a process
//! changes     a plan's changes, for a process that has loaded the file somewhere
//! own         memory of ours in a process
//! frames      unwind information of regions
//! leaving     functions by which calls are left
//! loading     libraries that are loaded later
//! attending   the same in processes without a recorder
//! hooked      how many functions have hooks, and why others don't
//! recording   plans whose hooks record, and the runtime that they need
//! ```
//!
//! `everycall_rewrite` makes plans, `everycall_inject` changes processes; neither knows the other.
//! `docs/design/untouched.md` has the whole.
//!
//! Not here: options, messages, how plans are made (`rewrite`) or processes changed (`inject`).
//!
//! Checked by: programs end to end: their calls against what they make, with exceptions, threads,
//! forks.

#![deny(missing_docs, clippy::missing_errors_doc)]
#![forbid(unsafe_code)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod attending;
mod changes;
mod frames;
mod hooked;
mod leaving;
mod loading;
mod modules;
mod own;
mod recording;

pub use attending::{Attended, lead_loading_back};
pub use changes::{Lead, island_pages, patch_sets};
pub use hooked::Hooked;
pub use leaving::{lead_leaving, watch_leaving};
pub use loading::watch_loading;
pub use modules::{first_page, has_own_hooks, libraries, may_have_libraries};
pub use own::{Installed, installed};
pub use recording::{Functions, Planned, Runtime};
