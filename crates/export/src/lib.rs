//! Outputs of a finished timeline.
//!
//! ```text
//! Source (threads, events) -> filter -> replay, csv                 a tree of calls, JSON lines, CSV
//! Names  (functions, sources)  `-> draw -> chrome, vizviewer         Chrome JSON
//!        `------- driver ------'    `---> perfetto                  protobuf
//! ```
//!
//! Everything streams: memory holds the open calls of one thread and the functions that occurred, whatever
//! the length of the trace. Nothing is repaired here: what the timeline says is shown, and what it says is
//! missing is shown as missing. No files are opened: names and sources come through [`Names`].

// Messages go through `everycall_messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod draw;
mod driver;
mod excerpt;
mod filter;
mod filtered;
mod formats;
mod json;
mod labels;
mod names;
mod parse;
mod portions;
mod replay;
mod replay_json;
mod shorten;
mod source;
mod tails;
#[cfg(test)]
mod testing;
mod text;
mod window;

use std::fmt;
use std::io::{self, Write};

pub use everycall_timeline::{
    Begin, Code, End, EndKind, Gap, GapKind, Instant, InstantKind, Location, Loss, LossKind, Mark, MarkKind,
    MarkName, SpanEndKind, TailCall, TimelineEvent, Trace,
};
pub use filter::{Filter, LabelPattern, parse_function};
pub use formats::{Format, FormatFacts};
pub use names::{Details, FunctionName, Inlined, Names};
pub use parse::{ParseError, parse_ids};
pub use replay::{ReplayStyle, replay};
pub use replay_json::replay_json;
pub use shorten::shortened_name;
pub use source::{Process, Source, Thread, TraceSource, end_ns, process_name};
pub use text::type_name;

use everycall_units::Count;

/// From this many slices on, an export says how to make it smaller.
pub const MANY_SLICES: u64 = 2_000_000;

/// Something that people should know about an export. `Display` gives the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// There are more slices than viewers handle well. It comes when the number is passed, before the rest is
    /// written.
    ManySlices,
    /// Calls were nested more deeply than viewers show.
    DeepCalls {
        /// How many calls were added up into slices that say so.
        calls: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Note::ManySlices => write!(
                out,
                "more than {} slices: viewers will be slow or run out of memory; choose a part with --last, \
                 --since and --until, --tid, --function or --depth, or leave out short calls with \
                 --min-duration",
                Count(MANY_SLICES)
            ),
            Note::DeepCalls { calls } => write!(
                out,
                "{} calls lie deeper than the {} levels that viewers draw; slices named \"{}\" stand for \
                 them, and --function starts a tree at a function of your choice",
                Count(calls),
                draw::LEVELS,
                text::DEEPER
            ),
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Slices, or calls in the outputs for people.
    pub slices: u64,
    /// Calls that slices named "deeper calls not shown" stand for.
    pub deep_calls: u64,
    /// Threads with at least one event.
    pub threads: u64,
    /// Events known to be missing within what was written, where they were counted.
    pub lost_events: u64,
    /// Exits that closed no call.
    pub stray_exits: u64,
    /// Labels, instants and spans.
    pub marks: u64,
    /// Times that recording was off.
    pub gaps: u64,
    /// Slices whose stamps were moved by some nanoseconds so that viewers nest them rightly.
    pub moved_slices: u64,
}

/// Writes what `filter` lets through to `out`, which need not be buffered. Each note is given to `notify` as
/// soon as it is known.
///
/// # Errors
///
/// What `out` answers, as it is: a closed pipe is an [`io::ErrorKind::BrokenPipe`].
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
