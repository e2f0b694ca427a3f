//! All of it together.

use std::path::Path;

use everycall_analysis::{
    CallPlace, Function, OwnSamples, Profile, SlowCall, TraceView, ValueText, kept_calls,
};
use everycall_export::Filter;
use everycall_timeline::{EndKind, StateSpan, ThreadState, system_call_name};

use crate::answer::{Named, OneCall, Sampled, Waits, Why};
use crate::choose::{Choice, Question, choose};
use crate::claims::claims;
use crate::commands::Commands;
use crate::functions::{compare, known, profile_of, sums_of};
use crate::inside::{Inside, inside, states_of, thread_name};
use crate::missing::{Known, missing};
use crate::steps::steps;
use crate::values::values;

/// Most functions that are kept.
const FUNCTIONS_MAX: usize = 20;
/// Most calls that waited.
const WAITING_MAX: usize = 10;

/// Explains one call of a trace. `file` is the trace's name in the commands that show more.
///
/// # Errors
///
/// A sentence why no call can be explained.
pub fn why(view: &TraceView<'_>, file: &Path, question: &Question<'_>) -> Result<Why, String> {
    let choice = choose(view, question)?;
    let (place, end_ns) = (choice.place(), choice.call.end_ns);
    let identity = choice.function.identity.clone();
    let (steps, notes) = steps(view, &choice.call, &choice.function, choice.follows_tails)?;
    let mut inside = inside(view, place, end_ns);
    let call = one_call(&choice, &inside);

    let here = profile_of(view, place);
    let median = steps.first().and_then(|step| step.median.as_ref()).and_then(|median| median.nearest);
    let median = median.map(|(nearest, _)| profile_of(view, nearest));
    let mut functions = compare(&here, median.as_ref());
    let further_functions = functions.len().saturating_sub(FUNCTIONS_MAX);
    functions.truncate(FUNCTIONS_MAX);

    let states = |profile| sums_of(profile, &identity).and_then(|sums| known(sums.total_states));
    let further_calls = inside.waiting.len().saturating_sub(WAITING_MAX);
    inside.waiting.truncate(WAITING_MAX);
    let thread_states = states_of(view, place);
    let waits = Waits {
        states: states(&here),
        median_states: median.as_ref().and_then(states),
        blocked_in: thread_states.map_or_else(Vec::new, |states| {
            let all = states.blocked_in(place.start_ns, end_ns);
            all.into_iter().filter_map(|(call, ns)| Some((system_call_name(call)?, ns))).collect()
        }),
        woken_by: thread_states.and_then(|states| {
            let tid = woken_by(states.spans(), place.start_ns, end_ns)?;
            Some((tid, thread_name(view, place.pid, tid)))
        }),
        calls: std::mem::take(&mut inside.waiting),
        further_calls,
    };
    let name = &choice.function.name;
    let is_of_function = |kept: &everycall_analysis::KeptCall| kept.function.as_ref() == Some(name);
    let kept_of_function =
        kept_calls(view.trace(), view.names()).iter().filter(|kept| is_of_function(kept)).count();
    let missing = missing(
        view,
        &Known {
            notes: &notes,
            call: &call,
            kept: choice.kept.as_ref(),
            inside: &inside,
            steps: &steps,
            states: waits.states,
            kept_of_function: kept_of_function as u64,
        },
    );
    let mut why = Why {
        file: file.to_owned(),
        chosen: choice.chosen,
        kept_calls: choice.kept_calls,
        follows_tails: choice.follows_tails,
        values: values(view, &choice.function.name, inside.arguments, choice.follows_tails),
        call,
        steps,
        functions,
        further_functions,
        waits,
        samples: samples(view, place, end_ns, &here),
        missing,
        claims: Vec::new(),
    };
    why.claims = claims(&why, &Commands::new(file, choice.follows_tails));
    Ok(why)
}

/// The sampled stacks in a call, by the function in whose own time they were.
fn samples(view: &TraceView<'_>, place: CallPlace, end_ns: u64, here: &Profile) -> Vec<Sampled> {
    let filter = Filter {
        pids: vec![place.pid],
        tids: vec![place.tid],
        since_ns: Some(place.start_ns),
        // A sample at its end is its caller's.
        until_ns: Some(end_ns.saturating_sub(1)),
        ..Filter::default()
    };
    let mut own = OwnSamples::default();
    own.add_trace(view, &filter);
    let of = |function: &Function| Sampled {
        function: Named::of(Some(function)),
        places: own.labels(&function.identity),
    };
    let mut all: Vec<Sampled> = here.functions().all().iter().map(of).collect();
    all.retain(|sampled| !sampled.places.is_empty());
    let count = |sampled: &Sampled| sampled.places.iter().map(|(_, count)| count).sum::<u64>();
    all.sort_by_key(|sampled| std::cmp::Reverse(count(sampled)));
    all
}

fn one_call(choice: &Choice, inside: &Inside) -> OneCall {
    let call: &SlowCall = &choice.call;
    let texts = |of: &Option<ValueText>| of.as_ref().map(|of| (of.text.clone(), of.json.clone()));
    OneCall {
        function: Named::of(Some(&choice.function)),
        place: choice.place(),
        thread: call.thread.clone(),
        end_ns: call.end_ns,
        own_ns: call.own_ns,
        bounds: call.bars.map(|bars| (bars.low, bars.high)),
        is_uncertain: call.is_uncertain,
        is_at_most: call.is_at_most,
        is_unwound: matches!(call.how, EndKind::Unwound | EndKind::UnwoundLate),
        is_before_tail: call.how == EndKind::Jumped && !call.has_tail,
        kept: choice.kept.as_ref().map(|kept| kept.number),
        arguments: texts(&call.arguments),
        result: texts(&call.result),
        labels: inside.labels.clone(),
    }
}

/// The thread that ended the longest wait between two moments.
fn woken_by(spans: &[StateSpan], from: u64, until: u64) -> Option<u32> {
    let within = |span: &StateSpan| span.end.min(until).saturating_sub(span.start.max(from));
    let is_blocked = |span: &StateSpan| matches!(span.state, ThreadState::Blocked(_));
    let waits = spans.iter().enumerate().filter(|(_, span)| is_blocked(span) && within(span) > 0);
    let (at, _) = waits.max_by_key(|(_, span)| within(span))?;
    spans.get(at + 1)?.woken_by
}
