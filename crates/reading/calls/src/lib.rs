//! The events of a thread's timeline, and the walk over its calls that outputs and profiles share.
//!
//! ```text
//! location, event, bars, values   a thread's timeline, event by event
//! thread, thread_states           the thread, and when the kernel ran it
//! selection                       which calls a filter selects
//! walk                            events -> calls that have ended, with all that is known of them
//! ```
//!
//! Whoever has such events can sum them up: it needs no files and no symbols, so that this crate
//! and `profile` also run in a browser.
//!
//! Not here: where events come from; names.
//!
//! Checked by: the tests of `timeline`, `export` and `profile`.

// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
// This library returns its findings; printing them is the caller's task.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod bars;
mod call_at;
mod event;
mod location;
mod pairing_stats;
mod samples;
mod selection;
mod thread;
mod thread_states;
mod values;
mod walk;

pub use bars::{Bars, Interval, Intervals};
pub use call_at::CallAt;
pub use event::{
    Begin, End, EndKind, Gap, GapKind, Instant, InstantKind, Loss, LossKind, Mark, MarkKind, MarkName,
    Returned, SpanEndKind, Stream, TailCall, TimelineEvent, Unstamped, Untraced,
};
pub use location::Location;
pub use pairing_stats::PairingStats;
pub use samples::{Sample, Samples};
pub use selection::Window;
pub use thread::{FIBERS_FROM, TASKS_FROM, Thread};
pub use thread_states::{StateSpan, StateTimes, ThreadState, ThreadStates, Wait};
pub use values::ValuesNumber;
pub use walk::{Call, CallValues, Calls, JumpedCall, OpenCall};
