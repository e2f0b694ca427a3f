//! Selections of functions as a traced process gets them.
//!
//! ```text
//! resolve  a selection's rules, and what they select in some files
//! set      the site set that says so, with the rules it was made by, so that whoever changes a
//!          selection can begin with what is there
//! ```

#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod resolve;
mod set;

pub use resolve::{Outcome, resolve, selection_of};
pub use set::{Module, SelectionSet, SetTooLarge};
