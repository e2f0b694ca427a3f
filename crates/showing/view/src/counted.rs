//! Calls that were counted beside the rings, by the functions' shared numbers.

use everycall_analysis::{TraceView, all_calls};
use everycall_export::Filter;

use crate::file::{File, SharedFunctions, lock};
use crate::functions::AllCalls;

/// All calls of a file that its filter lets through; none if they weren't counted.
pub(crate) fn of_file<'f>(file: &'f File, view: &TraceView<'_>, functions: &SharedFunctions) -> &'f AllCalls {
    file.all_calls.get_or_init(|| {
        let mut all = AllCalls::default();
        for (function, _, calls) in by_track(file, view, functions, &file.filter) {
            let sum = all.entry(function).or_default();
            *sum = sum.saturating_add(calls);
        }
        all
    })
}

/// All calls that a filter lets through: function, track of the thread, calls.
pub(crate) fn by_track(
    file: &File,
    view: &TraceView<'_>,
    functions: &SharedFunctions,
    filter: &Filter,
) -> Vec<(u32, Option<u32>, u64)> {
    let (known, all) = all_calls(view, filter);
    let mut shared = lock(functions);
    let numbers: Vec<u32> = known.all().iter().map(|function| shared.number(function)).collect();
    let track = |thread| file.indices.iter().position(|index| *index == thread);
    let of = all.into_iter().filter_map(|one| {
        let number = numbers.get(one.function as usize)?;
        Some((*number, one.thread.and_then(track).map(|thread| file.track_id(thread)), one.calls))
    });
    of.collect()
}
