//! Bytes of a recording in, typed events out.
//!
//! ```text
//! .ect file ---- TraceFile ----\                       /-- words of one segment -- Decoder -- Event
//!                               Source -- Recording --<
//! arena image -- ArenaImage ---/                       \-- open calls
//! ```
//!
//! Every number in the input is untrusted: memory is only allocated for bytes that exist, damage
//! affects only the damaged part, and what was left out is reported as a [`Warning`]. The crate
//! opens no files, symbolizes nothing and draws nothing; times stay in ticks.
//!
//! Not here: opening files, symbols.
//!
//! Checked by: fuzzing, truncation at every byte.

// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`, because these macros panic if standard error can't
// be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod arena;
mod calibration;
mod chunks;
mod dropped;
mod embedded;
mod embedding;
mod error;
pub mod event;
mod file;
mod frames;
mod indexed;
mod indexer;
mod kept_stretches;
mod kinds;
pub mod log_line;
mod memory;
mod model;
mod payload;
mod processes;
mod sched;
mod segments;
mod session;
mod source;
mod stacks;
mod trampolines;
mod trigger_chunks;
pub mod values;
mod words;
pub mod xray_event;

pub use arena::ArenaImage;
pub use embedded::End;
pub use embedding::{BODY_MAX, EmbeddedSource};
pub use error::{Error, Found, Warning};
pub use everycall_format::calibration::{HookPrices, Price};
pub use file::TraceFile;
pub use model::{
    CallTimes, CaptureLayout, Child, CodeRange, CountedCalls, CountedValues, Counts, Dropped, DroppedCalls,
    Ending, EventClock, Frame, Frames, FunctionRanges, FunctionSet, KeptCall, Memory, MemoryNumbers,
    MemoryOfCalls, MemoryOwner, Meta, Module, OpenCall, Origin, Process, ProcessCalibration, ProcessEnd,
    Reason, Recording, SampledFile, SampledFrame, SampledStacks, Sched, SchedClock, SchedSource,
    SegmentCursor, SegmentPlace, Session, Snapshot, Source, StackSample, Stamps, Tail, Thread, ThreadKey,
    ThreadName, Trampolines, Trigger, ValueCounts,
};
pub use payload::open_calls;
pub use source::{ReadAt, Seekable};
