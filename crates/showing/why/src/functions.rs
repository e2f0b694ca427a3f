//! Every function in a call, beside those in a median call.

use everycall_analysis::{CallPlace, FunctionIdentity, Grouping, Key, Order, Profile, Sums, TraceView};
use everycall_export::{CallAt, Filter};
use everycall_timeline::StateTimes;

use crate::answer::{Cause, Named, RowNumbers, TwoRows};

/// The library whose calls are those that wait (`record --waits`).
const WAITS_LIBRARY: &str = "libeverycall-waits.so";

/// The filter that passes one call with everything that it called.
pub(crate) fn only_call(place: CallPlace) -> Filter {
    Filter {
        pids: vec![place.pid],
        tids: vec![place.tid],
        call: Some(CallAt { start_ns: place.start_ns, depth: place.depth }),
        ..Filter::default()
    }
}

/// The functions in one call.
pub(crate) fn profile_of(view: &TraceView<'_>, place: CallPlace) -> Profile {
    let mut profile = Profile::by(Grouping::Function);
    profile.add_trace(view, &only_call(place));
    profile
}

/// The sums of a function.
pub(crate) fn sums_of<'p>(profile: &'p Profile, identity: &FunctionIdentity) -> Option<&'p Sums> {
    let is_it = |key: &Key| match key {
        Key::Function(number) => {
            profile.functions().get(*number).is_some_and(|function| function.identity == *identity)
        }
        _ => false,
    };
    profile.rows(Order::TotalTime).into_iter().find(|row| is_it(row.key)).map(|row| row.sums)
}

/// Thread states, if anything is known.
pub(crate) fn known(states: StateTimes) -> Option<StateTimes> {
    let is_known = states.running + states.runnable + states.blocked > 0;
    is_known.then_some(states)
}

/// Whether calls of a function wait by what they are.
pub(crate) fn is_wait(module: &str) -> bool {
    module == WAITS_LIBRARY
}

/// Why `more_ns` of own time are longer, as far as thread states tell.
pub(crate) fn by_states(more_ns: f64, here: Option<StateTimes>, median: Option<StateTimes>) -> Option<Cause> {
    let (here, median) = (here?, median.unwrap_or_default());
    let more = |of: fn(&StateTimes) -> u64| of(&here) as f64 - of(&median) as f64;
    if more(|states| states.blocked) >= more_ns / 2.0 {
        return Some(Cause::Waiting);
    }
    (more(|states| states.runnable) >= more_ns / 2.0).then_some(Cause::WaitingForCpu)
}

/// Whether there were more calls or slower ones: which of both numbers has grown by the larger
/// factor.
pub(crate) fn by_calls((here_ns, here_calls): (f64, f64), (median_ns, median_calls): (f64, f64)) -> Cause {
    if here_ns <= median_ns {
        return Cause::NotMore;
    }
    if median_calls == 0.0 {
        return Cause::OnlyHere;
    }
    let per_call = |ns: f64, calls: f64| (ns / calls.max(1.0)).max(1.0);
    let slower = per_call(here_ns, here_calls) / per_call(median_ns, median_calls);
    if here_calls / median_calls >= slower { Cause::MoreCalls } else { Cause::SlowerCalls }
}

fn numbers(sums: &Sums) -> RowNumbers {
    RowNumbers {
        calls: sums.calls,
        total_ns: sums.total_ns,
        own_ns: sums.own_ns,
        own_states: known(sums.own_states),
    }
}

/// The functions of both, the largest difference of own time first.
pub(crate) fn compare(here: &Profile, median: Option<&Profile>) -> Vec<TwoRows> {
    let mut rows = Vec::new();
    let each = |profile: &Profile, add: &mut dyn FnMut(&FunctionIdentity, Named, RowNumbers)| {
        for row in profile.rows(Order::OwnTime) {
            let Key::Function(number) = row.key else { continue };
            let Some(function) = profile.functions().get(*number) else { continue };
            add(&function.identity, Named::of(Some(function)), numbers(row.sums));
        }
    };
    each(here, &mut |identity, function, call| {
        let other = median.and_then(|median| sums_of(median, identity)).map(numbers);
        let other = other.or(median.map(|_| RowNumbers::default()));
        rows.push(TwoRows { function, call, median: other, cause: Cause::NotMore });
    });
    if let Some(median) = median {
        each(median, &mut |identity, function, numbers| {
            if sums_of(here, identity).is_none() {
                let call = RowNumbers::default();
                rows.push(TwoRows { function, call, median: Some(numbers), cause: Cause::NotMore });
            }
        });
    }
    for row in &mut rows {
        row.cause = cause(row);
    }
    rows.sort_by(|one, other| {
        let key =
            |row: &TwoRows| (std::cmp::Reverse(row.more_ns().unsigned_abs()), row.function.full_name.clone());
        key(one).cmp(&key(other))
    });
    rows
}

fn cause(row: &TwoRows) -> Cause {
    let Some(median) = row.median.filter(|_| row.more_ns() > 0) else { return Cause::NotMore };
    let (here_ns, median_ns) = (row.call.own_ns as f64, median.own_ns as f64);
    if is_wait(&row.function.module) {
        return Cause::Waiting;
    }
    by_states(here_ns - median_ns, row.call.own_states, median.own_states)
        .unwrap_or_else(|| by_calls((here_ns, row.call.calls as f64), (median_ns, median.calls as f64)))
}
