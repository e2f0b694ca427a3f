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
use serde::{Serialize, Serializer};

use super::Answered;
use super::place::{NO_CALL, Place, Position, call_at};
use super::sums::{Range, Scope, whole};
use crate::cell::{Cell, bits};
use crate::context::Context;
use crate::counted;
use crate::facts::{Caller, SourceText};
use crate::file::{File, Open, lock};
use crate::library::{Library, OpenFile};

/// Called functions that are listed.
const CHILDREN_MAX: usize = 200;

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelValue {
    /// A value of an argument or a result.
    Text(String),
    /// A number, if it has one.
    Number(Option<u64>),
}

impl Serialize for LabelValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            LabelValue::Text(text) => text.serialize(to),
            // JSON numbers above 2^53 lose digits.
            LabelValue::Number(Some(number)) if *number > 1 << 53 => number.to_string().serialize(to),
            LabelValue::Number(number) => number.serialize(to),
        }
    }
}

/// A call that is open around another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenCall {
    /// Its function.
    pub function: u32,
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End, as far as it was read.
    pub to: Option<u64>,
    /// Number of enclosing calls.
    pub depth: usize,
}

/// The calls of a function that one call made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Callee {
    /// The function.
    pub function: u32,
    /// How many there are.
    pub calls: u64,
    /// Their time.
    pub total_ns: u64,
    /// The longest of them.
    #[serde(flatten)]
    pub longest: Place,
}

/// How long a thread was in each state in a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimesOfStates {
    /// How long it waited in which system calls, as far as they are known.
    pub blocked_in: Vec<(&'static str, u64)>,
    /// Nanoseconds on a CPU.
    pub running_ns: u64,
    /// Nanoseconds in which it waited for one.
    pub runnable_ns: u64,
    /// Nanoseconds in which it waited for something else.
    pub blocked_ns: u64,
    /// Nanoseconds of which nothing is known.
    pub unknown_ns: u64,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Details {
    /// Where it is drawn.
    #[serde(flatten)]
    pub place: Place,
    /// Its function.
    pub function: u32,
    /// Its time without that of the calls that it made.
    pub own_ns: u64,
    /// The least that it took, if that isn't known exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_ns: Option<u64>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_ns: Option<u64>,
    /// All calls of its function since the process began, if they were counted.
    pub all_calls: Option<u64>,
    /// Whether it began before the recording.
    pub cut_start: bool,
    /// Whether its end isn't known.
    pub cut_end: bool,
    /// Whether it was unwound.
    pub unwound: bool,
    /// Whether it ended in a tail call.
    pub tail: bool,
    /// Whether it took at most so long.
    pub at_most: bool,
    /// Whether another call than the one around it may have made it.
    pub caller_uncertain: bool,
    /// Its arguments, its result and its labels.
    pub labels: Vec<(String, LabelValue)>,
    /// The call around it.
    pub caller: Option<OpenCall>,
    /// The functions of the calls around it, outermost first, and its own.
    pub path: Vec<u32>,
    /// How many functions it called.
    pub all_children: usize,
    /// Those that took longest.
    pub children: Vec<Callee>,
    /// Its thread's states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<TimesOfStates>,
}

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
        longest: Place::of(track, depth + 1, longest),
    };
    // Arguments come first: viewers show all of them by name.
    let values = call.values.into_iter().map(|(name, text)| (name, LabelValue::Text(text)));
    let labels = call.labels.into_iter().map(|(name, value)| (name, LabelValue::Number(value)));
    Ok(Details {
        place: Place::of(track, depth, cell),
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
        blocked_in: waits.iter().filter_map(|(call, time)| Some((system_call_name(*call)?, *time))).collect(),
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
fn each_call(library: &Library, function: u32, range: &Range, mut each: impl FnMut(Place)) -> Answered<()> {
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
                    each(Place::of(id, depth, &cell));
                }
            });
        }
    }
    Ok(())
}

/// One of the slowest calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// Where it is drawn.
    #[serde(flatten)]
    pub place: Place,
    /// Its time without that of the calls that it made.
    pub own_ns: u64,
    /// Whether its duration is a bound, or it may be several calls.
    pub uncertain: bool,
}

/// A bar of a histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The shortest duration.
    pub from_ns: u64,
    /// The shortest one of the next bar.
    pub to_ns: u64,
    /// How many calls took so long.
    pub calls: u64,
    /// The longest of them that is drawn by itself.
    pub longest: Option<Place>,
}

/// The calls of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// Those that took longest, longest first.
    pub slowest: Vec<Slow>,
    /// How many took how long.
    pub histogram: Vec<Histogram>,
    /// How many there are.
    pub calls: u64,
    /// All of its calls, if they were counted.
    pub all_calls: Option<u64>,
    /// How many have a known duration.
    pub count: u64,
    /// How many have none.
    pub untimed: u64,
    /// The shortest duration.
    pub min: Option<u64>,
    /// The average one.
    pub average: Option<u64>,
    /// The median.
    pub p50: Option<u64>,
    /// Nine of ten are shorter.
    pub p90: Option<u64>,
    /// 99 of a hundred are shorter.
    pub p99: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
    /// The call that is nearest to the median.
    pub median: Option<Place>,
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
    // By bar: values, and the longest call.
    let mut bars: BTreeMap<u32, (u64, Option<Place>)> = BTreeMap::new();
    for (value, count) in times.values() {
        bars.entry(bar(value)).or_default().0 += count;
    }
    let p50 = times.percentile(5_000);
    let mut median: Option<(u64, Place)> = None;
    each_call(library, number, &range, |place| {
        let ns = place.to - place.from;
        if let Some((_, longest)) = bars.get_mut(&bar(times.shown(ns)))
            && longest.is_none_or(|longest| longest.to - longest.from < ns)
        {
            *longest = Some(place);
        }
        let off = ns.abs_diff(p50.unwrap_or(0));
        if median.is_none_or(|(best, _)| off < best) {
            median = Some((off, place));
        }
    })?;
    let histogram = |(index, (calls, longest)): (u32, (u64, Option<Place>))| {
        let (from_ns, to_ns) = bounds(index);
        Histogram { from_ns, to_ns, calls, longest }
    };
    Ok(Instances {
        slowest,
        histogram: bars.into_iter().map(histogram).collect(),
        calls,
        all_calls: Some(all_calls).filter(|all| *all > 0),
        count: times.count(),
        untimed: calls.saturating_sub(times.count()),
        min: times.min(),
        average: times.average(),
        p50,
        p90: times.percentile(9_000),
        p99: times.percentile(9_900),
        max: times.max(),
        median: median.map(|(_, place)| place),
    })
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

/// A part of the difference between a call and those around the median.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedRow {
    /// The called function.
    pub function: Option<u32>,
    /// `own`, `wait`, `tail` or `call`.
    pub kind: &'static str,
    /// Its time in the call.
    pub here_ns: f64,
    /// Its time in those around the median, per call.
    pub median_ns: f64,
    /// Calls of it.
    pub here_calls: f64,
    /// Calls of it in those around the median, per call.
    pub median_calls: f64,
}

/// Why a call took as long as it did, compared with those around the median of its function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// Its function.
    pub function: u32,
    /// The call.
    pub here: Place,
    /// The call that is nearest to the median.
    pub median: Option<Place>,
    /// How long it took.
    pub here_ns: f64,
    /// How long those around the median took.
    pub median_ns: f64,
    /// How many calls have a known duration.
    pub timed_calls: u64,
    /// The largest difference comes first.
    pub rows: Vec<ExplainedRow>,
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
        let row = |function: Option<u32>, kind: &'static str, of: &dyn Fn(&Doings) -> (u64, u64)| {
            let per = |doings: &Doings| {
                let (ns, calls) = of(doings);
                (doings.per_call(ns), doings.per_call(calls))
            };
            let ((here_ns, here_calls), (median_ns, median_calls)) = (per(here), per(median));
            ExplainedRow { function, kind, here_ns, median_ns, here_calls, median_calls }
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
        let difference = |row: &ExplainedRow| (row.here_ns - row.median_ns).abs();
        rows.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
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
    let mut nearest: Option<(u64, Place)> = None;
    each_call(library, cell.function, &Range::default(), |place| {
        let off = (place.to - place.from).abs_diff(median_ns as u64);
        if nearest.is_none_or(|(best, _)| off < best) {
            nearest = Some((off, place));
        }
    })?;
    Ok(Explained {
        function: cell.function,
        here: Place::of(track, depth, &cell),
        median: nearest.filter(|_| count > 1).map(|(_, place)| place),
        here_ns,
        median_ns,
        timed_calls: count,
        rows: if count > 1 { rows } else { Vec::new() },
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
    let caller = |(number, calls): (Option<u32>, u64)| {
        let known = number.and_then(|number| function(library, number).ok()).unwrap_or_default();
        Caller { function: number, calls, file: known.file, line: known.line }
    };
    let answer = SourceText {
        file: identity.file,
        line: identity.line,
        first_line: 1,
        text,
        why,
        callers: callers.into_iter().map(caller).collect(),
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
