//! Traces with their symbols: open a recording, name its functions, sum up its time per function.
//!
//! ```text
//! open            path -> TraceFile             .ect files, and crash files read as if they were
//! names           TraceFile + Trace -> SymbolNames    functions, sources, inlined calls; opened on demand
//! view            Trace + SymbolNames -> TraceView    the timeline, its pairings checked by the code
//! summing         TraceView -> Profile          its calls for the sums of everycall-profile
//! stored          Profile <-> files
//! kept_calls      Trace + SymbolNames -> Vec<KeptCall>
//! dropped_calls   Trace + SymbolNames -> DroppedCalls    short calls that were only counted
//! budget          Trace + SymbolNames -> Budget    functions that were off to keep to a budget
//! event_intervals Trace + SymbolNames -> EventIntervals    how well times are known
//! stacks          Trace + SymbolNames -> StackNames    names of sampled frames
//! sampled_calls   TimelineEvent -> calls     the innermost call of each sample
//! sample_places   TraceView -> SamplesIn     what ran at a sample, seen from its call
//! own_samples     TraceView -> OwnSamples    what own times went into, by sampled stacks
//! sampled         Trace -> SampledCounters         counters of processes, as the recorder read them
//! cull            FunctionRow, Budget -> Cull    which functions to leave out of a build
//! embed           TraceFile -> Embedding        symbols and sources, into the trace
//! code_names      names of generated code, from the files that a process left
//! crash_files     the arenas that processes left behind
//! ```
//!
//! It opens files that the trace names, and writes nothing anywhere: warnings are returned as values.
//! `examples/reader` is a whole program.
//!
//! ```no_run
//! use everycall_analysis::{NameOptions, Order, Profile, SymbolNames, TraceView, open};
//! use everycall_timeline::Trace;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let opened = open("app.ect".as_ref())?;
//! let trace = Trace::open(&opened.file)?;
//! let names = SymbolNames::new(&opened.file, &trace, NameOptions::default());
//! let profile = Profile::of(&TraceView::new(&trace, &names));
//! for row in profile.top(Order::OwnTime, 10) {
//!     println!("{} ns in {}", row.own_ns, row.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Not here: options, messages.
//!
//! Checked by: its example against `info`; kept files; every single call that `replay` prints and
//! the program's own counts; made-up runs by seed.

#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod budget;
pub mod code_names;
mod corrected;
pub mod counters;
pub mod crash_files;
mod cull;
pub mod diff;
mod dropped;
pub mod embed;
mod intervals;
mod kept;
mod names;
mod open;
mod own_samples;
mod sample_places;
mod sampled;
mod sampled_calls;
mod source_notes;
mod stacks;
pub mod stored;
mod summing;
#[cfg(test)]
mod testing;
mod totals;
mod view;
mod waits;

pub use budget::{Budget, CostlyFunction, budget, is_of_budget};
pub use corrected::EventPrice;
pub use cull::{Cull, Culled, cull};
pub use dropped::{DroppedCalls, DroppedFunction, dropped_calls};
pub use everycall_profile::{
    Allocations, CallPlace, CallSource, Corrected, Correction, Doings, Edge, Edges, Explanation, Focus,
    Function, FunctionIdentity, FunctionNumber, FunctionRow, Functions, Grouping, HookTime, Key, NoPrices,
    Node, Notes, Order, PATHS_MAX, PlaceOf, Profile, ROOT, Range, Row, Sketch, SlowCall, Slowest, Split,
    StretchNotes, SumBounds, Sums, Tree, ValueOf, ValueText, WholeCall, WholeCalls, WholeRun, machine,
};
pub use intervals::{EventIntervals, WideFunction, event_intervals};
pub use kept::{KeptCall, KeptTail, kept_calls};
pub use names::{FunctionGroup, FunctionKey, NameOptions, NameWarning, SymbolNames};
pub use open::{OpenError, Opened, Selection, open, open_for_reading, select};
pub use own_samples::{OwnSamples, shares};
pub use sample_places::{SamplePlaces, SamplesIn};
pub use sampled::{SampledCounter, SampledCounters, sampled_counters};
pub use sampled_calls::SampledCalls;
pub use source_notes::{SourceNote, SourceProblem};
pub use stacks::{CodeKind, FrameName, StackNames, StackTimes};
pub use summing::{AllCalls, FunctionFinder, Stretch, Stretches, all_calls};
pub use totals::{lost_events, marks_by_count, ring_that_keeps_all, runtime_counts};
pub use view::{LabelledEvents, TraceView};
