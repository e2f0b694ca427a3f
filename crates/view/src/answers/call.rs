//! One call, and the calls of one function.

use std::collections::BTreeMap;
use std::sync::Arc;

use everycall_analysis::{
    CallPlace, Doings, Edges, Explanation, Focus, Function, FunctionIdentity, Key, Order, Slowest,
    SourceProblem,
};
use everycall_export::{Filter, Names as _};
use everycall_timeline::{ThreadStates, system_call_name};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::place::{NO_CALL, call_at, place};
use super::sums::{Range, whole};
use crate::cell::{Cell, bits};
use crate::context::Context;
use crate::counted;
use crate::file::{File, Open, lock};
use crate::library::{Library, OpenFile};
use crate::query::{Answered, Query};

/// Called functions that are listed.
const CHILDREN_MAX: usize = 200;

/// `slice`.
pub(crate) fn slice(library: &Library, query: &Query) -> Answered<Value> {
    let (open, thread, at, depth) = place(library, query)?;
    let functions = library.functions.clone();
    let found = open.quick.ask(move |context| {
        let call = call_at(context, thread, at, depth)?;
        let all = counted::of_file(context.file, context.view, &functions);
        Some((all.get(&call.cell.function).copied(), call))
    })?;
    let (all_calls, call) = found.ok_or(NO_CALL)?;
    let track = open.file.track_id(thread);
    let cell = &call.cell;
    let is = |bit: u8| cell.bits() & bit != 0;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("track", json!(track));
    put("function", json!(cell.function));
    put("from", json!(cell.from));
    put("to", json!(cell.to()));
    put("own_ns", json!(call.own_ns));
    if let Some(bars) = call.bars {
        put("low_ns", json!(bars.low));
        put("high_ns", json!(bars.high));
    }
    put("all_calls", json!(all_calls));
    put("depth", json!(depth));
    put("cut_start", json!(is(bits::CUT_START)));
    put("cut_end", json!(is(bits::CUT_END)));
    put("unwound", json!(is(bits::UNWOUND)));
    put("tail", json!(is(bits::TAIL)));
    put("at_most", json!(is(bits::AT_MOST)));
    put("caller_uncertain", json!(is(bits::CALLER_UNSURE)));
    // JSON numbers above 2^53 lose digits.
    let value = |value: &Option<u64>| {
        value.map(|value| if value > 1 << 53 { json!(value.to_string()) } else { json!(value) })
    };
    // Arguments come first: viewers show all of them by name.
    let values = call.values.iter().map(|(name, text)| json!([name, text]));
    put("labels", values.chain(call.labels.iter().map(|(name, of)| json!([name, value(of)]))).collect());
    let around = |(depth, open): (usize, &Open)| {
        let to = open_until(&library_file(library, track), thread, depth, open);
        json!({ "function": open.function, "from": open.from, "to": to, "depth": depth })
    };
    put("caller", json!(call.around.iter().enumerate().next_back().map(around)));
    let path: Vec<u32> = call.around.iter().map(|open| open.function).chain([cell.function]).collect();
    put("path", json!(path));
    let mut children: Vec<_> = call.children.iter().collect();
    children.sort_by_key(|(function, (_, time, _))| (std::cmp::Reverse(*time), **function));
    let child = |(function, (calls, total_ns, longest)): &(&u32, &(u64, u64, Cell))| {
        json!({
            "function": function, "calls": calls, "total_ns": total_ns,
            "track": track, "from": longest.from, "to": longest.to(), "depth": depth + 1,
        })
    };
    put("all_children", json!(children.len()));
    put("children", children.iter().take(CHILDREN_MAX).map(child).collect());
    if let Some(states) = open.file.states(thread) {
        put("states", of_states(states, cell.from, cell.to()));
    }
    Ok(Value::Object(object))
}

fn library_file(library: &Library, track: u32) -> Option<Arc<OpenFile>> {
    library.track(track).ok().map(|(open, _)| open)
}

/// When a call that is around another one ends, as far as it was read.
fn open_until(open: &Option<Arc<OpenFile>>, thread: usize, depth: usize, call: &Open) -> Option<u64> {
    let track = open.as_ref()?.file.track(thread)?;
    track.levels.find(depth, call.from).filter(|cell| cell.from == call.from).map(|cell| cell.to())
}

fn of_states(states: &ThreadStates, from: u64, to: u64) -> Value {
    let times = states.times(from, to);
    let waits = states.blocked_in(from, to);
    let named = waits.iter().filter_map(|(call, time)| Some(json!([system_call_name(*call)?, time])));
    json!({
        "blocked_in": named.collect::<Vec<_>>(),
        "running_ns": times.running, "runnable_ns": times.runnable,
        "blocked_ns": times.blocked, "unknown_ns": times.unknown,
    })
}

/// The function that a request names.
pub(super) fn function(library: &Library, number: u64) -> Answered<FunctionIdentity> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let functions = lock(&library.functions);
    functions
        .get(number)
        .map(|named| named.identity.clone())
        .ok_or_else(|| format!("there is no function {number}"))
}

/// Passes the calls of a function in a range that were drawn one by one.
fn each_call(
    library: &Library,
    function: u32,
    range: &Range,
    mut each: impl FnMut(u32, usize, Cell),
) -> Answered<()> {
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
                    each(id, depth, cell);
                }
            });
        }
    }
    Ok(())
}

fn at((track, depth, cell): &(u32, usize, Cell)) -> Value {
    json!({ "track": track, "from": cell.from, "to": cell.to(), "depth": depth })
}

/// Track, depth and cell of a call.
type Place = (u32, usize, Cell);

/// `instances`.
pub(crate) fn instances(library: &Library, query: &Query) -> Answered<Value> {
    let number = query.needed("function")?;
    let identity = function(library, number)?;
    let range = Range::of(library, query)?;
    let limit = query.number("limit")?.unwrap_or(100).clamp(1, 10_000) as usize;
    let mut slowest: Vec<Value> = Vec::new();
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
            Some(json!({
                "track": open.file.track_id(thread), "from": call.start_ns, "to": call.end_ns, "depth": call.depth,
                "own_ns": call.own_ns, "uncertain": call.is_uncertain,
            }))
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
    let length =
        |call: &Value| call["to"].as_u64().unwrap_or(0).saturating_sub(call["from"].as_u64().unwrap_or(0));
    slowest.sort_by_key(|call| std::cmp::Reverse(length(call)));
    slowest.truncate(limit);
    // By bar: values, and the longest call.
    let mut bars: BTreeMap<u32, (u64, Option<Place>)> = BTreeMap::new();
    for (value, count) in times.values() {
        bars.entry(bar(value)).or_default().0 += count;
    }
    let p50 = times.percentile(5_000);
    let mut median: Option<(u64, (u32, usize, Cell))> = None;
    each_call(library, number as u32, &range, |track, depth, cell| {
        let ns = cell.to() - cell.from;
        if let Some((_, longest)) = bars.get_mut(&bar(times.shown(ns)))
            && longest.as_ref().is_none_or(|(.., longest)| longest.to() - longest.from < ns)
        {
            *longest = Some((track, depth, cell));
        }
        let off = ns.abs_diff(p50.unwrap_or(0));
        if median.as_ref().is_none_or(|(best, _)| off < *best) {
            median = Some((off, (track, depth, cell)));
        }
    })?;
    let rows = bars.iter().map(|(index, (calls, longest))| {
        let (from_ns, to_ns) = bounds(*index);
        json!({ "from_ns": from_ns, "to_ns": to_ns, "calls": calls, "longest": longest.as_ref().map(at) })
    });
    Ok(json!({
        "slowest": slowest,
        "histogram": rows.collect::<Vec<_>>(),
        "calls": calls,
        "all_calls": Some(all_calls).filter(|all| *all > 0),
        "count": times.count(),
        "untimed": calls.saturating_sub(times.count()),
        "min": times.min(),
        "average": times.average(),
        "p50": p50,
        "p90": times.percentile(9_000),
        "p99": times.percentile(9_900),
        "max": times.max(),
        "median": median.as_ref().map(|(_, place)| at(place)),
    }))
}

/// The bar of a histogram for a duration: bars grow by the fourth root of 2.
fn bar(ns: u64) -> u32 {
    if ns == 0 { 0 } else { 1 + (4.0 * (ns as f64).log2() + 1e-9).floor() as u32 }
}

fn bounds(bar: u32) -> (u64, u64) {
    let edge = |bar: u32| (f64::from(bar) / 4.0).exp2().ceil() as u64;
    if bar == 0 { (0, 1) } else { (edge(bar - 1), edge(bar)) }
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

/// `explain`.
pub(crate) fn explain(library: &Library, query: &Query) -> Answered<Value> {
    let (open, thread, at_ns, depth) = place(library, query)?;
    let call = open.quick.ask(move |context| call_at(context, thread, at_ns, depth))?.ok_or(NO_CALL)?;
    let cell = call.cell;
    let identity = function(library, u64::from(cell.function))?;
    let Some(of) = open.file.threads.get(thread) else { return Err(NO_CALL.to_owned()) };
    let is_known = cell.bits() & (bits::CUT_START | bits::CUT_END | bits::AT_MOST) == 0;
    if !is_known {
        return Err(
            "this call wasn't recorded from its entry to its exit, so its time can't be compared".to_owned()
        );
    }
    let place = CallPlace { pid: of.pid, tid: of.tid, depth: depth as u32, start_ns: cell.from };
    let functions = library.functions.clone();
    let explained = open.long.ask(move |context| {
        let is_meant = |function: &Function| function.identity == identity;
        let mut explanation = Explanation::new(Focus::new(&is_meant)).of_call(place).with_tails(true);
        explanation.first(context.view, &Filter::default());
        explanation.second(context.view, &Filter::default());
        let mut rows = Vec::new();
        let (here, median) = (&explanation.slow, &explanation.median);
        let row = |function: Option<u32>, kind: &str, of: &dyn Fn(&Doings) -> (u64, u64)| {
            let per = |doings: &Doings| {
                let (ns, calls) = of(doings);
                (doings.per_call(ns), doings.per_call(calls))
            };
            let ((here_ns, here_calls), (median_ns, median_calls)) = (per(here), per(median));
            (
                here_ns - median_ns,
                json!({
                    "function": function, "kind": kind, "here_ns": here_ns, "median_ns": median_ns,
                    "here_calls": here_calls, "median_calls": median_calls,
                }),
            )
        };
        rows.push(row(None, "own", &|doings| (doings.own_ns, 0)));
        if here.suspended_ns + median.suspended_ns > 0 {
            rows.push(row(None, "wait", &|doings| (doings.suspended_ns, 0)));
        }
        if here.tails_ns + median.tails_ns > 0 {
            rows.push(row(None, "tail", &|doings| (doings.tails_ns, 0)));
        }
        let called: std::collections::BTreeSet<u32> =
            here.called.keys().chain(median.called.keys()).copied().collect();
        for number in called {
            let Some(function) = explanation.functions().get(number) else { continue };
            let shared = lock(&functions).number(function);
            rows.push(row(Some(shared), "call", &|doings| {
                doings.called.get(&number).copied().unwrap_or_default()
            }));
        }
        rows.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()));
        let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
        (
            rows,
            here.calls,
            here.per_call(here.duration_ns),
            median.per_call(median.duration_ns),
            explanation.times.count(),
        )
    })?;
    let (rows, here_calls, here_ns, median_ns, count) = explained;
    if here_calls == 0 {
        return Err(
            "this call is a part of another call of its function; select the outermost one".to_owned()
        );
    }
    let mut nearest: Option<(u64, (u32, usize, Cell))> = None;
    each_call(library, cell.function, &Range::default(), |track, depth, other| {
        let off = (other.to() - other.from).abs_diff(median_ns as u64);
        if nearest.as_ref().is_none_or(|(best, _)| off < *best) {
            nearest = Some((off, (track, depth, other)));
        }
    })?;
    Ok(json!({
        "function": cell.function,
        "here": at(&(open.file.track_id(thread), depth, cell)),
        "median": nearest.filter(|_| count > 1).map(|(_, place)| at(&place)),
        "here_ns": here_ns,
        "median_ns": median_ns,
        "timed_calls": count,
        "rows": if count > 1 { rows } else { Vec::new() },
    }))
}

/// `source`.
pub(crate) fn source(library: &Library, query: &Query) -> Answered<Value> {
    let number = query.needed("function")?;
    let key = format!("source {number}");
    if let Some(known) = lock(&library.kept).get(&key) {
        return Ok(known.as_ref().clone());
    }
    let identity = function(library, number)?;
    let (mut text, mut why) = (None, None);
    let mut callers: FxHashMap<Option<u32>, u64> = FxHashMap::default();
    for open in library.files()? {
        let wanted = identity.clone();
        let functions = library.functions.clone();
        let (found, problem, edges) = open.long.ask(move |context| {
            let is_meant = |function: &Function| function.identity == wanted;
            let mut edges = Edges::new(Focus::new(&is_meant));
            edges.add_trace(context.view, &Filter::default());
            let number = |of: Option<u32>| Some(lock(&functions).number(edges.functions().get(of?)?));
            let callers: Vec<(Option<u32>, u64)> =
                edges.callers().iter().map(|edge| (number(edge.function), edge.sums.calls)).collect();
            let found = wanted.file.as_ref().and_then(|file| text_of(context, file));
            let problem =
                if found.is_some() { None } else { wanted.file.as_ref().map(|file| problem(context, file)) };
            (found, problem, callers)
        })?;
        text = text.or(found);
        why = why.or(problem);
        for (caller, calls) in edges {
            *callers.entry(caller).or_default() += calls;
        }
    }
    let why = match (&text, &identity.file) {
        (Some(_), _) => None,
        (None, None) => {
            Some("the program has no debugging information for this function; compile it with -g".to_owned())
        }
        (None, Some(_)) => why,
    };
    let mut callers: Vec<_> = callers.into_iter().filter(|(_, calls)| *calls > 0).collect();
    callers.sort_by_key(|(function, calls)| (std::cmp::Reverse(*calls), *function));
    let caller = |(number, calls): &(Option<u32>, u64)| {
        let known = number.and_then(|number| function(library, u64::from(number)).ok()).unwrap_or_default();
        json!({ "function": number, "calls": calls, "file": known.file, "line": known.line })
    };
    let answer = json!({
        "file": identity.file,
        "line": identity.line,
        "first_line": 1,
        "text": text,
        "why": why,
        "callers": callers.iter().map(caller).collect::<Vec<_>>(),
    });
    let is_complete = library.files()?.iter().all(|open| open.file.is_complete());
    let mut kept = lock(&library.kept);
    if is_complete && kept.len() < 256 {
        kept.insert(key, Arc::new(answer.clone()));
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
