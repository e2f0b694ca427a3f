//! Calls and time per function, over all threads.

use std::collections::{BTreeSet, HashMap};

use everycall_timeline::{EndKind, Gap, GapKind, Location, TimelineEvent, Trace};

use crate::symbol_names::{FunctionGroup, SymbolNames};
use crate::trace_view::TraceView;

/// Functions that are listed.
const LISTED: usize = 10;

/// What one function did: clones of it, such as what compilers make of one constructor, are the same function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Demangled name.
    pub name: String,
    /// The linker's names of what was called: more than one where there are clones.
    pub symbols: Vec<String>,
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

/// Sums by function, while the trace is gone through.
struct Totals<'a> {
    /// Which function a location belongs to.
    function_of: &'a dyn Fn(Location) -> FunctionGroup,
    /// By location: its function's place among `functions`.
    places: HashMap<Location, usize>,
    by_group: HashMap<FunctionGroup, usize>,
    functions: Vec<Function>,
}

struct Function {
    /// Where it was entered, the lowest one first at the end.
    locations: Vec<Location>,
    sums: Sums,
    /// Calls of it that are open in the thread at hand.
    open: u32,
}

impl<'a> Totals<'a> {
    fn new(function_of: &'a dyn Fn(Location) -> FunctionGroup) -> Totals<'a> {
        Totals { function_of, places: HashMap::new(), by_group: HashMap::new(), functions: Vec::new() }
    }

    fn place(&mut self, location: Location) -> usize {
        if let Some(&place) = self.places.get(&location) {
            return place;
        }
        let new = self.functions.len();
        let place = *self.by_group.entry((self.function_of)(location)).or_insert(new);
        if place == new {
            self.functions.push(Function { locations: Vec::new(), sums: Sums::default(), open: 0 });
        }
        self.functions[place].locations.push(location);
        self.places.insert(location, place);
        place
    }
}

impl Profile {
    /// Goes through the timeline of every thread.
    pub fn of(trace: &Trace<'_>, view: &TraceView<'_>, names: &SymbolNames<'_>) -> Profile {
        let mut profile = Profile::default();
        let function_of = |location| names.group(location);
        let mut totals = Totals::new(&function_of);
        for thread in 0..trace.threads().len() {
            profile.add_thread(view.timeline(thread), &mut totals);
        }
        let mut functions = totals.functions;
        functions.iter_mut().for_each(|function| function.locations.sort_unstable());
        profile.functions = functions.len() as u64;
        profile.calls = functions.iter().map(|function| function.sums.calls).sum();
        profile.by_calls = top(&functions, |sums| sums.calls, names);
        profile.by_own_time = top(&functions, |sums| sums.own_ns, names);
        profile
    }

    fn add_thread(&mut self, events: impl Iterator<Item = TimelineEvent>, totals: &mut Totals<'_>) {
        // Of each open call: its function, and nanoseconds of the calls within it.
        let mut open: Vec<(usize, u64)> = Vec::new();
        for event in events {
            match event {
                TimelineEvent::Begin(begin) => {
                    let place = totals.place(begin.location);
                    totals.functions[place].open += 1;
                    open.push((place, 0));
                }
                TimelineEvent::End(end) => {
                    let duration = end.end_ns.saturating_sub(end.start_ns);
                    let Some((place, inner)) = open.pop() else { continue };
                    if let Some((_, outer)) = open.last_mut() {
                        *outer = outer.saturating_add(duration);
                    }
                    let Function { sums, open, .. } = &mut totals.functions[place];
                    sums.calls += 1;
                    *open -= 1;
                    if *open == 0 {
                        sums.total_ns = sums.total_ns.saturating_add(duration);
                    }
                    sums.own_ns = sums.own_ns.saturating_add(duration.saturating_sub(inner));
                    self.unwound += u64::from(matches!(end.how, EndKind::Unwound | EndKind::UnwoundLate));
                }
                TimelineEvent::Instant(_) => self.unmatched_exits += 1,
                TimelineEvent::Gap(Gap { at_ns, until_ns, why: GapKind::Suspended, .. }) => {
                    // Its thread ran something else meanwhile.
                    if let Some((_, inner)) = open.last_mut() {
                        *inner = inner.saturating_add(until_ns.saturating_sub(at_ns));
                    }
                }
                TimelineEvent::Loss(_) | TimelineEvent::Mark(_) | TimelineEvent::Gap(_) => {}
            }
        }
    }
}

fn top(all: &[Function], by: impl Fn(&Sums) -> u64, names: &SymbolNames<'_>) -> Vec<Row> {
    // Any of its locations names it; the lowest makes the choice the same each time.
    let lowest = |function: &Function| function.locations.first().copied();
    let mut sorted: Vec<_> = all.iter().filter(|function| by(&function.sums) > 0).collect();
    sorted.sort_by_key(|function| (std::cmp::Reverse(by(&function.sums)), lowest(function)));
    let row = |function: &Function| {
        let name = names.name(lowest(function)?);
        let symbols: BTreeSet<_> = function.locations.iter().filter_map(|at| names.symbol(*at)).collect();
        let Sums { calls, total_ns, own_ns } = function.sums;
        Some(Row {
            name: name.name.into_owned(),
            symbols: symbols.into_iter().collect(),
            module: name.module.into_owned(),
            file: name.file.map(std::borrow::Cow::into_owned),
            line: name.line,
            calls,
            total_ns,
            own_ns,
        })
    };
    sorted.into_iter().filter_map(row).take(LISTED).collect()
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
                caller_unsure: false,
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
        // Functions 1 and 3 are clones.
        let clones = |location: Location| {
            let image_address = if location.image_address == 3 { 1 } else { location.image_address };
            FunctionGroup::At(Location { image_address, ..location })
        };
        let sums = |events: &[TimelineEvent], address| {
            let mut totals = Totals::new(&clones);
            Profile::default().add_thread(events.iter().copied(), &mut totals);
            let place = totals.place(at(address));
            totals.functions[place].sums
        };
        let of = |address| sums(&events, address);
        assert_eq!((of(1).calls, of(1).total_ns, of(1).own_ns), (1, 100, 60));
        assert_eq!((of(2).calls, of(2).total_ns, of(2).own_ns), (2, 40, 40));

        for inner in [1, 3] {
            let recursive = [begin(1, 0), begin(inner, 10), end(inner, 10, 40), end(1, 0, 100)];
            let sum = sums(&recursive, 1);
            assert_eq!((sum.calls, sum.total_ns, sum.own_ns), (2, 100, 100));
        }
    }
}
