//! Kept calls, as both forms of the page show them.

use everycall_export::Names;
use everycall_timeline::Trace;

use crate::symbol_names::SymbolNames;

/// A call that was kept.
pub struct Kept {
    /// What `--kept` takes.
    pub number: usize,
    /// Index of the trigger.
    pub trigger: usize,
    /// Process id; 0 where it isn't known.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Name of its thread.
    pub thread: String,
    /// Name of its function.
    pub function: String,
    /// When it began, in nanoseconds since the trace's origin.
    pub start_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// What it had to exceed.
    pub threshold_ns: u64,
    /// Whether it was kept when it was entered.
    pub is_entry: bool,
    /// Whether it was left by an exception or a jump.
    pub is_unwound: bool,
    /// Events since its entry that were overwritten.
    pub missing: u64,
}

/// The kept calls of a trace.
pub fn all(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Vec<Kept> {
    let clock = trace.clock();
    let span = |from: u64, ticks: u64| clock.ns(from.saturating_add(ticks)).saturating_sub(clock.ns(from));
    let kept = trace.kept_calls().iter().zip(1..).map(|(call, number)| {
        let function = match call.offset {
            Some(offset) => {
                let location = trace.locate(call.process, offset, call.start_ticks);
                names.function(location).name.into_owned()
            }
            None if !call.is_call => "(no call: asked for)".to_owned(),
            None => "unknown".to_owned(),
        };
        Kept {
            number,
            trigger: call.trigger,
            pid: trace.processes().get(call.process).map_or(0, |process| process.pid),
            tid: call.tid,
            thread: String::from_utf8_lossy(&call.thread_name).into_owned(),
            function,
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
