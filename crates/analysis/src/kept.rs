//! Calls that triggers kept, with their names.

use everycall_export::Names;
use everycall_timeline::Trace;

use crate::names::SymbolNames;

/// A call that a trigger kept, or a moment that a signal asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// Its number in the trace, from 1: see [`Selection::KeptCall`](crate::Selection::KeptCall).
    pub number: usize,
    /// Index of the trigger.
    pub trigger: usize,
    /// Process id; 0 where it isn't known.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Name of its thread.
    pub thread: String,
    /// Name of its function, where it is known.
    pub function: Option<String>,
    /// Whether it is a call, and not a moment that a signal asked for.
    pub is_call: bool,
    /// When it began, in nanoseconds since the trace's origin.
    pub start_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// The nanoseconds that it had to exceed.
    pub threshold_ns: u64,
    /// Whether it was kept when it was entered.
    pub is_entry: bool,
    /// Whether it was left by an exception or a jump.
    pub is_unwound: bool,
    /// Events since its entry that were overwritten.
    pub missing: u64,
}

/// The kept calls of a trace, in the order of their numbers.
#[must_use]
pub fn kept_calls(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Vec<KeptCall> {
    let clock = trace.clock();
    let span = |from: u64, ticks: u64| clock.ns(from.saturating_add(ticks)).saturating_sub(clock.ns(from));
    let kept = trace.kept_calls().iter().zip(1..).map(|(call, number)| {
        let function = call.offset.map(|offset| {
            let location = trace.locate(call.process, offset, call.start_ticks);
            names.function(location).name.into_owned()
        });
        KeptCall {
            number,
            trigger: call.trigger,
            pid: trace.processes().get(call.process).map_or(0, |process| process.pid),
            tid: call.tid,
            thread: String::from_utf8_lossy(&call.thread_name).into_owned(),
            function,
            is_call: call.is_call,
            start_ns: clock.ns(call.start_ticks),
            took_ns: span(call.start_ticks, call.end_ticks.saturating_sub(call.start_ticks)),
            threshold_ns: span(call.start_ticks, call.threshold_ticks),
            is_entry: call.is_entry,
            is_unwound: call.is_unwound,
            missing: call.missing,
        }
    });
    kept.collect()
}
