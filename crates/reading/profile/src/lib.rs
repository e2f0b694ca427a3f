//! All numbers about calls: by function, thread, process, module, source file, label and path.
//!
//! ```text
//! source     the interface to traces: threads, events, functions, counts
//! walk       CallSource -> begins and ends of functions' calls, with own times: shared by all profiles
//! visitor    the interface by which they get them
//! stretch    sums of the calls that are open where a part of a thread begins or ends
//! functions  names and places, the same over several traces
//! bounds     what times are at least and at most;  hooks: what tracing costs in them
//! numbers    the list of a type's numbers
//! sums       the sums of calls;  sketch: their durations, with percentiles within 1 %
//! profile    sums by group;  table, tree: how they are added;  group, value_of: the criteria
//! focus      the functions of a query: edges (callers and callees), slowest, explain
//! counted    calls that were counted: instead of recording them, or beside that
//! allocations   what counted calls allocated and freed
//! notes      what the numbers lack
//! machine    the numbers as JSON
//! ```
//!
//! It reads no files and knows no symbols, so that a page in a browser can use it as well.
//!
//! Not here: traces and names (`analysis`).
//!
//! Checked by: made-up threads; random stretches against a walk over everything.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod allocations;
mod bounds;
mod counted;
mod edges;
mod explain;
mod focus;
mod functions;
mod group;
mod hooks;
pub mod machine;
mod notes;
mod numbers;
mod profile;
mod sketch;
mod slowest;
mod source;
mod stretch;
mod sums;
mod table;
mod tree;
mod value_of;
mod visitor;
mod walk;

pub use allocations::Allocations;
pub use bounds::SumBounds;
pub use counted::Counts;
pub use edges::{Edge, Edges};
pub use explain::{CallPlace, Doings, Explanation};
pub use focus::Focus;
pub use functions::{Function, FunctionIdentity, FunctionNumber, Functions, Place, PlaceOf, Split, Thunk};
pub use group::{Grouping, Key};
pub use hooks::{
    CallPrice, Corrected, Correction, HookTime, NoPrices, OpenHooks, PS, Prices, Range, WholeRun,
};
pub use notes::Notes;
pub use profile::{FunctionRow, Order, Profile, Row};
pub use sketch::{Sketch, SketchParts};
pub use slowest::{SlowCall, Slowest};
pub use source::{CallSource, Events, Part, ReducedCall, Wanted};
pub use stretch::{StretchNotes, WholeCall, WholeCalls};
pub use sums::Sums;
pub use tree::{Node, PATHS_MAX, ROOT, Tree};
pub use value_of::{ValueGroups, ValueOf, ValueText};
