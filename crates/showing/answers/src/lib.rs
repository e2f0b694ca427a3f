//! The values that viewers show about calls, made from profiles.
//!
//! ```text
//! scope, query   requests: which calls, which range, which search
//! sums           tables, trees, comparisons
//! call           one call, and the calls of one function
//! bits           facts about a call that is drawn
//! page           the data of a page that is alone, and the answers from it
//! ```
//!
//! The server of `view`, the viewer in a terminal and pages of `view --html` show the same values;
//! for these pages, the crate is compiled to WebAssembly (`cargo xtask answers`).
//!
//! Not here: reading traces; drawing.
//!
//! Checked by: the answers of `view`; pages against `report`.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

pub mod bits;
mod call;
pub mod page;
mod query;
mod scope;
mod sums;

pub use call::{
    Callee, Caller, Details, EachCall, Explained, ExplainedRow, ExplainedTimes, Histogram, Instances,
    LabelValue, NO_CALL, NOT_TIMED, OpenCall, Slow, SourceText, TimesOfStates, callers, listed_callers,
};
pub use query::Query;
pub use scope::{Place, Position, Scope, Side, Sought};
pub use sums::{
    Branch, Compared, ComparedFunction, ComparedNode, Comparison, Flame, FlameNode, Numbering, Report, Tree,
    TreeNode,
};

/// An answer, or a sentence why there is none.
pub type Answered<T> = Result<T, String>;
