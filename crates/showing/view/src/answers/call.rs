//! One call, and the calls of one function.

use std::sync::Arc;

use everycall_analysis::{
    CallPlace, Edges, Explanation, Focus, Function, FunctionIdentity, Key, Order, Slowest, SourceProblem,
};
use everycall_answers::{
    Callee, Details, Explained, ExplainedTimes, Instances, LabelValue, NO_CALL, NOT_TIMED, OpenCall, Place,
    Position, Scope, Slow, SourceText, TimesOfStates, bits, callers, listed_callers,
};
use everycall_export::{Filter, Names as _};
use everycall_timeline::{ThreadStates, system_call_name};

use super::Answered;
use super::place::call_at;
use super::sums::{Range, whole};
use crate::cell::Cell;
use crate::context::Context;
use crate::counted;
use crate::file::{File, Open, lock};
use crate::library::{Library, OpenFile};

/// Called functions that are listed.
const CHILDREN_MAX: usize = 200;

/// The call that is open at a place.
///
/// # Errors
///
/// A sentence why it isn't known.
pub fn slice(library: &Library, position: Position) -> Answered<Details> {
    let Position { track, at, depth } = position;
    let (open, thread) = library.track(track)?;
    let functions = library.functions.clone();
    let found = open.quick.ask(move |context| {
        let call = call_at(context, thread, at, depth)?;
        let all = counted::of_file(context.file, context.view, &functions);
        Some((all.get(&call.cell.function).copied(), call))
    })?;
    let (all_calls, call) = found.ok_or(NO_CALL)?;
    let cell = &call.cell;
    let is = |bit: u8| cell.bits() & bit != 0;
    let around = |(depth, open): (usize, &Open)| OpenCall {
        function: open.function,
        from: open.from,
        to: open_until(library.track(track).ok(), depth, open),
        depth,
    };
    let caller = call.around.iter().enumerate().next_back().map(around);
    let path = call.around.iter().map(|open| open.function).chain([cell.function]).collect();
    let mut children: Vec<_> = call.children.iter().collect();
    children.sort_by_key(|(function, (_, time, _))| (std::cmp::Reverse(*time), **function));
    let child = |(function, (calls, total_ns, longest)): &(&u32, &(u64, u64, Cell))| Callee {
        function: **function,
        calls: *calls,
        total_ns: *total_ns,
        longest: longest.place(track, depth + 1),
    };
    // Arguments come first: viewers show all of them by name.
    let values = call.values.into_iter().map(|(name, text)| (name, LabelValue::Text(text)));
    let labels = call.labels.into_iter().map(|(name, value)| (name, LabelValue::Number(value)));
    Ok(Details {
        place: cell.place(track, depth),
        function: cell.function,
        own_ns: call.own_ns,
        low_ns: call.bars.map(|bars| bars.low),
        high_ns: call.bars.map(|bars| bars.high),
        all_calls,
        cut_start: is(bits::CUT_START),
        cut_end: is(bits::CUT_END),
        unwound: is(bits::UNWOUND),
        tail: is(bits::TAIL),
        at_most: is(bits::AT_MOST),
        caller_uncertain: is(bits::CALLER_UNSURE),
        labels: values.chain(labels).collect(),
        caller,
        path,
        all_children: children.len(),
        children: children.iter().take(CHILDREN_MAX).map(child).collect(),
        states: open.file.states(thread).map(|states| of_states(states, cell.from, cell.to())),
        samples: open
            .file
            .track(thread)
            .map(|track| track.samples.own(depth, cell.from, cell.to()))
            .unwrap_or_default(),
    })
}

/// When a call that is around another one ends, as far as it was read.
fn open_until(track: Option<(Arc<OpenFile>, usize)>, depth: usize, call: &Open) -> Option<u64> {
    let (open, thread) = track?;
    let track = open.file.track(thread)?;
    track.levels.find(depth, call.from).filter(|cell| cell.from == call.from).map(|cell| cell.to())
}

fn of_states(states: &ThreadStates, from: u64, to: u64) -> TimesOfStates {
    let times = states.times(from, to);
    let waits = states.blocked_in(from, to);
    TimesOfStates {
        blocked_in: waits
            .iter()
            .filter_map(|(call, time)| Some((system_call_name(*call)?.to_owned(), *time)))
            .collect(),
        running_ns: times.running,
        runnable_ns: times.runnable,
        blocked_ns: times.blocked,
        unknown_ns: times.unknown,
    }
}

/// The function with a number.
pub(super) fn function(library: &Library, number: u32) -> Answered<FunctionIdentity> {
    let functions = lock(&library.functions);
    functions
        .get(number)
        .map(|named| named.identity.clone())
        .ok_or_else(|| format!("there is no function {number}"))
}

/// Passes the calls of a function in a range that were drawn one by one.
fn each_call(library: &Library, function: u32, range: &Range, each: &mut dyn FnMut(Place)) -> Answered<()> {
    let (from, to) = (range.from.unwrap_or(0), range.to.unwrap_or(u64::MAX));
    for open in library.files()? {
        for thread in 0..open.file.threads.len() {
            let id = open.file.track_id(thread);
            if range.tracks.as_ref().is_some_and(|tracks| !tracks.contains(&id)) {
                continue;
            }
            let Some(track) = open.file.track(thread) else { continue };
            track.levels.cells(track.levels.lowest(), from, to, &mut |depth, cell| {
                if cell.function == function && cell.count == 1 {
                    each(cell.place(id, depth));
                }
            });
        }
    }
    Ok(())
}

/// The calls of a function in a range.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn instances(library: &Library, number: u32, scope: &Scope, limit: usize) -> Answered<Instances> {
    let identity = function(library, number)?;
    let range = Range::of(library, scope)?;
    let limit = limit.clamp(1, 10_000);
    let mut slowest: Vec<Slow> = Vec::new();
    let mut times = everycall_analysis::Sketch::default();
    let (mut calls, mut all_calls) = (0, 0_u64);
    for open in library.files()? {
        let Some(filter) = range.filter(&open) else { continue };
        let (wanted, of_sums) = (identity.clone(), filter.clone());
        let found = open.long.ask(move |context| {
            let is_meant = |function: &Function| function.identity == wanted;
            let mut slowest = Slowest::new(Focus::new(&is_meant), limit);
            slowest.add_trace(context.view, &of_sums);
            slowest.calls().into_iter().cloned().collect::<Vec<_>>()
        })?;
        slowest.extend(found.iter().filter_map(|call| {
            let thread = thread_of(&open.file, call.pid, call.tid, call.start_ns)?;
            let (track, depth) = (open.file.track_id(thread), call.depth as usize);
            Some(Slow {
                place: Place { track, from: call.start_ns, to: call.end_ns, depth },
                own_ns: call.own_ns,
                uncertain: call.is_uncertain,
            })
        }));
        let profile = if range.is_whole() {
            whole(&open)?
        } else {
            open.long.ask(move |context| {
                let mut profile = everycall_analysis::Profile::by(everycall_analysis::Grouping::Function);
                profile.add_trace(context.view, &filter);
                Arc::new(profile)
            })?
        };
        for row in profile.rows_of_all_calls(Order::Calls) {
            if let Key::Function(of) = row.key
                && profile.functions().get(*of).is_some_and(|function| function.identity == identity)
            {
                times.add(&row.sums.times);
                calls += row.sums.calls;
                all_calls = all_calls.saturating_add(row.sums.all_calls);
            }
        }
    }
    slowest.sort_by_key(|call| std::cmp::Reverse(call.place.to.saturating_sub(call.place.from)));
    slowest.truncate(limit);
    Instances::of(&times, (calls, all_calls), slowest, &mut |each| each_call(library, number, &range, each))
}

/// The thread of a call.
pub(super) fn thread_of(file: &File, pid: u32, tid: u32, at_ns: u64) -> Option<usize> {
    let is_it =
        |index: &usize| file.threads.get(*index).is_some_and(|thread| (thread.pid, thread.tid) == (pid, tid));
    let all: Vec<usize> = (0..file.threads.len()).filter(is_it).collect();
    let has = |index: &usize| {
        let info = file.indices.get(*index).and_then(|at| file.trace.threads().get(*at));
        info.and_then(|info| info.reach).is_some_and(|(from, to)| (from..=to).contains(&at_ns))
    };
    all.iter().find(|index| has(index)).or(all.first()).copied()
}

/// Compares a call with those around the median of its function.
///
/// # Errors
///
/// A sentence why that can't be done.
pub fn explain(library: &Library, position: Position) -> Answered<Explained> {
    let Position { track, at: at_ns, depth } = position;
    let (open, thread) = library.track(track)?;
    let call = open.quick.ask(move |context| call_at(context, thread, at_ns, depth))?.ok_or(NO_CALL)?;
    let cell = call.cell;
    let identity = function(library, cell.function)?;
    let Some(of) = open.file.threads.get(thread) else { return Err(NO_CALL.to_owned()) };
    let is_known = cell.bits() & (bits::CUT_START | bits::CUT_END | bits::AT_MOST) == 0;
    if !is_known {
        return Err(NOT_TIMED.to_owned());
    }
    let place = CallPlace { pid: of.pid, tid: of.tid, depth: depth as u32, start_ns: cell.from };
    let functions = library.functions.clone();
    let explained = open.long.ask(move |context| {
        let is_meant = |function: &Function| function.identity == identity;
        let mut explanation = Explanation::new(Focus::new(&is_meant)).of_call(place).with_tails(true);
        explanation.first(context.view, &Filter::default());
        explanation.second(context.view, &Filter::default());
        ExplainedTimes::of(&explanation, &mut |function| lock(&functions).number(function))
    })?;
    let here = cell.place(track, depth);
    Explained::of(explained, (cell.function, here), &mut |each| {
        each_call(library, cell.function, &Range::default(), each)
    })
}

/// The source of a function, and its callers.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn source(library: &Library, number: u32) -> Answered<SourceText> {
    if let Some(known) = lock(&library.sources).get(&number) {
        return Ok(known.clone());
    }
    let identity = function(library, number)?;
    let (mut text, mut why) = (None, None);
    let mut all_callers = Vec::new();
    for open in library.files()? {
        let wanted = identity.clone();
        let functions = library.functions.clone();
        let (found, problem, edges) = open.long.ask(move |context| {
            let is_meant = |function: &Function| function.identity == wanted;
            let mut edges = Edges::new(Focus::new(&is_meant));
            edges.add_trace(context.view, &Filter::default());
            let callers = callers(&edges, &mut |function| lock(&functions).number(function));
            let found = wanted.file.as_ref().and_then(|file| text_of(context, file));
            let problem =
                if found.is_some() { None } else { wanted.file.as_ref().map(|file| problem(context, file)) };
            (found, problem, callers)
        })?;
        text = text.or(found);
        why = why.or(problem);
        all_callers.extend(edges);
    }
    let why = match (&text, &identity.file) {
        (Some(_), _) => None,
        (None, None) => {
            Some("the program has no debugging information for this function; compile it with -g".to_owned())
        }
        (None, Some(_)) => why,
    };
    let place = |number| {
        let known = function(library, number).unwrap_or_default();
        (known.file, known.line)
    };
    let answer = SourceText {
        file: identity.file,
        line: identity.line,
        first_line: 1,
        text,
        why,
        callers: listed_callers(all_callers, place),
    };
    let is_complete = library.files()?.iter().all(|open| open.file.is_complete());
    let mut sources = lock(&library.sources);
    if is_complete && sources.len() < 256 {
        sources.insert(number, answer.clone());
    }
    Ok(answer)
}

/// The text of a source file, if the rules allow it.
fn text_of(context: &Context<'_>, file: &str) -> Option<String> {
    // The names learn which module a source belongs to when they name one of its functions.
    let _ = context.file;
    context.names.source(file).map(std::borrow::Cow::into_owned)
}

/// Why the text of a source file isn't shown.
fn problem(context: &Context<'_>, file: &str) -> String {
    let notes = context.names.source_notes();
    let of_file = notes.iter().find(|note| note.first == file);
    let reason = of_file
        .and_then(|note| note.refusal.as_ref())
        .map(|refusal| format!(" ({refusal})"))
        .unwrap_or_default();
    match of_file.map(|note| note.problem) {
        Some(SourceProblem::Missing) => {
            format!("the source file isn't there{reason}; --map-source OLD=NEW says where it is now")
        }
        _ => format!(
            "the source file may not be shown{reason}; --source-folder FOLDER allows those of a folder"
        ),
    }
}
