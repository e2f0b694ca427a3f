//! Calls that were counted by their values.

use everycall_export::{Filter, Source as _, plain_name, value_text};
use everycall_profile::{Counts, Key, Sums, ValueOf};
use everycall_reader::CountedValues;

use super::counted::{is_about_calls, last_of_processes};
use crate::view::TraceView;

/// The group of calls that were counted without their values, because there was no place for them.
const OTHERS: &str = "(other values)";

/// Adds calls that were counted by the value, of the last snapshot of each process. A filter by
/// anything but the process lets none of them through.
pub(super) fn add(target: &mut Counts<'_>, view: &TraceView<'_>, filter: &Filter, of: &ValueOf) {
    let trace = view.trace();
    let is_any = !is_about_calls(filter) && filter.tids.is_empty() && filter.function.is_none();
    let name = plain_name(&of.value);
    for (process, counts) in last_of_processes(trace.value_counts(), |counts| counts.process) {
        let pid = trace.processes().get(process).map_or(0, |process| process.pid);
        if !filter.pids.is_empty() && !filter.pids.contains(&pid) {
            continue;
        }
        for CountedValues { id, bytes, calls } in &counts.values {
            let values = view.captured(*id, bytes);
            let Some((_, value)) = values.iter().find(|(known, _)| plain_name(known) == name) else {
                continue;
            };
            add_value(target, is_any, value_text::text(value), *calls);
        }
        if counts.others > 0 {
            add_value(target, is_any, OTHERS.to_owned(), counts.others);
        }
    }
}

fn add_value(target: &mut Counts<'_>, is_wanted: bool, value: String, calls: u64) {
    if is_wanted {
        let sums = Sums { calls, untimed: calls, all_calls: calls, ..Sums::default() };
        target.add(Key::Value(value), &sums);
    } else {
        target.notes.counted_only = target.notes.counted_only.saturating_add(calls);
    }
}
