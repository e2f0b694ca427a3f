//! Calls that were counted: instead of recording them, or beside that.

use std::collections::BTreeMap;

use everycall_export::{Filter, Source as _};
use everycall_reader::{CountedCalls, Counts};
use everycall_timeline::{Clock, ThreadInfo};

use super::functions::{Functions, Place, PlaceOf as _, Places};
use super::group::{Grouping, Key};
use super::notes::Notes;
use super::sketch::Sketch;
use super::sums::Sums;
use super::table::Cells;
use crate::view::TraceView;

/// The profile to which counted calls are added.
pub(super) struct Target<'p> {
    pub(super) grouping: &'p Grouping,
    /// The trace's number.
    pub(super) number: usize,
    pub(super) functions: &'p mut Functions,
    pub(super) cells: &'p mut Cells,
    pub(super) notes: &'p mut Notes,
}

/// Adds the calls that a trace has counted: instead of recording them, or beside that. Only the last
/// snapshot of a process counts. A filter by time, depth or label lets none of them through, because
/// these aren't known.
pub(super) fn add(mut target: Target<'_>, view: &TraceView<'_>, filter: &Filter) {
    let trace = view.trace();
    let is_filtered = filter.since_ns.is_some()
        || filter.until_ns.is_some()
        || filter.last_ns.is_some()
        || filter.min_duration_ns > 0
        || filter.label.is_some()
        || filter.depth.is_some()
        || filter.call.is_some();
    let is_known = !is_filtered && !matches!(target.grouping, Grouping::Path | Grouping::Label(_));
    let only_counted = of_processes(trace.counts());
    if is_known {
        let ns_per_tick = ns_per_tick(trace.clock());
        let by_function = *target.grouping == Grouping::Function;
        add_counts(&mut target, view, filter, &only_counted, |counted, _| {
            Some(sums(counted, ns_per_tick, by_function))
        });
        add_counts(&mut target, view, filter, &of_processes(trace.all_calls()), |counted, place| {
            // A thunk and the function that it continues in are one call.
            place.thunk.is_none().then(|| Sums { all_calls: counted.calls, ..Sums::default() })
        });
    } else {
        let calls = only_counted.values().map(|counts| counts.calls);
        let notes = target.notes;
        notes.counted_only = calls.fold(notes.counted_only, u64::saturating_add);
    }
}

/// The last counts of each process.
fn of_processes(counts: &[Counts]) -> BTreeMap<usize, &Counts> {
    counts.iter().map(|counts| (counts.process, counts)).collect()
}

/// Adds the calls of some processes. `sums` are those of a function in a thread slot; `None` leaves
/// it out.
fn add_counts(
    target: &mut Target<'_>,
    view: &TraceView<'_>,
    filter: &Filter,
    of_process: &BTreeMap<usize, &Counts>,
    sums: impl Fn(&CountedCalls, &Place) -> Option<Sums>,
) {
    let Target { grouping, number, functions, cells, notes } = target;
    let trace = view.trace();
    let mut places = Places::new(view, filter.function.as_ref());
    for (&process, counts) in of_process {
        notes.counted_others = notes.counted_others.saturating_add(counts.others);
        let pid = trace.processes().get(process).map_or(0, |process| process.pid);
        if !filter.pids.is_empty() && !filter.pids.contains(&pid) {
            continue;
        }
        for counted in &counts.functions {
            // Of the threads that used the slot, the last one represents all.
            let is_its = |thread: &&ThreadInfo| thread.process == process && thread.slot.0 == counted.slot;
            let thread = trace.threads().iter().filter(is_its).max_by_key(|thread| thread.slot.1);
            let tid = thread.map_or(0, |thread| thread.tid);
            if !filter.tids.is_empty() && !filter.tids.contains(&tid) {
                continue;
            }
            let Some(offset) = counted.offset else {
                notes.counted_others = notes.counted_others.saturating_add(counted.calls);
                continue;
            };
            let location = trace.locate(process, offset, counted.ticks);
            if !trace.is_of_session(process, location) {
                continue;
            }
            let place = places.get(location, functions);
            if filter.function.is_some() && !place.matches {
                continue;
            }
            let Some(sums) = sums(counted, &place) else { continue };
            let identity = functions.get(place.function).map(|function| function.identity.clone());
            let key = match grouping {
                Grouping::Thread => {
                    let name = thread.map_or_else(|| "?".to_owned(), |thread| thread.name.clone());
                    let before = thread.map_or(0, |thread| thread.slot.1);
                    let name = match before {
                        // Its own recorded calls are in the same row.
                        _ if sums.calls == 0 => name,
                        0 => name,
                        before => format!("{name} (and {before} ended before)"),
                    };
                    Key::Thread { trace: *number, pid, tid, name }
                }
                Grouping::Process => {
                    let name = view.processes().get(process).map(|process| process.name.clone());
                    Key::Process { trace: *number, pid, name: name.unwrap_or_default() }
                }
                Grouping::Module => Key::Module(identity.map(|identity| identity.module).unwrap_or_default()),
                Grouping::File => Key::File(identity.and_then(|identity| identity.file)),
                _ => Key::Function(place.function),
            };
            cells.add(key, &sums);
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
