//! Lets a Rust program write into its trace: labels, instants, spans and counters on the timeline
//! of its calls, futures as tasks with tracks of their own, and snapshots of what was recorded.
//!
//! ```
//! let _span = everycall::span("load");
//! everycall::label("request", 7);
//! everycall::counter("queue", 3);
//! ```
//!
//! In a program that was built by `cargo everycall` these reach the runtime in it. In any other
//! they do nothing, cost a load and a branch, and need no library. The crate has no dependencies,
//! unless its features `tracing` and `log` are chosen: the events of the crates of these names are
//! then on the timeline, too. It is what `everycall.h` is for C (docs/reference/c-api.md): names
//! are UTF-8, and their first 64 bytes are kept; all functions may be called in any thread.
//!
//! Not here: dependencies (unless its features `tracing` and `log` are chosen), anything that costs
//! while untraced.
//!
//! Checked by: in a program with the runtime and in one without.

#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
#[path = "untraced.rs"]
mod arch;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64.rs"]
mod arch;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
#[path = "aarch64.rs"]
mod arch;
mod error;
mod lines;
#[cfg(feature = "log")]
pub mod log;
mod runtime;
mod slow;
mod snapshot;
mod tasks;
#[cfg(feature = "tracing")]
pub mod tracing;

pub use error::Error;
pub use lines::line;
pub use slow::{SlowScope, Slowest};
pub use snapshot::Snapshot;
pub use tasks::{Task, named_task, task};

/// Runs the example of the crate's front page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

use std::marker::PhantomData;

use runtime::Mark;

/// Whether this process contains everycall's runtime.
#[must_use]
pub fn is_there() -> bool {
    runtime::is_there()
}

/// The time, in ticks of the traces' clock; always 0 without the runtime.
#[inline]
#[must_use]
pub fn now() -> u64 {
    runtime::now()
}

/// Ticks in a second; never 0. It reads the kernel's clock, so don't call it in inner loops.
#[must_use]
pub fn ticks_per_second() -> u64 {
    runtime::ticks_per_second()
}

/// A named value of the innermost open call.
#[inline(always)]
pub fn label(name: &str, value: u64) {
    runtime::mark(Mark::Label, name, Some(value));
}

/// A name of the innermost open call.
#[inline(always)]
pub fn label_name(name: &str) {
    runtime::mark(Mark::Label, name, None);
}

/// An event at this moment.
#[inline(always)]
pub fn instant(name: &str) {
    runtime::mark(Mark::Instant, name, None);
}

/// An event at this moment, with a value.
#[inline(always)]
pub fn instant_value(name: &str, value: u64) {
    runtime::mark(Mark::Instant, name, Some(value));
}

/// A value of a time series of the process.
#[inline(always)]
pub fn counter(name: &str, value: i64) {
    runtime::mark(Mark::Counter, name, Some(value.cast_unsigned()));
}

/// A value of a time series of the process, as a real number.
#[inline(always)]
pub fn counter_f64(name: &str, value: f64) {
    runtime::mark(Mark::CounterReal, name, Some(value.to_bits()));
}

/// Begins a span of time, which ends where the result is dropped. Spans belong to their thread and
/// may overlap calls and each other.
#[inline(always)]
#[must_use = "the span ends where this is dropped"]
pub fn span(name: &str) -> Span<'_> {
    runtime::mark(Mark::SpanBegin, name, None);
    Span { name, value: None, thread: PhantomData }
}

/// Begins a span that is distinguished by a value, too. It ends where the result is dropped.
#[inline(always)]
#[must_use = "the span ends where this is dropped"]
pub fn span_value(name: &str, value: u64) -> Span<'_> {
    runtime::mark(Mark::SpanBegin, name, Some(value));
    Span { name, value: Some(value), thread: PhantomData }
}

/// An open span. It stays in its thread.
#[derive(Debug)]
pub struct Span<'name> {
    name: &'name str,
    value: Option<u64>,
    thread: PhantomData<*const ()>,
}

impl Drop for Span<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        runtime::mark(Mark::SpanEnd, self.name, self.value);
    }
}

/// Leaves the calling thread out: it records nothing until the result is dropped. The trace shows
/// the time between as a gap.
///
/// # Errors
/// See [`Error`].
pub fn leave_thread_out() -> Result<ThreadOut, Error> {
    runtime::record_thread(false).map(|()| ThreadOut { thread: PhantomData })
}

/// A thread that is left out.
#[derive(Debug)]
pub struct ThreadOut {
    thread: PhantomData<*const ()>,
}

impl Drop for ThreadOut {
    fn drop(&mut self) {
        let _ = runtime::record_thread(true);
    }
}

/// Switches tracing off in all threads, until [`enable`]. Recorded events stay.
///
/// # Errors
/// See [`Error`].
pub fn disable() -> Result<(), Error> {
    runtime::record_process(false)
}

/// Switches tracing on again, or on where the program was started with `EVERYCALL_START=off`.
///
/// # Errors
/// See [`Error`].
pub fn enable() -> Result<(), Error> {
    runtime::record_process(true)
}
