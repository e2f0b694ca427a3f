//! Outputs of a finished timeline.
//!
//! ```text
//! Source (threads, events) -> filter -> passing                     for outputs of others
//!                              |------> replay, jsonl, csv          a tree of calls, JSON lines, CSV
//!                              |-> rows -> parquet                  a table; rows for callers
//!                              |------> speedscope, firefox         stacks, event by event
//!                              |-> paths -> folded, pprof           sums of call paths
//!                              |      `---> flamegraph              a picture of them
//!                              |-> pairs -> callgrind, dot, mermaid sums of functions and pairs
//! Names  (functions, sources)  `-> draw -> chrome, vizviewer         Chrome JSON
//!        `------- driver ------'    `---> perfetto                  protobuf
//! ```
//!
//! Everything is streamed: memory holds the open calls of one thread and the functions that
//! occurred (for sums, also their paths or pairs), whatever the length of the trace. Nothing is repaired here: losses in the timeline are
//! shown as losses. No files are opened, except for parts of an output that don't fit into memory
//! (`spool`): names and sources are provided by [`Names`].
//!
//! Not here: repairs.
//!
//! Checked by: golden files, Perfetto's own processor, callgrind_annotate, DuckDB.

// Every public item is documented, with units and errors.
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod calendar;
mod draw;
mod driver;
mod excerpt;
mod filter;
mod filtered;
mod formats;
mod frames;
mod json;
mod labels;
mod layouts;
mod names;
mod off_cpu;
mod pairs;
mod parse;
mod passing;
mod paths;
mod portions;
mod replay;
mod replay_json;
mod rows;
mod selection;
mod shorten;
mod source;
mod spool;
mod summary;
mod switches;
mod tails;
#[cfg(test)]
mod testing;
mod text;
mod thrown;
mod times;
mod values;

use std::io::{self, Write};

pub use calendar::{Calendar, WallTime};
pub use everycall_calls::{Call, CallAt, CallValues, Calls, JumpedCall, OpenCall, Thread, Window};
pub use everycall_timeline::{
    Begin, Code, End, EndKind, Gap, GapKind, Instant, InstantKind, Location, Loss, LossKind, Mark, MarkKind,
    MarkName, SpanEndKind, StateSpan, StateTimes, Stream, TailCall, ThreadState, ThreadStates, TimelineEvent,
    Trace, ValuesNumber, Wait,
};
pub use everycall_values::{Value, plain_name, text as value_text};
pub use filter::{Filter, LabelPattern, ValueCondition, parse_function};
pub use formats::{Format, FormatFacts, flamegraph_against};
pub use layouts::Layouts;
pub use names::{Details, FunctionId, FunctionName, Inlined, Names};
pub use parse::{ParseError, parse_ids, parse_threads};
pub use passing::{Beginning, Receiver, pass};
pub use replay::{ReplayStyle, replay};
pub use replay_json::replay_json;
pub use rows::{CALL, Row, RowFunction, RowSubject, Rows};
pub use selection::labelled_calls;
pub use shorten::{NameLength, shortened_name};
pub use source::name_of as name_of_value;
pub use source::{Correcting, Process, Source, Times, TraceSource, end_ns, process_name};
pub use summary::{MANY_SLICES, Note, Summary};
pub use text::type_name;
pub use times::wall_accuracy;
pub use values::{
    apart, arguments_json, arguments_text, is_of_end, result_json, result_text, shown_values, text_of_result,
    without_parameters,
};

/// Writes what passes `filter` to `out`, which doesn't need to be buffered. Calls `notify` with
/// each note as soon as it is known.
///
/// # Errors
///
/// Errors of `out`, unchanged: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
pub fn export(
    format: Format,
    source: &impl Source,
    names: &dyn Names,
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    out: &mut dyn Write,
) -> io::Result<Summary> {
    formats::write(format, source, names, filter, notify, out)
}
