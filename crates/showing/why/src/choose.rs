//! Which call is explained.

use everycall_analysis::{
    CallPlace, Focus, Function, Grouping, KeptCall, Key, Order, Profile, SlowCall, Slowest, TraceView,
    kept_calls,
};
use everycall_export::Filter;

use crate::answer::Chosen;

/// A function that is called less often has no median to speak of, if there are others.
const MANY: u64 = 20;
/// Fewer calls have no median.
const SEVERAL: u64 = 3;
/// Largest number of calls that are looked at where one call is sought.
const CALLS_MAX: usize = 10_000;

/// Which call is asked for.
#[derive(Clone, Copy, Default)]
pub struct Question<'q> {
    /// Functions to choose from; the slowest of their calls is explained.
    pub function: Option<&'q dyn Fn(&Function) -> bool>,
    /// The call that began at this moment.
    pub start_ns: Option<u64>,
    /// Its thread, where calls began in several at that moment.
    pub tid: Option<u32>,
    /// The kept call with this number.
    pub kept: Option<usize>,
    /// Whether durations include tail calls.
    pub tails: bool,
}

/// A call that was chosen.
pub(crate) struct Choice {
    pub(crate) call: SlowCall,
    pub(crate) function: Function,
    pub(crate) chosen: Chosen,
    pub(crate) kept: Option<KeptCall>,
    pub(crate) kept_calls: usize,
    pub(crate) follows_tails: bool,
}

impl Choice {
    pub(crate) fn place(&self) -> CallPlace {
        place_of(&self.call)
    }
}

pub(crate) fn place_of(call: &SlowCall) -> CallPlace {
    CallPlace { pid: call.pid, tid: call.tid, depth: call.depth, start_ns: call.start_ns }
}

/// The slowest calls of some functions that pass a filter, slowest first, and whether any of the
/// functions occurred.
pub(crate) fn slowest(
    view: &TraceView<'_>,
    is_meant: &dyn Fn(&Function) -> bool,
    filter: &Filter,
    limit: usize,
    tails: bool,
) -> (Vec<(SlowCall, Function)>, bool) {
    let mut slowest = Slowest::new(Focus::new(is_meant), limit).with_tails(tails);
    slowest.add_trace(view, filter);
    let function = |call: &SlowCall| slowest.functions().get(call.function).cloned().unwrap_or_default();
    let calls = slowest.calls().into_iter().map(|call| (call.clone(), function(call))).collect();
    (calls, slowest.has_any())
}

/// The calls that were open at a moment.
fn at_moment(tid: Option<u32>, at_ns: u64) -> Filter {
    Filter {
        tids: tid.into_iter().collect(),
        since_ns: Some(at_ns),
        until_ns: Some(at_ns),
        ..Filter::default()
    }
}

/// Chooses the call.
///
/// # Errors
///
/// A sentence why there is none.
pub(crate) fn choose(view: &TraceView<'_>, question: &Question<'_>) -> Result<Choice, String> {
    let kept = kept_calls(view.trace(), view.names());
    let found = |(call, function): (SlowCall, Function), chosen, tails| {
        let is_it = |kept: &&KeptCall| {
            kept.is_call
                && (kept.pid, kept.start_ns) == (call.pid, call.start_ns)
                && kept.function.as_ref() == Some(&function.name)
        };
        Choice {
            kept: kept.iter().find(is_it).cloned(),
            kept_calls: kept.len(),
            follows_tails: tails,
            call,
            function,
            chosen,
        }
    };
    if let Some(number) = question.kept {
        let Some(wanted) = number.checked_sub(1).and_then(|index| kept.get(index)) else {
            return Err(match kept.len() {
                0 => "no calls were kept; `everycall record --trigger` keeps them".to_owned(),
                count => {
                    format!("its kept calls have numbers from 1 to {count}; `everycall info` lists them")
                }
            });
        };
        let tails = question.tails || wanted.tail.is_some();
        let call = call_of(view, wanted, tails).ok_or_else(|| match wanted.is_call {
            true => format!("the events of kept call {number} don't show the call itself"),
            false => format!("kept call {number} is a snapshot that was asked for, not a call"),
        })?;
        return Ok(found(call, Chosen::Asked, tails));
    }
    let is_any = |_: &Function| true;
    let is_meant = question.function.unwrap_or(&is_any);
    if let Some(at_ns) = question.start_ns {
        let filter = at_moment(question.tid, at_ns);
        let (calls, _) = slowest(view, is_meant, &filter, CALLS_MAX, question.tails);
        let begins = calls.into_iter().filter(|(call, _)| call.start_ns == at_ns && !call.start_cut);
        // Of calls within each other, the outermost.
        let call = begins.min_by_key(|(call, _)| call.depth).ok_or(
            "no such call began then; `everycall report --slowest FUNCTION` prints when calls began",
        )?;
        return Ok(found(call, Chosen::Asked, question.tails));
    }
    if question.function.is_some() {
        let filter = Filter { tids: question.tid.into_iter().collect(), ..Filter::default() };
        let (calls, _) = slowest(view, is_meant, &filter, CALLS_MAX, question.tails);
        let complete = calls.iter().position(|(call, _)| !call.is_uncertain);
        let call = calls.into_iter().nth(complete.unwrap_or(0)).ok_or("none of its calls is in the trace")?;
        return Ok(found(call, Chosen::SlowestOf, question.tails));
    }
    let mut by_time: Vec<&KeptCall> =
        kept.iter().filter(|kept| kept.is_call && kept.most_ns().is_some()).collect();
    by_time.sort_by_key(|kept| (std::cmp::Reverse(kept.took_ns), kept.number));
    for wanted in by_time.into_iter().take(SLOWEST_KEPT) {
        let tails = question.tails || wanted.tail.is_some();
        if let Some(call) = call_of(view, wanted, tails).filter(|(call, _)| !call.is_uncertain) {
            return Ok(found(call, Chosen::SlowestKept, tails));
        }
    }
    let (function, chosen) = function_by_times(view).ok_or("it contains no calls")?;
    let is_it = |of: &Function| of.identity == function.identity;
    let (calls, _) = slowest(view, &is_it, &Filter::default(), CALLS_MAX.min(100), question.tails);
    let complete = calls.iter().position(|(call, _)| !call.is_uncertain);
    let call = calls.into_iter().nth(complete.unwrap_or(0)).ok_or("it contains no calls")?;
    Ok(found(call, chosen, question.tails))
}

/// How many kept calls are tried.
const SLOWEST_KEPT: usize = 10;

/// A kept call among the calls of the timeline.
fn call_of(view: &TraceView<'_>, kept: &KeptCall, tails: bool) -> Option<(SlowCall, Function)> {
    let name = kept.function.as_ref().filter(|_| kept.is_call)?;
    let is_meant = |function: &Function| function.name == *name;
    let filter = at_moment(None, kept.start_ns);
    let (calls, _) = slowest(view, &is_meant, &filter, CALLS_MAX, tails);
    let is_it = |(call, _): &(SlowCall, Function)| {
        call.start_ns == kept.start_ns && (kept.pid == 0 || call.pid == kept.pid)
    };
    calls.into_iter().find(is_it)
}

/// The function whose slowest call is farthest above its median.
fn function_by_times(view: &TraceView<'_>) -> Option<(Function, Chosen)> {
    let profile = Profile::of(view);
    let rows = profile.rows(Order::Max);
    let function = |key: &Key| match key {
        Key::Function(number) => profile.functions().get(*number).cloned(),
        _ => None,
    };
    for least in [MANY, SEVERAL] {
        let above = rows.iter().filter_map(|row| {
            let times = &row.sums.times;
            let (max, p50) = (times.max()?, times.percentile(5_000)?);
            (times.count() >= least && max / 2 >= p50).then(|| (max - p50, row))
        });
        // Of equal ones, the first: its slowest call is the longest.
        let best = above.reduce(|best, one| if one.0 > best.0 { one } else { best });
        if let Some(function) = best.and_then(|(_, row)| function(row.key)) {
            return Some((function, Chosen::FarthestAboveMedian));
        }
    }
    let longest = rows.iter().find(|row| row.sums.times.count() > 0).or(rows.first())?;
    debug_assert_eq!(*profile.grouping(), Grouping::Function);
    Some((function(longest.key)?, Chosen::Longest))
}
