//! Calls and time per function, over all threads.

use std::collections::HashMap;

use everycall_timeline::{EndKind, Location, TimelineEvent, Trace};

use crate::symbol_names::{FunctionKey, SymbolNames};
use crate::trace_view::TraceView;

/// Functions that are listed.
const LISTED: usize = 10;

/// What one function did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Demangled name.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line of its declaration.
    pub line: Option<u32>,
    /// Calls in the trace, cut ones included.
    pub calls: u64,
    /// Nanoseconds in it and what it called, as far as they are in the trace; calls within a call of the same
    /// function add nothing.
    pub total_ns: u64,
    /// Nanoseconds in it without what it called.
    pub own_ns: u64,
}

/// The functions of a trace.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Those with most calls.
    pub by_calls: Vec<Row>,
    /// Those with most own time.
    pub by_own_time: Vec<Row>,
    /// Functions that occurred.
    pub functions: u64,
    /// Calls of all functions.
    pub calls: u64,
    /// Calls that were left by an exception, longjmp or the end of their thread.
    pub unwound: u64,
    /// Exits that fit no call.
    pub unmatched_exits: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    total_ns: u64,
    own_ns: u64,
}

impl Profile {
    /// Goes through the timeline of every thread.
    pub fn of(trace: &Trace<'_>, view: &TraceView<'_>, names: &SymbolNames<'_>) -> Profile {
        let mut profile = Profile::default();
        let mut sums: HashMap<Location, Sums> = HashMap::new();
        for thread in 0..trace.threads().len() {
            profile.add_thread(view.timeline(thread), &mut sums);
        }
        let mut functions: HashMap<FunctionKey, (Location, Sums)> = HashMap::new();
        for (location, sum) in sums {
            let (first, total) = functions.entry(names.key(location)).or_insert((location, Sums::default()));
            // Any of its locations names it; the lowest makes the choice the same each time.
            *first = location.min(*first);
            total.calls += sum.calls;
            total.total_ns = total.total_ns.saturating_add(sum.total_ns);
            total.own_ns = total.own_ns.saturating_add(sum.own_ns);
        }
        profile.functions = functions.len() as u64;
        profile.calls = functions.values().map(|(_, sums)| sums.calls).sum();
        let all: Vec<_> = functions.into_values().collect();
        profile.by_calls = top(&all, |sums| sums.calls, names);
        profile.by_own_time = top(&all, |sums| sums.own_ns, names);
        profile
    }

    fn add_thread(
        &mut self,
        events: impl Iterator<Item = TimelineEvent>,
        sums: &mut HashMap<Location, Sums>,
    ) {
        // Nanoseconds of the calls within each open call.
        let mut inner_ns: Vec<u64> = Vec::new();
        let mut open_calls: HashMap<Location, u32> = HashMap::new();
        for event in events {
            match event {
                TimelineEvent::Begin(begin) => {
                    inner_ns.push(0);
                    *open_calls.entry(begin.location).or_default() += 1;
                }
                TimelineEvent::End(end) => {
                    let duration = end.end_ns.saturating_sub(end.start_ns);
                    let inner = inner_ns.pop().unwrap_or(0);
                    if let Some(outer) = inner_ns.last_mut() {
                        *outer = outer.saturating_add(duration);
                    }
                    let sum = sums.entry(end.location).or_default();
                    sum.calls += 1;
                    let open = open_calls.entry(end.location).or_insert(1);
                    *open = open.saturating_sub(1);
                    if *open == 0 {
                        sum.total_ns = sum.total_ns.saturating_add(duration);
                    }
                    sum.own_ns = sum.own_ns.saturating_add(duration.saturating_sub(inner));
                    self.unwound += u64::from(end.how == EndKind::Unwound);
                }
                TimelineEvent::Instant(_) => self.unmatched_exits += 1,
                TimelineEvent::Loss(_) | TimelineEvent::Mark(_) | TimelineEvent::Gap(_) => {}
            }
        }
    }
}

fn top(all: &[(Location, Sums)], by: impl Fn(&Sums) -> u64, names: &SymbolNames<'_>) -> Vec<Row> {
    let mut sorted: Vec<_> = all.iter().filter(|(_, sums)| by(sums) > 0).collect();
    sorted.sort_by_key(|(location, sums)| (std::cmp::Reverse(by(sums)), *location));
    let row = |(location, sums): &(Location, Sums)| {
        let name = names.name(*location);
        Row {
            name: name.name.into_owned(),
            module: name.module.into_owned(),
            file: name.file.map(std::borrow::Cow::into_owned),
            line: name.line,
            calls: sums.calls,
            total_ns: sums.total_ns,
            own_ns: sums.own_ns,
        }
    };
    sorted.into_iter().take(LISTED).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_timeline::{Begin, End, TailCall};

    #[test]
    fn own_time_leaves_out_what_was_called() {
        let at = |address| Location { module: 0, image_address: address };
        let begin = |address, start_ns| {
            TimelineEvent::Begin(Begin {
                depth: 0,
                location: at(address),
                start_ns,
                cut: false,
                tail_call: TailCall::No,
            })
        };
        let end = |address, start_ns, end_ns| {
            let how = EndKind::Returned;
            TimelineEvent::End(End {
                depth: 0,
                location: at(address),
                start_ns,
                end_ns,
                how,
                start_cut: false,
            })
        };
        let events =
            [begin(1, 0), begin(2, 10), end(2, 10, 40), begin(2, 50), end(2, 50, 60), end(1, 0, 100)];
        let mut sums = HashMap::new();
        Profile::default().add_thread(events.into_iter(), &mut sums);
        let of = |address| sums[&at(address)];
        assert_eq!((of(1).calls, of(1).total_ns, of(1).own_ns), (1, 100, 60));
        assert_eq!((of(2).calls, of(2).total_ns, of(2).own_ns), (2, 40, 40));

        let recursive = [begin(1, 0), begin(1, 10), end(1, 10, 40), end(1, 0, 100)];
        let mut sums = HashMap::new();
        Profile::default().add_thread(recursive.into_iter(), &mut sums);
        let sum = sums[&at(1)];
        assert_eq!((sum.calls, sum.total_ns, sum.own_ns), (2, 100, 100));
    }
}
