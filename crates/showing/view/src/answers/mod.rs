//! Answers about the files of a [`Library`](crate::Library), as values.
//!
//! ```text
//! trace     the contents of the files
//! draw      a window: slices, states, marks, samples, counters, density
//! find      search, the places of its hits, the next one
//! call      one call, or the calls of one function
//! place     a call by track, moment and depth
//! sums      tables and trees of a range, comparison
//! ```
//!
//! Values about calls are those of `everycall-answers`. As JSON, they have the form that the page
//! gets; `docs/design/viewer.md` lists them. An answer that can't be given is a sentence that says
//! why.

mod call;
mod draw;
mod find;
mod place;
mod sums;
mod trace;

pub use call::{explain, instances, slice, source};
pub(crate) use draw::encoded;
pub use draw::{
    Counter, Mark, SampleRun, Slice, State, counters, end_ns, marks, overview, samples, slices, states,
};
pub(crate) use draw::{counters_of, marks_of, samples_of, states_of, tracks_of};
pub use everycall_answers::{
    Answered, Branch, Callee, Caller, Compared, ComparedFunction, ComparedNode, Comparison, Details,
    Explained, ExplainedRow, Flame, FlameNode, Histogram, Instances, LabelValue, OpenCall, Place, Position,
    Report, Scope, Side, Slow, Sought, SourceText, TimesOfStates, Tree, TreeNode,
};
pub use find::{Calls, FoundFunction, Hit, Hits, Next, Search, hits, listed, next, search};
pub use sums::{compare, flame, report, tree};
pub use trace::{Kept, LossFacts, ModuleFacts, TraceFacts, functions, trace, window};

pub use crate::facts::{FileFacts, ProcessFacts, TrackFacts};
