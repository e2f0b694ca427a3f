//! Calls and time per function, over all threads.

use std::collections::{BTreeSet, HashMap};

use everycall_symbols::Thunk;
use everycall_timeline::{Begin, EndKind, Gap, GapKind, Location, TailCall, TimelineEvent};

use crate::names::{FunctionGroup, SymbolNames};
use crate::view::TraceView;

/// What one function did: clones of it, such as what compilers make of one constructor, are the same function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRow {
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
    /// Calls in the trace, cut ones included. A thunk and the function that it goes on in are one.
    pub calls: u64,
    /// Nanoseconds in it and what it called, as far as they are in the trace; calls within a call of the same
    /// function add nothing.
    pub total_ns: u64,
    /// Nanoseconds in it without what it called.
    pub own_ns: u64,
    /// The time behind its tail calls into code that isn't traced, at most: until each thread's next event. Not part of the other times.
    pub tail_at_most_ns: u64,
}

/// By what functions are ordered, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Number of calls.
    Calls,
    /// Nanoseconds in the function itself.
    OwnTime,
    /// Nanoseconds in the function and what it called.
    TotalTime,
}

/// The functions of a trace, with their calls and their time.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    functions: Vec<Function>,
    /// Calls of all functions.
    pub calls: u64,
    /// Calls that were unwound: left by an exception, longjmp or the end of their thread.
    pub unwound: u64,
    /// Exits whose entry is not in the trace.
    pub orphan_exits: u64,
    /// Calls beyond the depth limit: they are in no other number here.
    pub too_deep: u64,
    /// By index of a thread in the trace: exits of thunks, which have no entry.
    pub thunk_exits: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    calls: u64,
    total_ns: u64,
    own_ns: u64,
    tail_at_most_ns: u64,
}

/// Sums by function, while the trace is gone through.
struct Totals<'a> {
    /// Which function a location belongs to.
    function_of: &'a dyn Fn(Location) -> FunctionGroup,
    /// How the thunk at a location goes on in its function.
    leads_on: &'a dyn Fn(Location) -> Option<Thunk>,
    /// What that said.
    thunks: HashMap<Location, Option<Thunk>>,
    /// By location: its function's place among `functions`.
    places: HashMap<Location, usize>,
    by_group: HashMap<FunctionGroup, usize>,
    functions: Vec<Function>,
}

/// A call that is open.
struct OpenCall {
    /// Its function.
    place: usize,
    location: Location,
    /// Nanoseconds of the calls within it.
    inner: u64,
    /// Whether a thunk led to it, which counts as this call.
    is_led_to: bool,
}

#[derive(Clone, Debug)]
struct Function {
    /// Where it was entered, the lowest one first at the end.
    locations: Vec<Location>,
    sums: Sums,
    /// Calls of it that are open in the thread at hand.
    open: u32,
}

impl<'a> Totals<'a> {
    fn new(
        function_of: &'a dyn Fn(Location) -> FunctionGroup,
        leads_on: &'a dyn Fn(Location) -> Option<Thunk>,
    ) -> Totals<'a> {
        Totals {
            function_of,
            leads_on,
            thunks: HashMap::new(),
            places: HashMap::new(),
            by_group: HashMap::new(),
            functions: Vec::new(),
        }
    }

    /// Whether a call is that which a thunk of its function makes: by a jump, or, where the thunk has to do with the
    /// result, from within.
    fn is_led_to(
        &mut self,
        begin: &Begin,
        place: usize,
        around: Option<&OpenCall>,
        before: Option<&OpenCall>,
    ) -> bool {
        let mut from = |call: Option<&OpenCall>, kind| {
            call.is_some_and(|call| {
                call.place == place && call.location != begin.location && {
                    let leads_on = self.leads_on;
                    *self.thunks.entry(call.location).or_insert_with(|| leads_on(call.location)) == Some(kind)
                }
            })
        };
        (begin.tail_call == TailCall::Yes && from(before, Thunk::This)) || from(around, Thunk::Result)
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
    #[must_use]
    pub fn of(view: &TraceView<'_>) -> Profile {
        let mut profile = Profile::default();
        let names = view.names();
        let function_of = |location| names.group(location);
        let leads_on = |location| names.leads_on(location);
        let mut totals = Totals::new(&function_of, &leads_on);
        for thread in 0..view.trace().threads().len() {
            let mut timeline = view.timeline(thread);
            profile.add_thread(timeline.by_ref(), &mut totals);
            profile.thunk_exits.push(timeline.stats().thunk_exits);
            profile.too_deep += timeline.stats().too_deep;
        }
        profile.functions = totals.functions;
        profile.functions.iter_mut().for_each(|function| function.locations.sort_unstable());
        profile.calls = profile.functions.iter().map(|function| function.sums.calls).sum();
        profile
    }

    /// How many functions occurred.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The first `count` functions in this order, with their names; those whose number is 0 are left out.
    ///
    /// `names` are those that the profile was made with.
    #[must_use]
    pub fn top(&self, order: Order, count: usize, names: &SymbolNames<'_>) -> Vec<FunctionRow> {
        let by = |function: &Function| match order {
            Order::Calls => function.sums.calls,
            Order::OwnTime => function.sums.own_ns,
            Order::TotalTime => function.sums.total_ns,
        };
        // Any of its locations names it; the lowest makes the choice the same each time.
        let lowest = |function: &Function| function.locations.first().copied();
        let mut sorted: Vec<_> = self.functions.iter().filter(|function| by(function) > 0).collect();
        sorted.sort_by_key(|function| (std::cmp::Reverse(by(function)), lowest(function)));
        let row = |function: &Function| {
            let name = names.name(lowest(function)?);
            let symbols: BTreeSet<_> = function.locations.iter().filter_map(|at| names.symbol(*at)).collect();
            let Sums { calls, total_ns, own_ns, tail_at_most_ns } = function.sums;
            Some(FunctionRow {
                name: name.name.into_owned(),
                symbols: symbols.into_iter().collect(),
                module: name.module.into_owned(),
                file: name.file.map(std::borrow::Cow::into_owned),
                line: name.line,
                calls,
                total_ns,
                own_ns,
                tail_at_most_ns,
            })
        };
        sorted.into_iter().filter_map(row).take(count).collect()
    }

    fn add_thread(&mut self, events: impl Iterator<Item = TimelineEvent>, totals: &mut Totals<'_>) {
        let mut open: Vec<OpenCall> = Vec::new();
        // The call that ended last.
        let mut before: Option<OpenCall> = None;
        for event in events {
            match event {
                TimelineEvent::Begin(begin) => {
                    let place = totals.place(begin.location);
                    let is_led_to = totals.is_led_to(&begin, place, open.last(), before.as_ref());
                    totals.functions[place].open += 1;
                    open.push(OpenCall { place, location: begin.location, inner: 0, is_led_to });
                }
                TimelineEvent::End(end) => {
                    let duration = end.end_ns.saturating_sub(end.start_ns);
                    let Some(call) = open.pop() else { continue };
                    let OpenCall { place, inner, is_led_to, .. } = call;
                    before = Some(call);
                    if let Some(outer) = open.last_mut() {
                        outer.inner = outer.inner.saturating_add(duration);
                    }
                    let Function { sums, open: open_of_it, .. } = &mut totals.functions[place];
                    sums.calls += u64::from(!is_led_to);
                    *open_of_it -= 1;
                    if *open_of_it == 0 {
                        sums.total_ns = sums.total_ns.saturating_add(duration);
                    }
                    sums.own_ns = sums.own_ns.saturating_add(duration.saturating_sub(inner));
                    self.unwound += u64::from(matches!(end.how, EndKind::Unwound | EndKind::UnwoundLate));
                }
                TimelineEvent::Instant(_) => self.orphan_exits += 1,
                TimelineEvent::Gap(Gap { at_ns, until_ns, why: GapKind::Suspended, .. }) => {
                    // Its thread ran something else meanwhile.
                    if let Some(call) = open.last_mut() {
                        call.inner = call.inner.saturating_add(until_ns.saturating_sub(at_ns));
                    }
                }
                TimelineEvent::Untraced(untraced) => {
                    if let Some(jumped) = &before {
                        let tail_ns = &mut totals.functions[jumped.place].sums.tail_at_most_ns;
                        *tail_ns = tail_ns.saturating_add(untraced.until_ns.saturating_sub(untraced.at_ns));
                    }
                }
                TimelineEvent::Loss(_) | TimelineEvent::Mark(_) | TimelineEvent::Gap(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_timeline::End;

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
            let mut totals = Totals::new(&clones, &|_| None);
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

    #[test]
    fn a_thunk_and_its_function_are_one_call() {
        let at = |image_address| Location { module: 0, image_address };
        let call = |address, start_ns, end_ns, depth, tail_call| {
            let begin =
                Begin { depth, location: at(address), start_ns, cut: false, tail_call, caller_unsure: false };
            let how = EndKind::Returned;
            let end = End { depth, location: at(address), start_ns, end_ns, how, start_cut: false };
            (TimelineEvent::Begin(begin), TimelineEvent::End(end))
        };
        // 1 is the function, 2 its thunk, 3 one that has to do with the result, 4 one with the body in it.
        let function_of = |location: Location| FunctionGroup::At(Location { image_address: 1, ..location });
        let leads_on = |location: Location| match location.image_address {
            2 => Some(Thunk::This),
            3 => Some(Thunk::Result),
            _ => None,
        };
        let sums = |events: &[TimelineEvent]| {
            let mut totals = Totals::new(&function_of, &leads_on);
            Profile::default().add_thread(events.iter().copied(), &mut totals);
            let place = totals.place(at(1));
            let Sums { calls, total_ns, own_ns, .. } = totals.functions[place].sums;
            (calls, total_ns, own_ns)
        };
        let beside = |first, tail_call| {
            let ((a, b), (c, d)) = (call(first, 0, 10, 0, TailCall::No), call(1, 10, 100, 0, tail_call));
            sums(&[a, b, c, d])
        };
        let within = |outer| {
            let ((a, d), (b, c)) = (call(outer, 0, 100, 0, TailCall::No), call(1, 10, 90, 1, TailCall::No));
            sums(&[a, b, c, d])
        };
        assert_eq!(beside(2, TailCall::Yes), (1, 100, 100));
        assert_eq!(beside(2, TailCall::No), (2, 100, 100));
        assert_eq!(beside(1, TailCall::Yes), (2, 100, 100));
        assert_eq!(beside(4, TailCall::Yes), (2, 100, 100));
        assert_eq!(within(3), (1, 100, 100));
        for outer in [1, 2, 4] {
            assert_eq!(within(outer), (2, 100, 100), "{outer}");
        }
    }
}
