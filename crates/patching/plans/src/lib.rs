//! Plans for hooks in files as they are, kept for the next time.
//!
//! ```text
//! of_file --> file, build id --> kept plan of this file --> Plan
//!                            \-> analysis, plan, check --/
//! ```
//!
//! A plan takes a second for each 40,000 functions. It is kept in the user's cache folder, in which
//! no other user can put anything ([`everycall_io::cache`]). What can't be read, kept or used there
//! has no effect but the time: the plan is made again.
//!
//! Not here: how plans are made, what is done with them.
//!
//! Checked by: each byte of a kept plan changed, each length; links, owners, modes; no folder;
//! several at once.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod binary;
mod cache;
mod error;

use std::path::Path;

use everycall_rewrite::Plan;

pub use binary::Binary;
pub use cache::Cache;
pub use error::PlanError;

/// The checked plan for all functions of a file that can get hooks, from the user's cache if it is
/// there. Functions have no names in it.
///
/// Hooks are where [`everycall_rewrite::HookLayout::default`] has them; [`Plan::set_hooks`] and
/// [`Plan::move_region`] change that, and patches of functions that aren't wanted can be left out.
///
/// # Errors
/// The file can't be read, or isn't a program or library that can be planned for.
pub fn of_file(path: &Path) -> Result<Plan, PlanError> {
    Cache::of_user().plan(path)
}
