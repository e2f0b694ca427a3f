//! The path from a call down to where the time went: at each call, the part that differs most from
//! that of calls around the median; if that is a called function, the longest of these calls next.

use everycall_analysis::{
    CallPlace, Explanation, Focus, Function, FunctionIdentity, Notes, SlowCall, TraceView,
};
use everycall_export::Filter;

use crate::answer::{Cause, Median, Named, PartOfCall, Step};
use crate::choose::{place_of, slowest};
use crate::commands;
use crate::functions::{by_calls, by_states, is_wait, known, only_call, profile_of, sums_of};
use crate::parts::{Part, PartKind, parts};

/// Longest path.
const STEPS_MAX: usize = 8;
/// Most parts of a call that are kept.
const PARTS_MAX: usize = 8;
/// A part that is less of the difference isn't followed.
const SHARE: f64 = 0.5;

/// The path, and what the trace lacks for the comparison of its first call.
pub(crate) fn steps(
    view: &TraceView<'_>,
    call: &SlowCall,
    function: &Function,
    tails: bool,
) -> Result<(Vec<Step>, Notes), String> {
    let (first, next, notes) = step(view, place_of(call), call.end_ns, &function.identity, tails).ok_or(
        "this call is a part of another call of its function, or wasn't recorded from its entry to its exit",
    )?;
    let mut steps = vec![first];
    let mut next = next;
    while let Some(identity) = next.filter(|_| steps.len() < STEPS_MAX) {
        let Some(around) = steps.last().map(|step| step.place) else { break };
        let is_meant = |function: &Function| function.identity == identity;
        let (calls, _) = slowest(view, &is_meant, &only_call(around), 1, false);
        let Some((longest, _)) = calls.into_iter().next().filter(|(call, _)| place_of(call) != around) else {
            break;
        };
        match step(view, place_of(&longest), longest.end_ns, &identity, tails) {
            Some((step, following, _)) => {
                steps.push(step);
                next = following;
            }
            None => break,
        }
    }
    Ok((steps, notes))
}

/// One call; `None` if its function's own rules say that it is a part of another one. With the
/// function that is to be followed.
fn step(
    view: &TraceView<'_>,
    place: CallPlace,
    end_ns: u64,
    identity: &FunctionIdentity,
    tails: bool,
) -> Option<(Step, Option<FunctionIdentity>, Notes)> {
    // All functions with the name, as the pattern of `report` means them.
    let is_meant = |function: &Function| function.identity.name == identity.name;
    let mut explanation = Explanation::new(Focus::new(&is_meant)).of_call(place).with_tails(tails);
    explanation.first(view, &Filter::default());
    explanation.second(view, &Filter::default());
    if explanation.slow.calls == 0 {
        return None;
    }
    let has_others = explanation.times.count() > 1;
    let functions = explanation.functions();
    let median = has_others.then(|| Median {
        p50_ns: explanation.times.percentile(5_000).unwrap_or(0),
        calls: explanation.median.calls,
        average_ns: explanation.median.per_call(explanation.median.duration_ns),
        nearest: explanation.median_call().filter(|(nearest, _)| *nearest != place),
    });
    let nearest = median.as_ref().and_then(|median| median.nearest).map(|(nearest, _)| nearest);
    let mut all = parts(&explanation);
    if !has_others {
        all.sort_by(|one, other| other.slow_ns.total_cmp(&one.slow_ns));
    }
    let further_parts = all.len().saturating_sub(PARTS_MAX);
    let mut shown: Vec<(PartOfCall, PartKind)> =
        all.iter().take(PARTS_MAX).map(|part| (part_of(part, &explanation, has_others), part.kind)).collect();
    // Whether the function itself waited is asked only where that matters.
    if let Some((part, PartKind::Own)) = shown.first_mut().filter(|(part, _)| part.more_ns() > 0.0) {
        let states = |place| {
            let profile = profile_of(view, place);
            sums_of(&profile, identity).and_then(|sums| known(sums.own_states))
        };
        let median = nearest.and_then(states);
        part.cause = by_states(part.more_ns(), states(place), median).unwrap_or(Cause::OwnTime);
    }
    let slow_ns = explanation.slow.per_call(explanation.slow.duration_ns);
    let median_ns = median.as_ref().map_or(0.0, |median| median.average_ns);
    let next = shown.first().and_then(|(part, kind)| {
        let PartKind::Call(number) = *kind else { return None };
        let is_followed = part.more_ns() > 0.0
            && part.more_ns() >= SHARE * (slow_ns - median_ns)
            && !(part.cause == Cause::MoreCalls && part.call_calls > 2);
        let identity = &functions.get(number).filter(|_| is_followed)?.identity;
        (!is_wait(&identity.module)).then(|| identity.clone())
    });
    let function = functions.all().iter().find(|function| function.identity == *identity);
    let step = Step {
        function: Named::of(function),
        place,
        end_ns,
        duration_ns: slow_ns as u64,
        timed_calls: explanation.times.count(),
        median,
        parts: shown.into_iter().map(|(part, _)| part).collect(),
        further_parts,
        pattern: commands::pattern(&identity.name, functions),
    };
    Some((step, next, explanation.notes))
}

fn part_of(part: &Part, explanation: &Explanation<'_>, has_others: bool) -> PartOfCall {
    let function = match part.kind {
        PartKind::Call(number) => Some(Named::of(explanation.functions().get(number))),
        _ => None,
    };
    let is_more = part.more_ns() > 0.0;
    let cause = match (&function, has_others && is_more) {
        (_, false) => Cause::NotMore,
        (None, true) => Cause::OwnTime,
        (Some(function), true) => {
            let (here, median) = ((part.slow_ns, part.slow_calls), (part.median_ns, part.median_calls));
            if is_wait(&function.module) { Cause::Waiting } else { by_calls(here, median) }
        }
    };
    PartOfCall {
        kind: part.kind.name(),
        function,
        call_ns: part.slow_ns as u64,
        median_ns: has_others.then_some(part.median_ns),
        call_calls: part.slow_calls as u64,
        median_calls: has_others.then_some(part.median_calls),
        cause,
    }
}
