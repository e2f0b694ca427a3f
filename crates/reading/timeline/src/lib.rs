//! Clock conversion, order by time, and the pairing of entries with exits into strictly nested
//! slices per thread. What is missing is shown as missing, with a count; nothing is guessed.
//!
//! ```text
//! reader::Source --> Trace::open         one pass: counts, reach, clock
//!                      thread_events(i)  words -> slot order -> time order -> pairing -> TimelineEvent
//! ```
//!
//! Times are nanoseconds since the trace's origin, the earliest moment that it knows of. Per
//! thread, events come in the order of time and nest strictly: each [`TimelineEvent::Begin`] gets
//! its [`TimelineEvent::End`], the ones begun last first.
//!
//! The events are those of `calls`. The crate knows no output format and no symbols. A caller who
//! has the modules' code can reject a pairing and say which exits are jumps into other functions,
//! see [`Code`].
//!
//! Not here: output formats, guessing.
//!
//! Checked by: random trees, kept files.

// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`, because these macros panic if standard error can't
// be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

#[path = "x86_64.rs"]
mod arch;
mod clock;
mod code;
mod live;
mod location;
mod log_lines;
mod marks;
mod narrowing;
mod order;
mod pairing;
mod part;
mod placing;
mod process_tree;
mod renames;
mod sampled_states;
mod scan;
mod slots;
mod spans;
mod states;
mod task_list;
mod tasks;
mod thread;
mod thread_info;
mod trace;
mod values;
mod wall;

pub use arch::system_call_name;
pub use clock::{Clock, ClockQuality};
pub use code::Code;
pub use everycall_calls::{
    Bars, Begin, End, EndKind, FIBERS_FROM, Gap, GapKind, Instant, InstantKind, Interval, Intervals,
    Location, Loss, LossKind, Mark, MarkKind, MarkName, PairingStats, Returned, SpanEndKind, StateSpan,
    StateTimes, Stream, TASKS_FROM, TailCall, ThreadState, ThreadStates, TimelineEvent, Unstamped, Untraced,
    ValuesNumber, Wait,
};
pub use everycall_reader::{EventClock, HookPrices, Origin, Price, Process, ProcessCalibration, SchedSource};
pub use live::{LiveCarry, LiveThread, settled_words};
pub use location::ModuleMap;
pub use log_lines::LogLines;
pub use marks::{MarkNames, NamedMarks};
pub use part::{Part, PartEvents};
pub use process_tree::Relative;
pub use renames::Rename;
pub use states::States;
pub use thread::{Checkpoint, ThreadEvents};
pub use thread_info::ThreadInfo;
pub use trace::Trace;
pub use values::{CapturedValues, EXCEPTION};
pub use wall::WallClock;
