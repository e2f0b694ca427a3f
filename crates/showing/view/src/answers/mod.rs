//! Answers about the files of a [`Library`](crate::Library), as values.
//!
//! ```text
//! trace     the contents of the files
//! draw      a window: slices, states, marks, counters, density
//! find      search, the places of its hits, the next one
//! call      one call, or the calls of one function
//! place     a call by track, moment and depth
//! sums      tables and trees of a range, comparison
//! ```
//!
//! As JSON, they have the form that the page gets; `docs/design/viewer.md` lists them. An answer
//! that can't be given is a sentence that says why.

mod call;
mod draw;
mod find;
mod place;
mod sums;
mod trace;

pub use call::{
    Callee, Details, Explained, ExplainedRow, Histogram, Instances, LabelValue, OpenCall, Slow,
    TimesOfStates, explain, instances, slice, source,
};
pub(crate) use draw::encoded;
pub use draw::{Counter, Mark, Slice, State, counters, end_ns, marks, overview, slices, states};
pub(crate) use draw::{counters_of, marks_of, states_of, tracks_of};
pub use find::{Calls, FoundFunction, Hit, Hits, Next, Search, Sought, hits, listed, next, search};
pub use place::{Place, Position};
pub use sums::{
    Branch, Compared, ComparedFunction, ComparedNode, Comparison, Flame, FlameNode, Report, Scope, Side,
    Tree, TreeNode, compare, flame, report, tree,
};
pub use trace::{Kept, LossFacts, ModuleFacts, TraceFacts, functions, trace, window};

pub use crate::facts::{Caller, FileFacts, ProcessFacts, SourceText, TrackFacts};

/// An answer, or a sentence why there is none.
pub type Answered<T> = Result<T, String>;
