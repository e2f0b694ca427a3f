//! Threads and fibers: their stacks, contexts and open calls, and how the slow path records them.
//!
//! ```text
//! begin        a context's first event gives it a slot; retirement: contexts that have ended
//! stacks       bounds of stacks; nested: stacks in local variables, and when they end
//! contexts     which stack a thread runs: its own, or a fiber's
//! open_calls   the open-call stack: dead frames, matching an exit; deep_calls: beyond its capacity
//! thread       a thread, as the slow path sees it
//! divert       conditions that send a thread's next events to the slow path
//! triggers     calls of armed functions that took long; tails: those that end in a tail call
//! throws       exceptions that triggers wait for
//! short_calls  calls that are counted and not recorded
//! timed, memory  times of calls that are counted, and what they allocate
//! quick_marks  the program's marks, without the slow path
//! quick_values events with values, without the slow path
//! stretches    which events may go without a time of their own
//! advance      space in the ring; room: space on the disk
//! values       arguments and results, which are copied
//! events       entries, exits, unwound frames; shared_frames: those shared with inlined calls
//! cancellation threads that the program asks to end
//! ```

pub(crate) mod advance;
pub(crate) mod armed_calls;
pub(crate) mod begin;
pub(crate) mod cancellation;
pub(crate) mod contexts;
pub(crate) mod deep_calls;
pub(crate) mod divert;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod nested;
pub(crate) mod open_calls;
pub(crate) mod quick_marks;
pub(crate) mod quick_values;
pub(crate) mod retirement;
pub(crate) mod room;
pub(crate) mod shared_frames;
pub(crate) mod short_calls;
pub(crate) mod stacks;
pub(crate) mod stretches;
pub(crate) mod tails;
pub(crate) mod thread;
pub(crate) mod throws;
pub(crate) mod timed;
mod value_records;
pub(crate) mod values;
