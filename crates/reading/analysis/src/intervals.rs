//! How well the times of events are known, where not every event has a time of its own.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use everycall_export::Names as _;
use everycall_timeline::{EventClock, Location, TimelineEvent, Trace};

use crate::names::SymbolNames;
use everycall_profile::Sketch;

/// Functions that are listed.
const WIDEST: usize = 10;

/// How well the times of the events of processes are known that had to do without some.
#[derive(Clone, Debug, Default)]
pub struct EventIntervals {
    /// Entries and exits of these processes.
    pub events: u64,
    /// Of these, how long those lie within that have no time of their own, in nanoseconds.
    pub without: Sketch,
    /// The functions with the widest intervals, these first.
    pub widest: Vec<WideFunction>,
}

/// A function whose entries and exits have no times of their own.
#[derive(Clone, Debug)]
pub struct WideFunction {
    /// Its name.
    pub name: String,
    /// How long they lie within, in nanoseconds.
    pub intervals: Sketch,
}

/// The intervals of a trace; `None` if all events have times of their own.
#[must_use]
pub fn event_intervals(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Option<EventIntervals> {
    if !trace.has_bounds() {
        return None;
    }
    let mut found = EventIntervals::default();
    let mut functions: BTreeMap<Location, Sketch> = BTreeMap::new();
    for thread in trace.threads() {
        let process = trace.processes().get(thread.process);
        if thread.is_sampled || process.is_none_or(|process| process.stamps.clock == EventClock::Exact) {
            continue;
        }
        found.events += thread.events;
        let mut width = None;
        for event in trace.thread_events(thread.index) {
            let location = match event {
                TimelineEvent::Unstamped(unstamped) => {
                    width = Some(unstamped.until_ns.saturating_sub(unstamped.from_ns));
                    continue;
                }
                TimelineEvent::Begin(begin) => begin.location,
                TimelineEvent::End(end) => end.location,
                _ => continue,
            };
            // An event that closes several calls counts once.
            if let Some(width) = width.take() {
                found.without.record(width);
                functions.entry(location).or_default().record(width);
            }
        }
    }
    let mut by_name: BTreeMap<String, Sketch> = BTreeMap::new();
    for (location, intervals) in functions {
        let name = names.function(location).name.into_owned();
        by_name.entry(name).or_default().add(&intervals);
    }
    found.widest = by_name.into_iter().map(|(name, intervals)| WideFunction { name, intervals }).collect();
    found.widest.sort_by_key(|function| Reverse(function.intervals.max()));
    found.widest.truncate(WIDEST);
    Some(found)
}
