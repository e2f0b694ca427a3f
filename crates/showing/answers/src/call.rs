//! One call, and the calls of one function.

use std::collections::{BTreeMap, BTreeSet};

use everycall_profile::{Doings, Edges, Explanation, Sketch};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use crate::Answered;
use crate::scope::Place;
use crate::sums::Numbering;

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
    pub blocked_in: Vec<(String, u64)>,
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
    /// Sampled stacks in its own time: how many at each place, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<(String, u64)>,
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

/// Passes the places of the calls of a function, as far as each is drawn by itself.
pub type EachCall<'e> = &'e mut dyn FnMut(&mut dyn FnMut(Place)) -> Answered<()>;

impl Instances {
    /// Of calls with these durations.
    ///
    /// # Errors
    ///
    /// Those of `each`.
    pub fn of(
        times: &Sketch,
        (calls, all_calls): (u64, u64),
        slowest: Vec<Slow>,
        each: EachCall<'_>,
    ) -> Answered<Instances> {
        // By bar: values, and the longest call.
        let mut bars: BTreeMap<u32, (u64, Option<Place>)> = BTreeMap::new();
        for (value, count) in times.values() {
            bars.entry(bar(value)).or_default().0 += count;
        }
        let p50 = times.percentile(5_000);
        let mut median: Option<(u64, Place)> = None;
        each(&mut |place| {
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
}

/// The bar of a histogram for a duration: bars grow by the fourth root of 2.
fn bar(ns: u64) -> u32 {
    if ns == 0 { 0 } else { 1 + (4.0 * (ns as f64).log2() + 1e-9).floor() as u32 }
}

fn bounds(bar: u32) -> (u64, u64) {
    let edge = |bar: u32| (f64::from(bar) / 4.0).exp2().ceil() as u64;
    if bar == 0 { (0, 1) } else { (edge(bar - 1), edge(bar)) }
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

/// The times of a call, and of those around the median.
#[derive(Clone, Debug, Default)]
pub struct ExplainedTimes {
    rows: Vec<ExplainedRow>,
    here_calls: u64,
    here_ns: f64,
    median_ns: f64,
    timed_calls: u64,
}

impl ExplainedTimes {
    /// Those of an explanation whose two passes are done.
    #[must_use]
    pub fn of(explanation: &Explanation<'_>, number: Numbering<'_>) -> ExplainedTimes {
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
        let called: BTreeSet<u32> = here.called.keys().chain(median.called.keys()).copied().collect();
        for of in called {
            let Some(function) = explanation.functions().get(of) else { continue };
            let called = |doings: &Doings| doings.called.get(&of).copied().unwrap_or_default();
            rows.push(row(Some(number(function)), "call", &called));
        }
        let difference = |row: &ExplainedRow| (row.here_ns - row.median_ns).abs();
        rows.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
        ExplainedTimes {
            rows,
            here_calls: here.calls,
            here_ns: here.per_call(here.duration_ns),
            median_ns: median.per_call(median.duration_ns),
            timed_calls: explanation.times.count(),
        }
    }
}

impl Explained {
    /// Of a call of a function.
    ///
    /// # Errors
    ///
    /// The call is within another one of its function, or one of `each`.
    pub fn of(
        times: ExplainedTimes,
        (function, here): (u32, Place),
        each: EachCall<'_>,
    ) -> Answered<Explained> {
        let ExplainedTimes { rows, here_calls, here_ns, median_ns, timed_calls } = times;
        if here_calls == 0 {
            let why = "this call is a part of another call of its function; select the outermost one";
            return Err(why.to_owned());
        }
        let mut nearest: Option<(u64, Place)> = None;
        each(&mut |place| {
            let off = (place.to - place.from).abs_diff(median_ns as u64);
            if nearest.is_none_or(|(best, _)| off < best) {
                nearest = Some((off, place));
            }
        })?;
        Ok(Explained {
            function,
            here,
            median: nearest.filter(|_| timed_calls > 1).map(|(_, place)| place),
            here_ns,
            median_ns,
            timed_calls,
            rows: if timed_calls > 1 { rows } else { Vec::new() },
        })
    }
}

/// Why a call can't be explained that wasn't recorded from its entry to its exit.
pub const NOT_TIMED: &str =
    "this call wasn't recorded from its entry to its exit, so its time can't be compared";
/// Why there is no answer about a call.
pub const NO_CALL: &str = "no call is open there";

/// The callers in a query about one function: their numbers, and their calls.
#[must_use]
pub fn callers(edges: &Edges<'_>, number: Numbering<'_>) -> Vec<(Option<u32>, u64)> {
    let mut of = |function: Option<u32>| Some(number(edges.functions().get(function?)?));
    edges.callers().iter().map(|edge| (of(edge.function), edge.sums.calls)).collect()
}

/// Callers with the calls of each, those with the most calls first. `place` is the file and line of
/// a function.
#[must_use]
pub fn listed_callers(
    all: impl IntoIterator<Item = (Option<u32>, u64)>,
    mut place: impl FnMut(u32) -> (Option<String>, Option<u32>),
) -> Vec<Caller> {
    let mut sums: FxHashMap<Option<u32>, u64> = FxHashMap::default();
    for (caller, calls) in all {
        *sums.entry(caller).or_default() += calls;
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, calls)| *calls > 0).collect();
    sums.sort_by_key(|(function, calls)| (std::cmp::Reverse(*calls), *function));
    let caller = |(function, calls): (Option<u32>, u64)| {
        let (file, line) = function.map(&mut place).unwrap_or_default();
        Caller { function, calls, file, line }
    };
    sums.into_iter().map(caller).collect()
}

/// A function that calls another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// Its number; `None` for calls that no traced function made.
    pub function: Option<u32>,
    /// Its calls.
    pub calls: u64,
    /// Its source file.
    pub file: Option<String>,
    /// The line of its declaration.
    pub line: Option<u32>,
}

/// The source of a function, and its callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceText {
    /// Its source file.
    pub file: Option<String>,
    /// The line of its declaration.
    pub line: Option<u32>,
    /// The line that the text begins with.
    pub first_line: u32,
    /// The text of the file.
    pub text: Option<String>,
    /// Why the text isn't there.
    pub why: Option<String>,
    /// Those with the most calls first.
    pub callers: Vec<Caller>,
}
