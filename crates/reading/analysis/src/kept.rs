//! Calls that triggers kept, with their names.

use everycall_export::Names;
use everycall_timeline::{Intervals, Trace};

use crate::names::SymbolNames;

/// A call that a trigger kept, or a snapshot that a signal requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// Its number in the trace, from 1: see [`Selection::KeptCall`](crate::Selection::KeptCall).
    pub number: usize,
    /// Index of the trigger.
    pub trigger: usize,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Name of its thread.
    pub thread: String,
    /// Name of its function, if known.
    pub function: Option<String>,
    /// Whether it is a call rather than a snapshot requested by a signal.
    pub is_call: bool,
    /// When it began, in nanoseconds since the trace's origin.
    pub start_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How long it took at least, if that isn't known exactly, because its entry had no time of its
    /// own: then `took_ns` is the longest time possible.
    pub at_least_ns: Option<u64>,
    /// The threshold that it exceeded, in nanoseconds.
    pub threshold_ns: u64,
    /// Whether it was kept when it was entered.
    pub is_entry: bool,
    /// Whether it was kept when an exception was thrown in it.
    pub is_throw: bool,
    /// Whether it was unwound.
    pub is_unwound: bool,
    /// For a call that ended in a tail call and whose duration includes the time after it.
    pub tail: Option<KeptTail>,
    /// Number of overwritten events since its entry.
    pub missing: u64,
}

impl KeptCall {
    /// How long it took at least, in nanoseconds.
    #[must_use]
    pub fn least_ns(&self) -> u64 {
        let at_most = self.tail.as_ref().filter(|tail| tail.is_at_most);
        let certain = at_most.map_or(self.took_ns, |tail| self.took_ns.saturating_sub(tail.behind_ns));
        certain.min(self.at_least_ns.unwrap_or(u64::MAX))
    }

    /// How long it took at most, in nanoseconds; `None` if it had not ended when it was kept.
    #[must_use]
    pub fn most_ns(&self) -> Option<u64> {
        let goes_on = self.is_entry || self.is_throw || self.tail.as_ref().is_some_and(|tail| tail.goes_on);
        (!goes_on).then_some(self.took_ns)
    }
}

/// How a kept call's tail call affects its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTail {
    /// Whether [`KeptCall::took_ns`] is the time until its jump, because it had exceeded the
    /// threshold by then and was kept at once: it may have taken longer.
    pub goes_on: bool,
    /// Whether [`KeptCall::took_ns`] is an upper bound: the target of the jump isn't traced.
    pub is_at_most: bool,
    /// Whether it may have been shorter than the threshold: the least possible time is
    /// [`KeptCall::took_ns`] without `behind_ns`.
    pub is_perhaps_short: bool,
    /// Time after its last jump, in nanoseconds; 0 if the call [goes on](KeptTail::goes_on).
    pub behind_ns: u64,
    /// Name of that jump's target, if known.
    pub target: Option<String>,
    /// Whether an event of its thread shows its end; otherwise the thread had no further event.
    pub has_next: bool,
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
            at_least_ns: None,
            threshold_ns: span(call.start_ticks, call.threshold_ticks),
            is_entry: call.is_entry,
            is_throw: call.is_throw,
            is_unwound: call.is_unwound,
            tail: call.tail.map(|tail| KeptTail {
                goes_on: tail.goes_on,
                is_at_most: tail.is_at_most,
                is_perhaps_short: tail.is_perhaps_short,
                behind_ns: span(tail.jump_ticks, call.end_ticks.saturating_sub(tail.jump_ticks)),
                target: target(trace, names, call.process, call.end_ticks, &tail),
                has_next: tail.has_next,
            }),
            missing: call.missing,
        }
    });
    let mut kept = kept.collect::<Vec<_>>();
    if trace.has_bounds() {
        find_bounds(trace, &mut kept);
    }
    kept
}

/// Looks for the kept calls among those of the timeline, to tell how long they took at least.
fn find_bounds(trace: &Trace<'_>, kept: &mut [KeptCall]) {
    for thread in trace.threads() {
        let its = |call: &KeptCall| call.is_call && (call.pid, call.tid) == (thread.pid, thread.tid);
        if !kept.iter().any(its) {
            continue;
        }
        let mut intervals = Intervals::default();
        for event in trace.thread_events(thread.index) {
            let Some(bars) = intervals.event(&event) else { continue };
            // It was kept because its end was seen, which has a time.
            let end_ns = event.at_ns();
            let is_it = |call: &&mut KeptCall| {
                its(call)
                    && call.start_ns.abs_diff(end_ns.saturating_sub(bars.high)) <= 1
                    && call.start_ns.saturating_add(call.took_ns).abs_diff(end_ns) <= 1
            };
            if let Some(call) = kept.iter_mut().find(is_it) {
                call.at_least_ns = Some(bars.low);
            }
        }
    }
}

/// The name of the function to which a kept call has jumped.
fn target(
    trace: &Trace<'_>,
    names: &SymbolNames<'_>,
    process: usize,
    at_ticks: u64,
    tail: &everycall_reader::Tail,
) -> Option<String> {
    let exit = tail.jump_offset.map(|offset| trace.locate(process, offset, tail.jump_ticks));
    let by_code = exit.and_then(|exit| names.jump_target(exit));
    by_code.or_else(|| {
        let location = trace.locate_address(process, tail.target?, at_ticks)?;
        Some(names.name(location).name.into_owned())
    })
}
