//! Plans for entry and exit hooks in programs that were built without them.
//!
//! ```text
//! ELF file --> Analysis --> Plan --> checked --> mapped and written by others
//!   symbols, unwind information     trampolines, patches of the code,
//!   instructions, jump tables       where stopped threads go on, unwind rows
//! ```
//!
//! [`Analysis::of`] finds functions, all their exits and every address that may be jumped to.
//! [`Analysis::plan`] moves instructions at entries and exits into trampolines, which call hooks.
//! No call is moved, so no return address ever points to a new place. A checker that shares no code
//! with all this compares each plan with the file. `docs/design/untouched.md` has the rules.
//!
//! This crate opens no file and touches no process. Every input is treated as hostile.
//!
//! Not here: opening files, processes, what hooks do but counting.
//!
//! Checked by: plans applied to programs that run, exits against entries; plans broken in one place
//! each; damaged files.

#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod analysis;
mod bitmap;
mod bytes;
pub mod check;
mod choose;
mod code;
mod counting;
mod coverage;
mod error;
mod flow;
mod functions;
mod image;
mod islands;
mod kept;
mod kinds;
mod layout;
mod parallel;
mod parts;
mod place;
mod plan;
mod references;
mod refusal;
mod scan;
mod tables;
mod tactic;
mod trampoline;
mod untouchable;
mod unwind;
mod windows;

pub use analysis::Analysis;
pub use counting::CountingPlan;
pub use coverage::Coverage;
pub use error::RewriteError;
pub use image::FileKind;
pub use kinds::{HookKind, PatchKind};
pub use plan::{HookCall, HookLayout, Island, LeftOut, Move, Patch, Plan, PlannedFunction, UnwindRow};
pub use refusal::Refusal;
pub use tactic::Tactic;
pub use unwind::UnwindState;
