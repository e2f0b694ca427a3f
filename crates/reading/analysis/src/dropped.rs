//! Short calls that were dropped, by function.

use std::collections::HashMap;

use everycall_export::Names;
use everycall_timeline::{Location, Trace};

use crate::names::SymbolNames;

/// The calls that a recording dropped because they were short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedCalls {
    /// Shorter calls were being dropped at the end of the recording, in nanoseconds; 0 if none
    /// were.
    pub threshold_ns: u64,
    /// The highest value of this threshold.
    pub highest_ns: u64,
    /// Calls that were dropped in all processes since they started.
    pub calls: u64,
    /// Of these, calls that were dropped within the time range of the trace.
    pub within: u64,
    /// Whether short calls of some functions were recorded, because there was no room to count
    /// them.
    pub is_full: bool,
    /// The functions, sorted by number of calls.
    pub functions: Vec<DroppedFunction>,
}

/// A function whose short calls were dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedFunction {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub location: Option<Location>,
    /// Calls that were dropped.
    pub calls: u64,
}

/// Where a function is, and how many of its calls were dropped.
type Counted = (Option<Location>, u64);

/// The calls that were dropped; `None` if every call was recorded. Only the last snapshot of a
/// process counts.
#[must_use]
pub fn dropped_calls(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Option<DroppedCalls> {
    let mut of_process = HashMap::new();
    for dropped in trace.dropped() {
        of_process.insert(dropped.process, dropped);
    }
    let within =
        trace.threads().iter().filter_map(|thread| thread.dropped_within).reduce(u64::saturating_add);
    if of_process.is_empty() && within.is_none() {
        return None;
    }
    let mut all = DroppedCalls { within: within.unwrap_or(0), ..DroppedCalls::default() };
    // By module and name; `None` if the code offset is invalid.
    let mut functions: HashMap<Option<(usize, String)>, Counted> = HashMap::new();
    for dropped in of_process.into_values() {
        all.threshold_ns = all.threshold_ns.max(dropped.threshold_ns);
        all.highest_ns = all.highest_ns.max(dropped.highest_ns);
        all.is_full |= dropped.is_full;
        all.calls = all.calls.saturating_add(dropped.calls);
        for function in &dropped.functions {
            let location =
                function.offset.map(|offset| trace.locate(dropped.process, offset, function.ticks));
            let key = location.map(|location| {
                // Several processes may run the same program.
                let module = location.module as usize;
                let module = trace.modules().get(module).map_or(module, |module| module.same_file);
                (module, names.function(location).name.into_owned())
            });
            let (_, calls) = functions.entry(key).or_insert((location, 0));
            *calls = calls.saturating_add(function.calls);
        }
    }
    all.functions = functions
        .into_iter()
        .map(|(key, (location, calls))| {
            let name = key.map_or_else(|| "unknown".to_owned(), |(_, name)| name);
            DroppedFunction { name, location, calls }
        })
        .collect();
    all.functions.sort_by(|one, other| (other.calls, &one.name).cmp(&(one.calls, &other.name)));
    Some(all)
}
