//! Selections of functions as a traced process gets them: [site sets](everycall_format::site_set)
//! that carry the rules they were made by, so that whoever changes a selection can begin with what
//! is there.

#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod set;

pub use set::{Module, SelectionSet, SetTooLarge};
