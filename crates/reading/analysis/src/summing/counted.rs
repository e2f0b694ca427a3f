//! Calls that were counted: instead of recording them, or beside that.

use std::collections::BTreeMap;

use everycall_export::{Filter, Source as _};
use everycall_profile::{
    Counts as Target, FunctionNumber, Functions, Grouping, Key, Place, PlaceOf as _, Sketch, Sums,
};
use everycall_reader::{CountedCalls, Counts};
use everycall_timeline::{Clock, Location, ThreadInfo};

use super::places::Places;
use crate::view::TraceView;

/// Adds the calls that a trace has counted: instead of recording them, or beside that. Only the
/// last snapshot of a process counts. A filter by time, depth or label lets none of them through,
/// because these aren't known.
pub(super) fn add(target: &mut Target<'_>, view: &TraceView<'_>, filter: &Filter) {
    let trace = view.trace();
    let only_counted = last_of_processes(trace.counts(), |counts| counts.process);
    let Some(mut selected) = Selected::of(view, filter, target.grouping) else {
        let calls = only_counted.values().map(|counts| counts.calls);
        target.notes.counted_only = calls.fold(target.notes.counted_only, u64::saturating_add);
        return;
    };
    let ns_per_tick = ns_per_tick(trace.clock());
    let by_function = target.grouping.is_by_function();
    add_counts(target, &mut selected, &only_counted, |counted, _| {
        Some(sums(counted, ns_per_tick, by_function))
    });
    add_counts(
        target,
        &mut selected,
        &last_of_processes(trace.all_calls(), |counts| counts.process),
        |counted, place| {
            // A thunk and the function that it continues in are one call.
            place.thunk.is_none().then(|| Sums { all_calls: counted.calls, ..Sums::default() })
        },
    );
}

/// The last counts of each process.
pub(super) fn last_of_processes<T>(counts: &[T], process: impl Fn(&T) -> usize) -> BTreeMap<usize, &T> {
    counts.iter().map(|counts| (process(counts), counts)).collect()
}

/// Adds the calls of some processes. `sums` are those of a function in a thread slot; `None` leaves
/// it out.
fn add_counts(
    target: &mut Target<'_>,
    selected: &mut Selected<'_>,
    of_process: &BTreeMap<usize, &Counts>,
    sums: impl Fn(&CountedCalls, &Place) -> Option<Sums>,
) {
    let mut found = Vec::new();
    let others = each(selected, of_process, target.functions, |process, counted, place| {
        let sums = sums(counted, &place);
        found.extend(sums.map(|sums| (process, counted.slot, place.function, sums)));
    });
    target.notes.counted_others = target.notes.counted_others.saturating_add(others);
    for (process, number, function, sums) in found {
        // Recorded calls of a thread are in the row of all its calls, without those before it.
        let slot = Slot { number, has_earlier: sums.calls > 0 };
        let key = selected.key(target, (process, Some(slot)), function);
        target.add(key, &sums);
    }
}

/// Passes the counts that are selected: process, counts, function. Returns the calls of which the
/// function isn't known.
fn each(
    selected: &mut Selected<'_>,
    of_process: &BTreeMap<usize, &Counts>,
    functions: &mut Functions,
    mut each: impl FnMut(usize, &CountedCalls, Place),
) -> u64 {
    let trace = selected.view.trace();
    let mut others = 0_u64;
    for (&process, counts) in of_process {
        others = others.saturating_add(counts.others);
        if !selected.has_process(process) {
            continue;
        }
        for counted in &counts.functions {
            if !selected.has_slot(process, counted.slot) {
                continue;
            }
            let Some(offset) = counted.offset else {
                others = others.saturating_add(counted.calls);
                continue;
            };
            let location = trace.locate(process, offset, counted.ticks);
            if !trace.is_of_session(process, location) {
                continue;
            }
            if let Some(place) = selected.place(location, functions) {
                each(process, counted, place);
            }
        }
    }
    others
}

/// All calls of a function by the threads of a slot, as counted beside their rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllCalls {
    /// The function.
    pub function: FunctionNumber,
    /// The slot's last thread: its index in the trace. `None` if the trace lacks it.
    pub thread: Option<usize>,
    /// Calls since the process began, whether or not their events are in the trace.
    pub calls: u64,
}

/// All calls that a filter lets through, by function and thread, without reading any events. They
/// are those of a [`Profile`](crate::Profile) with the same filter. None if nothing was counted
/// beside the rings, or if the filter is about what counts don't know: times, depths and labels.
#[must_use]
pub fn all_calls(view: &TraceView<'_>, filter: &Filter) -> (Functions, Vec<AllCalls>) {
    let (mut functions, mut all) = (Functions::default(), Vec::new());
    if let Some(mut selected) = Selected::of(view, filter, &Grouping::Function) {
        let of_process = last_of_processes(view.trace().all_calls(), |counts| counts.process);
        let mut found = Vec::new();
        each(&mut selected, &of_process, &mut functions, |process, counted, place| {
            if place.thunk.is_none() {
                found.push((process, counted.slot, place.function, counted.calls));
            }
        });
        all.extend(found.into_iter().map(|(process, slot, function, calls)| AllCalls {
            function,
            thread: selected.thread_index(process, slot),
            calls,
        }));
    }
    (functions, all)
}

/// Whether a filter is about what isn't known of calls that were counted.
pub(super) fn is_about_calls(filter: &Filter) -> bool {
    filter.since_ns.is_some()
        || filter.until_ns.is_some()
        || filter.last_ns.is_some()
        || filter.min_duration_ns > 0
        || filter.label.is_some()
        || filter.values.is_some()
        || filter.depth.is_some()
        || filter.call.is_some()
}

/// A thread slot.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// Whether the numbers include those of threads that used it before the last one.
    pub(super) has_earlier: bool,
}

/// The functions that a filter selects, and their groups.
pub(super) struct Selected<'v> {
    view: &'v TraceView<'v>,
    filter: &'v Filter,
    places: Places<'v>,
}

impl<'v> Selected<'v> {
    /// `None` if counted calls can't be filtered or grouped in this way: their times, depths,
    /// labels and paths aren't known.
    pub(super) fn of(
        view: &'v TraceView<'_>,
        filter: &'v Filter,
        grouping: &Grouping,
    ) -> Option<Selected<'v>> {
        let is_possible = !is_about_calls(filter)
            && !matches!(grouping, Grouping::Path | Grouping::Label(_) | Grouping::Value(_));
        let by_symbol = *grouping == Grouping::Symbol;
        is_possible.then(|| {
            let places = Places::new(view, filter.function.as_ref(), by_symbol);
            Selected { view, filter, places }
        })
    }

    fn pid(&self, process: usize) -> u32 {
        self.view.trace().processes().get(process).map_or(0, |process| process.pid)
    }

    pub(super) fn has_process(&self, process: usize) -> bool {
        self.filter.pids.is_empty() || self.filter.pids.contains(&self.pid(process))
    }

    /// Of the threads that used a slot, the last one represents all, also the tasks that it ran:
    /// its index in the trace.
    fn thread_index(&self, process: usize, slot: u32) -> Option<usize> {
        let threads = self.view.trace().threads().iter().enumerate();
        let its = threads.filter(|(_, thread)| {
            thread.process == process && thread.slot.0 == slot && thread.task().is_none()
        });
        its.max_by_key(|(_, thread)| thread.slot.1).map(|(index, _)| index)
    }

    fn thread(&self, process: usize, slot: u32) -> Option<&'v ThreadInfo> {
        self.view.trace().threads().get(self.thread_index(process, slot)?)
    }

    pub(super) fn has_slot(&self, process: usize, slot: u32) -> bool {
        let tid = || self.thread(process, slot).map_or(0, |thread| thread.tid);
        self.filter.tids.is_empty() || self.filter.tids.contains(&tid())
    }

    /// Whether it lets through what belongs to no thread, and to no function.
    pub(super) fn has_all(&self) -> bool {
        self.filter.tids.is_empty() && self.has_all_functions()
    }

    pub(super) fn has_all_functions(&self) -> bool {
        self.filter.function.is_none()
    }

    /// The function at a location, if it lets that through.
    pub(super) fn function(
        &mut self,
        location: Location,
        functions: &mut Functions,
    ) -> Option<FunctionNumber> {
        self.place(location, functions).map(|place| place.function)
    }

    fn place(&mut self, location: Location, functions: &mut Functions) -> Option<Place> {
        let place = self.places.get(location, functions);
        (self.has_all_functions() || place.matches).then_some(place)
    }

    /// The group of a function's calls in a slot of a process, or in no slot.
    pub(super) fn key(
        &self,
        target: &Target<'_>,
        (process, slot): (usize, Option<Slot>),
        function: FunctionNumber,
    ) -> Key {
        let identity = target.functions.get(function).map(|function| function.identity.clone());
        let (trace, pid) = (target.number, self.pid(process));
        match target.grouping {
            Grouping::Thread => {
                let Some(slot) = slot else {
                    let name = "(threads without counts of their own)".to_owned();
                    return Key::Thread { trace, pid, tid: 0, name };
                };
                let thread = self.thread(process, slot.number);
                let name = thread.map_or_else(|| "?".to_owned(), |thread| thread.name.clone());
                let name = match thread.map_or(0, |thread| thread.slot.1) {
                    _ if !slot.has_earlier => name,
                    0 => name,
                    before => format!("{name} (and {before} ended before)"),
                };
                Key::Thread { trace, pid, tid: thread.map_or(0, |thread| thread.tid), name }
            }
            Grouping::Process => {
                let name = self.view.processes().get(process).map(|process| process.name.clone());
                Key::Process { trace, pid, name: name.unwrap_or_default() }
            }
            Grouping::Module => Key::Module(identity.map(|identity| identity.module).unwrap_or_default()),
            Grouping::File => Key::File(identity.and_then(|identity| identity.file)),
            _ => Key::Function(function),
        }
    }
}

/// How long a tick is, in what the trace's times are in. Counts last longer than a trace's readings
/// of the clock, so its pieces don't matter.
fn ns_per_tick(clock: &Clock) -> f64 {
    const SPAN: u64 = 1 << 34;
    let origin = clock.origin_ticks();
    let ns = clock.ns(origin.saturating_add(SPAN)).saturating_sub(clock.ns(origin));
    ns as f64 / SPAN as f64
}

/// The sums of the calls of a function in a thread slot.
fn sums(counted: &CountedCalls, ns_per_tick: f64, by_function: bool) -> Sums {
    let calls = counted.calls;
    let Some(times) = counted.times.as_deref() else {
        return Sums { calls, untimed: calls, all_calls: calls, ..Sums::default() };
    };
    let ns = |ticks: u64| (ticks as f64 * ns_per_tick) as u64;
    let (min, max) = (ns(times.shortest), ns(times.longest));
    // In the middle of what the times of a bucket may be, on the scale of buckets.
    let groups = times.histogram.iter().zip(0..).map(|(count, power)| {
        let value = (f64::from(power) + 0.5).exp2() * ns_per_tick;
        ((value as u64).clamp(min.min(max), max), *count)
    });
    let sketch = Sketch::of_groups((ns(times.total.saturating_add(times.nested)), min, max), groups);
    let own_ns = ns(times.own);
    Sums {
        calls: calls.max(sketch.count()),
        all_calls: calls.max(sketch.count()),
        untimed: calls.saturating_sub(sketch.count()),
        in_octaves: sketch.count(),
        // Calls of other groups than functions lie in each other, and only own times add up.
        total_ns: if by_function { ns(times.total) } else { own_ns },
        own_ns,
        times: sketch,
        ..Sums::default()
    }
}
