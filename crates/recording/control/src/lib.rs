//! Selections of functions in the form that a traced process receives.
//!
//! ```text
//! resolve  a selection's rules, and what they select in some files
//! set      the site set that results, with the rules that it was made from, so that a later
//!          change of the selection can start from them
//! writer   the bytes of any site set, also those of triggers
//! ```
//!
//! Not here: how it gets there (`live`).
//!
//! Checked by: round trips.

#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod resolve;
mod set;
mod writer;

pub use resolve::{Outcome, resolve, selection_now, selection_of};
pub use set::{Module, SelectionSet, SetTooLarge};
pub use writer::SetWriter;
