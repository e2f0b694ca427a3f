//! The functions that the runtime switched off to keep its budget (`record --budget`), from the
//! instants that its budget thread wrote.

use std::collections::BTreeMap;

use everycall_export::Names as _;
use everycall_format::budget::{Function, THREAD, instant};
use everycall_timeline::{Location, MarkKind, MarkName, TimelineEvent, Trace};

use crate::names::SymbolNames;

/// The actions taken to keep the budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The budget, in millionths of the program's CPU time.
    pub millionths: u64,
    /// Cost of an event as measured at the start, in picoseconds.
    pub event_ps: u64,
    /// The highest cost that was measured before functions were switched off, in millionths.
    pub highest: u64,
    /// The cost of tracing when no more functions could be switched off, in millionths; 0 if the
    /// budget was kept.
    pub out_of_reach: u64,
    /// Functions that were switched off, or could not be; those that were off longest come first.
    pub functions: Vec<CostlyFunction>,
}

/// A function that was switched off to keep the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostlyFunction {
    /// The process, by its index in the trace.
    pub process: usize,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// Intervals in which it was off, in nanoseconds since the origin. Open ends are those of the
    /// recording.
    pub off: Vec<(u64, u64)>,
    /// Whether it was off at the end.
    pub is_off: bool,
    /// The highest measured number of calls per second of CPU time.
    pub calls_per_second: u64,
    /// Whether its sites couldn't be switched.
    pub is_stuck: bool,
}

impl CostlyFunction {
    /// How long it was off, in nanoseconds.
    #[must_use]
    pub fn off_ns(&self) -> u64 {
        self.off.iter().map(|(from, to)| to.saturating_sub(*from)).sum()
    }
}

/// The function that an instant's name refers to, and the action: `budget: off `.
fn function_of(text: &str) -> Option<(&'static str, Function)> {
    [instant::OFF, instant::ON, instant::STUCK]
        .into_iter()
        .find_map(|what| Some((what, Function::parse(text.strip_prefix(what)?)?)))
}

/// Whether a mark with this name was written by the runtime's budget.
#[must_use]
pub fn is_of_budget(name: &str) -> bool {
    function_of(name).is_some()
        || [instant::BUDGET, instant::EVENT, instant::COST, instant::OUT_OF_REACH].contains(&name)
}

fn locate(trace: &Trace<'_>, function: Function) -> Option<(usize, Location)> {
    let process = trace.processes().iter().position(|process| process.pid == function.pid)?;
    Some((process, trace.locate(process, function.code, u64::MAX)))
}

/// Reads how the budget was kept; `None` if there was no budget.
#[must_use]
pub fn budget(trace: &Trace<'_>, names: &SymbolNames<'_>) -> Option<Budget> {
    let mut found = Budget::default();
    let mut functions: BTreeMap<(u32, u32), CostlyFunction> = BTreeMap::new();
    let mut is_any = false;
    let mut end = 0;
    for thread in trace.threads() {
        end = thread.reach.map_or(end, |(_, last)| end.max(last));
        if thread.name != THREAD {
            continue;
        }
        for event in trace.thread_events(thread.index) {
            let TimelineEvent::Mark(mark) = event else { continue };
            let (MarkKind::Instant, Some(value)) = (mark.kind, mark.value) else { continue };
            let text = trace.mark_names().text(mark.name);
            is_any |= text == instant::BUDGET;
            match text {
                instant::BUDGET => found.millionths = value,
                instant::EVENT => found.event_ps = value,
                instant::COST => found.highest = found.highest.max(value),
                instant::OUT_OF_REACH => found.out_of_reach = found.out_of_reach.max(value),
                _ => {}
            }
            let Some((what, function)) = function_of(text) else { continue };
            let Some((process, location)) = locate(trace, function) else { continue };
            let costly = functions.entry((function.pid, function.code)).or_insert_with(|| CostlyFunction {
                process,
                name: names.function(location).name.into_owned(),
                location,
                off: Vec::new(),
                is_off: false,
                calls_per_second: 0,
                is_stuck: false,
            });
            costly.calls_per_second = costly.calls_per_second.max(value);
            match what {
                instant::OFF => {
                    costly.off.push((mark.at_ns, mark.at_ns));
                    costly.is_off = true;
                }
                instant::ON => {
                    match costly.off.last_mut() {
                        Some(last) => last.1 = mark.at_ns,
                        // The beginning was overwritten.
                        None => costly.off.push((0, mark.at_ns)),
                    }
                    costly.is_off = false;
                }
                _ => costly.is_stuck = true,
            }
        }
    }
    for costly in functions.values_mut().filter(|costly| costly.is_off) {
        if let Some(last) = costly.off.last_mut() {
            last.1 = end.max(last.0);
        }
    }
    found.functions = functions.into_values().collect();
    found.functions.sort_by_key(|function| std::cmp::Reverse(function.off_ns()));
    is_any.then_some(found)
}

/// By number, the names of budget marks with their function's name inserted.
pub(crate) fn named_marks(trace: &Trace<'_>, names: &SymbolNames<'_>) -> BTreeMap<MarkName, String> {
    let all = trace.mark_names().all().iter().zip(0..);
    let named = all.filter_map(|(mark, number)| {
        let (what, function) = function_of(&mark.name)?;
        let (_, location) = locate(trace, function)?;
        Some((MarkName(number), format!("{what}{}", names.function(location).name)))
    });
    named.collect()
}
