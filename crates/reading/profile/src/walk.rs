//! The traversal of a trace that all profiles share: which calls pass the filter, their functions
//! and own times.
//!
//! Memory holds the open calls of one thread and the functions that occurred. If a label was
//! requested, it also holds one number for each call with the label.

mod labels;
mod states;
#[cfg(test)]
mod stretches;
mod tails;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::iter::Peekable;

use everycall_calls::{
    Bars, Begin, Calls, End, EndKind, JumpedCall, Location, StateTimes, TailCall, ThreadStates, TimelineEvent,
};

use crate::bounds::{Bounding, CallBounds};
use crate::functions::{Functions, Place, PlaceOf, Split, Thunk};
use crate::hooks::{HookTime, OpenHooks};
use crate::notes::Notes;
use crate::source::{CallSource, Events as _, Part, ReducedCall, Wanted};
use crate::stretch::{StretchNotes, WholeCall};
use crate::visitor::{Counted, EndedCall, Visitor};
use labels::Labels;
use states::States;
use tails::Tails;

/// Sums of a call's callees, and the call's suspended time.
#[derive(Clone, Copy)]
struct Inner {
    inner_ns: u64,
    suspended_ns: u64,
    states: Option<StateTimes>,
}

impl Inner {
    fn of(call: &WholeCall) -> Inner {
        Inner { inner_ns: call.inner_ns, suspended_ns: call.suspended_ns(), states: call.inner_states() }
    }
}

/// Traverses the calls of `source` that pass `filter`. With `by_label`, the visitor receives the
/// values of that label.
pub(crate) fn walk<S: CallSource>(
    source: &S,
    filter: &S::Filter,
    by_label: Option<&str>,
    functions: &mut Functions,
    notes: &mut Notes,
    visitor: &mut impl Visitor,
) {
    let mut places = source.places(filter, visitor.is_by_symbol());
    let window = source.window(filter);
    notes.thunk_exits.resize(source.trace_threads(), 0);
    let is_whole = by_label.is_some() || visitor.follows_tails() || visitor.needs_all_callees();
    let wanted = Wanted { label: by_label, is_whole: is_whole || visitor.prices().is_some() };
    for (index, thread) in source.threads_of_calls().iter().enumerate() {
        if !source.admits(index, filter) {
            continue;
        }
        let Part { mut events, chosen, labels, before, end, notes: whole, reduced, states, has_bounds } =
            source.part(index, filter, wanted);
        source.note_thread(index, notes);
        visitor.thread(thread);
        let mut walker =
            Walker::new(Calls::new(window, chosen), functions, &mut places, visitor).with_states(states);
        walker.bounding = has_bounds.then(|| Bounding::new(index));
        walker.labels = labels.map(Labels::new);
        walker.reduced = (!reduced.is_empty()).then(|| (0, reduced.into_iter().peekable()));
        let mut rest = end.as_ref().map_or(u64::MAX, |(count, _)| *count);
        let mut found = Notes::default();
        walker.enter(&before);
        while rest > 0 && !source.is_stopped() {
            let some = events.next_some();
            if some.is_empty() {
                break;
            }
            let some = some.get(..usize::try_from(rest).unwrap_or(usize::MAX)).unwrap_or(some);
            rest -= some.len() as u64;
            walker.walk(some, &mut found);
        }
        match &end {
            Some((_, open)) => walker.leave(open),
            None => walker.untie(),
        }
        let stats = events.stats();
        let mut thunk_exits = stats.thunk_exits;
        match whole {
            // Notes that don't depend on the range come from the whole thread.
            Some(StretchNotes { notes: all, thunk_exits: exits }) => {
                (found.gaps, found.too_deep, thunk_exits) = (all.gaps, all.too_deep, exits);
                if window.is_unbounded() {
                    found = all;
                }
            }
            None => found.too_deep = stats.too_deep,
        }
        notes.add(&found);
        if let Some(exits) = source.trace_thread(index).and_then(|index| notes.thunk_exits.get_mut(index)) {
            *exits = thunk_exits;
        }
    }
}

/// Tells a visitor of the calls of a thread. Each concern that not all traces or visitors have is a
/// field of its own that follows the calls.
struct Walker<'w, P, V> {
    calls: Calls<Counted>,
    /// The open calls that don't have all of their callees in the stretch that is read, outermost
    /// first: their depth, and the sums of these.
    wholes: Vec<(usize, Inner)>,
    /// Number of begins so far, and the calls that come and don't have all of their callees among
    /// the events.
    reduced: Option<(u64, Peekable<std::vec::IntoIter<ReducedCall>>)>,
    /// If the visitor requested a label.
    labels: Option<Labels>,
    states: Option<States<'w>>,
    /// Where events may have no times of their own.
    bounding: Option<Bounding>,
    /// If calls say what hooks cost in them.
    hooks: Option<OpenHooks<'static>>,
    /// A thunk that ended in a jump. It counts as its target's call if that follows.
    thunk: Option<EndedCall>,
    tails: Tails<'w>,
    follows_tails: bool,
    functions: &'w mut Functions,
    places: &'w mut P,
    visitor: &'w mut V,
}

impl<'w, P: PlaceOf, V: Visitor> Walker<'w, P, V> {
    fn new(
        calls: Calls<Counted>,
        functions: &'w mut Functions,
        places: &'w mut P,
        visitor: &'w mut V,
    ) -> Walker<'w, P, V> {
        Walker {
            calls,
            wholes: Vec::new(),
            reduced: None,
            labels: None,
            states: None,
            bounding: None,
            hooks: visitor.prices().map(|prices| OpenHooks::new(Cow::Owned(prices.clone()))),
            thunk: None,
            tails: Tails::new(None),
            follows_tails: visitor.follows_tails(),
            functions,
            places,
            visitor,
        }
    }

    fn with_states(self, states: Option<&'w ThreadStates>) -> Self {
        Walker { states: states.map(States::new), tails: Tails::new(states), ..self }
    }

    /// Processes the next events of a thread. [`Walker::untie`] follows the last ones.
    fn walk(&mut self, events: &[TimelineEvent], notes: &mut Notes) {
        for event in events {
            let bounds = self.bounding.as_mut().and_then(|bounding| bounding.event(event));
            match event {
                TimelineEvent::Begin(begin) => self.begin(begin),
                TimelineEvent::End(end) => self.end(end, bounds),
                TimelineEvent::Untraced(untraced) => {
                    if self.tails.are_any() {
                        self.tails.end_untraced(untraced.until_ns, self.visitor);
                    }
                    if let Some(jumped) = self.calls.untraced(untraced) {
                        let at_most_ns = untraced.until_ns.saturating_sub(untraced.at_ns);
                        self.visitor.untraced(jumped.of.function(), at_most_ns);
                    }
                }
                TimelineEvent::Gap(gap) => {
                    self.calls.gap(gap);
                    notes.gap(gap);
                }
                TimelineEvent::Loss(loss) if self.calls.window().has(loss.at_ns) => notes.loss(loss),
                TimelineEvent::Instant(instant) if self.calls.window().has(instant.at_ns) => {
                    notes.orphan_exits += 1
                }
                TimelineEvent::Loss(_)
                | TimelineEvent::Instant(_)
                | TimelineEvent::Mark(_)
                | TimelineEvent::Unstamped(_) => {}
                TimelineEvent::Returned(returned) => self.calls.returned(returned),
            }
        }
    }

    /// Before the first event: calls are open, outermost first.
    fn enter(&mut self, open: &[WholeCall]) {
        for call in open {
            let jumped = call.jumped_from().map(|location| {
                let of = Counted::at(self.places.get(location, self.functions));
                JumpedCall { of, location, is_selected: true }
            });
            // A thunk and its function are one call, which didn't come from elsewhere.
            let location = call.begin().location;
            let place = self.places.get(location, self.functions);
            let is_of_thunk = jumped.is_some_and(|jumped| {
                (jumped.of.place.thunk == Some(Thunk::This) || place.split == Split::Part)
                    && is_of_one_call((jumped.of.place, jumped.location), (place, location))
            });
            self.calls.enter_behind(jumped);
            let tail_call = if is_of_thunk { TailCall::No } else { call.begin().tail_call };
            if let Some(bounding) = &mut self.bounding {
                bounding.enter(call.begin().start_ns);
            }
            self.begin(&Begin { tail_call, ..*call.begin() });
            self.is_whole(call);
        }
        self.calls.enter_behind(None);
    }

    /// The sums of all of the innermost call's callees are known.
    fn is_whole(&mut self, call: &WholeCall) {
        if let Some(depth) = self.calls.open().len().checked_sub(1) {
            self.wholes.pop_if(|(of, _)| *of == depth);
            self.wholes.push((depth, Inner::of(call)));
        }
    }

    /// A call has begun that may not have all of its callees among the events.
    #[cold]
    fn reduce(&mut self) {
        let Some((begins, reduced)) = &mut self.reduced else { return };
        let call = reduced.next_if(|call| call.position == *begins);
        *begins += 1;
        if let (Some(call), Some(depth)) = (call, self.calls.open().len().checked_sub(1)) {
            let ReducedCall { inner_ns, suspended_ns, .. } = call;
            self.wholes.push((depth, Inner { inner_ns, suspended_ns, states: None }));
        }
    }

    /// Behind the last event that is read: the calls that are open, outermost first, end later.
    fn leave(&mut self, open: &[WholeCall]) {
        for call in open.iter().rev() {
            self.is_whole(call);
            let Some(end) = call.end() else { continue };
            self.end(&end, None);
            if let Some(location) = call.jumps_to().filter(|_| self.has_loose_end()) {
                let place = self.places.get(location, self.functions);
                self.tie(&Begin { location, tail_call: TailCall::Yes, ..*call.begin() }, place);
            }
        }
        self.untie();
    }

    #[inline]
    fn begin(&mut self, begin: &Begin) {
        let place = self.places.get(begin.location, self.functions);
        let is_at = |of: &Counted, location| is_of_one_call((of.place, location), (place, begin.location));
        let mut is_led_to = self.calls.open().last().is_some_and(|around| {
            (around.of.place.thunk == Some(Thunk::Result) || place.split == Split::Part)
                && is_at(&around.of, around.begin.location)
        });
        if place.split == Split::Part && self.follows_tails {
            // The call that jumped here waits for the end of this one, and has its time.
            let jumped = self.calls.jumped_to(begin);
            is_led_to |= jumped.is_some_and(|jumped| is_at(&jumped.of, jumped.location));
        }
        let thunk = if self.has_loose_end() { self.tie(begin, place) } else { None };
        let from = self.calls.jumped_to(begin).filter(|_| thunk.is_none()).map(|by| by.of.function());
        let thunk_ns = thunk.filter(|thunk| thunk.is_shown).map_or(0, |thunk| thunk.duration_ns());
        let of = Counted { counts: !is_led_to, thunk_ns, ..Counted::at(place) };
        let is_selected = self.calls.begin(begin, place.matches, of);
        if let Some(labels) = &mut self.labels {
            self.visitor.label(labels.begin());
        }
        if self.reduced.is_some() {
            self.reduce();
        }
        if let Some(states) = &mut self.states {
            states.begin();
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.begin();
        }
        if is_selected {
            self.visitor.begin(place.function, from, self.functions);
        }
    }

    /// Whether the call that ended last may go on in the next event.
    #[inline]
    fn has_loose_end(&self) -> bool {
        self.thunk.is_some() || self.tails.are_any()
    }

    /// Connects a call that begins with the one that ended right before it. Returns the thunk that
    /// jumped to it, if both are one call.
    #[cold]
    fn tie(&mut self, begin: &Begin, place: Place) -> Option<EndedCall> {
        if self.tails.are_any() {
            self.tails.begin(self.calls.open().len(), begin.tail_call, self.visitor);
        }
        let is_one = self.calls.jumped_to(begin).is_some_and(|jumped| {
            (jumped.of.place.thunk.is_some() || place.split == Split::Part)
                && is_of_one_call((jumped.of.place, jumped.location), (place, begin.location))
        });
        if !is_one {
            self.count_thunk();
        }
        self.thunk.take()
    }

    /// The call that ended last isn't connected with the next event.
    #[cold]
    fn untie(&mut self) {
        self.count_thunk();
        self.tails.end_all(None, false, self.visitor);
    }

    #[inline]
    fn end(&mut self, end: &End, bounds: Option<CallBounds>) {
        if self.has_loose_end() {
            self.untie();
        }
        let Some(mut call) = self.calls.end(end) else { return };
        let depth = self.calls.open().len();
        let whole = self.wholes.pop_if(|(of, _)| *of == depth).map(|(_, whole)| whole);
        if let Some(Inner { inner_ns, suspended_ns, .. }) = whole {
            call.suspended_ns = suspended_ns;
            call.own_ns = call.duration_ns().saturating_sub(inner_ns).saturating_sub(suspended_ns);
        }
        let inner_states = whole.and_then(|whole| whole.states);
        let states = self.states.as_mut().and_then(|states| states.end(&call, inner_states));
        if let Some(hooks) = &mut self.hooks {
            call.of.hooks = hooks.end(end);
        }
        if let Some(labels) = &mut self.labels {
            labels.end();
        }
        self.tails.end(depth, end, self.visitor);
        if !call.is_selected {
            return;
        }
        if end.how == EndKind::Jumped && call.of.counts {
            let is_split = call.of.place.split == Split::Whole && !self.follows_tails;
            if is_split || call.of.place.thunk == Some(Thunk::This) {
                call.of.counts = false;
                self.thunk = Some(call);
            } else {
                call.of.goes_on = self.follows_tails;
            }
        }
        if let Some(states) = states.filter(|_| call.suspended_ns == 0) {
            self.visitor.states(&states, &call);
        }
        if let Some(mut bounds) = bounds {
            let Bars { low, high, .. } = bounds.own;
            let own_ns = call.own_ns;
            bounds.own = match whole {
                // Not all of it was read.
                Some(_) => Bars::exact(own_ns),
                None => Bars { low: low.min(own_ns), value: own_ns, high: high.max(own_ns) },
            };
            self.visitor.bounds(&bounds, &call);
        }
        self.visitor.end(&call);
        if call.of.goes_on {
            self.tails.jump(&call, self.visitor);
        }
    }

    /// Counts a thunk as a call of its own, because its function's call didn't follow.
    #[cold]
    fn count_thunk(&mut self) {
        let Some(call) = self.thunk.take() else { return };
        self.visitor.begin(call.of.function(), None, self.functions);
        // Its time was counted already.
        let (thunk_ns, hooks) = (call.duration_ns(), HookTime::default());
        let of = Counted { thunk_ns, hooks, counts: true, ..call.of };
        self.visitor.end(&EndedCall { of, start_ns: call.end_ns, own_ns: 0, ..call });
    }
}

/// Whether two places in code, one of which leads to the other, are of one function.
fn is_of_one_call(one: (Place, Location), other: (Place, Location)) -> bool {
    one.0.function == other.0.function && one.1 != other.1
}
