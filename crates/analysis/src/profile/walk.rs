//! The traversal of a trace that all profiles share: which calls pass the filter, their functions
//! and own times.
//!
//! Memory holds the open calls of one thread and the functions that occurred. If a label was
//! requested, it also holds one number for each call with the label.

use std::collections::VecDeque;
use std::iter::Peekable;

use everycall_export::{
    CallValues, Filter, Selection, Source as _, Thread, ValuesNumber, Window, labelled_calls,
};
use everycall_symbols::Thunk;
use everycall_timeline::{
    Bars, Begin, End, EndKind, Gap, GapKind, StateTimes, TailCall, ThreadStates, TimelineEvent, Untraced,
};

use super::bounds::{Bounding, CallBounds};
use super::functions::{FunctionNumber, Functions, Place, PlaceOf, Places};
use super::notes::Notes;
use super::stretch::{Stretch, StretchNotes, WholeCall};
use crate::corrected::{HookTime, Prices};
use crate::names::Split;
use crate::view::TraceView;

/// A call that ends and passes the filter's conditions on function, label and depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedCall {
    pub(crate) function: FunctionNumber,
    /// Number of enclosing calls.
    pub(crate) depth: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Time without callees and without the time in which its stack was suspended.
    pub(crate) own_ns: u64,
    /// Time in it, but not in its callees, in which its stack was suspended.
    pub(crate) suspended_ns: u64,
    /// Duration of the thunk that jumped to it and counts as the same call.
    pub(crate) thunk_ns: u64,
    /// Cost of hooks in it, if the visitor requested that.
    pub(crate) hooks: HookTime,
    pub(crate) how: EndKind,
    pub(crate) start_cut: bool,
    /// Whether it also passes the filter's conditions on times.
    pub(crate) is_shown: bool,
    /// Whether it counts as a call, rather than as the second half of a thunk.
    pub(crate) counts: bool,
    /// Whether it continues in a tail call: [`Visitor::tail_ended`] follows.
    pub(crate) goes_on: bool,
    /// Its arguments and its result, as far as they were recorded.
    pub(crate) values: CallValues,
}

/// The duration of a call including its tail calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithTail {
    pub(crate) duration_ns: u64,
    /// Whether the duration is an upper bound, because the jump's target isn't traced or not known.
    pub(crate) is_at_most: bool,
    /// Whether the end of the jump's target is unknown.
    pub(crate) is_truncated: bool,
    pub(crate) is_shown: bool,
    /// Its thread states; `None` without any.
    pub(crate) states: Option<StateTimes>,
}

impl EndedCall {
    #[inline]
    pub(crate) fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether its duration is known.
    pub(crate) fn is_timed(&self) -> bool {
        !self.start_cut && matches!(self.how, EndKind::Returned | EndKind::Jumped | EndKind::Unwound)
    }
}

/// The thread states of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallStates {
    /// From its begin to its end.
    pub(crate) total: StateTimes,
    /// Without its callees.
    pub(crate) own: StateTimes,
    /// Whether the call also passes the filter's conditions on times.
    pub(crate) is_shown: bool,
    /// Whether it continues in a tail call, and its total isn't known yet.
    pub(crate) goes_on: bool,
}

/// Receives the calls. Begins and ends nest within each thread.
pub(crate) trait Visitor {
    /// The calls of a thread follow.
    fn thread(&mut self, thread: &Thread) {
        let _ = thread;
    }

    /// A call begins. `from` is the function whose call jumped to it.
    fn begin(&mut self, function: FunctionNumber, from: Option<FunctionNumber>, functions: &Functions);

    /// The thread states of the innermost call, which ends next. Not called without thread states.
    fn states(&mut self, states: &CallStates) {
        let _ = states;
    }

    /// Bounds of the times of the innermost call, which ends next. Not called where
    /// all events have times of their own.
    fn bounds(&mut self, bounds: &CallBounds, call: &EndedCall) {
        let _ = (bounds, call);
    }

    /// The innermost call ends.
    fn end(&mut self, call: &EndedCall);

    /// If a label was requested, called before each begin: its value at the innermost call that has
    /// it, including the one that begins.
    fn label(&mut self, in_force: Option<Option<u64>>) {
        let _ = in_force;
    }

    /// Whether each linker name is a function of its own.
    fn is_by_symbol(&self) -> bool {
        false
    }

    /// Whether the duration of calls includes their tail calls.
    fn follows_tails(&self) -> bool {
        false
    }

    /// Whether it needs all callees of the calls in a range, also those that lie outside of it.
    fn needs_all_callees(&self) -> bool {
        false
    }

    /// Prices of hooks, if calls must carry their cost.
    fn prices(&self) -> Option<&Prices> {
        None
    }

    /// The value that [`Visitor::tail_ended`] receives for the call that ended last.
    fn token(&self) -> u32 {
        0
    }

    /// The tail call of a call has ended.
    fn tail_ended(&mut self, token: u32, call: &WithTail) {
        let _ = (token, call);
    }

    /// The call of this function that ended last jumped to untraced code, where it spent at most
    /// this time.
    fn untraced(&mut self, function: FunctionNumber, at_most_ns: u64) {
        let _ = (function, at_most_ns);
    }
}

/// An open call.
struct Open {
    place: Place,
    location: everycall_timeline::Location,
    /// Nanoseconds of its callees.
    inner_ns: u64,
    /// Cost of its callees' hooks: in its own time, and in its duration.
    inner_hooks: HookTime,
    /// Whether an enclosing thunk jumped to it, and counts as this call.
    is_led_to: bool,
    /// Whether the visitor received it.
    is_within: bool,
    rare: Option<Box<Rare>>,
}

/// Rarely needed fields.
#[derive(Default)]
struct Rare {
    suspended_ns: u64,
    /// Duration of the thunk before it, and whether that passed the filter.
    thunk: Option<(u64, bool)>,
    /// Value of the requested label.
    label: Option<Option<u64>>,
    /// The chain of calls that jumped to it.
    waiting: VecDeque<Waiting>,
    /// The sums of all of its callees, if not all of them are in the stretch that is read.
    whole: Option<Inner>,
    /// Its arguments.
    arguments: Option<ValuesNumber>,
}

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

/// A call that ended in a tail call and continues until its target ends.
struct Waiting {
    token: u32,
    start_ns: u64,
    end_ns: u64,
    start_cut: bool,
    is_shown: bool,
    is_at_most: bool,
}

/// Largest number of calls that wait for one. In a longer chain of jumps, the ends of the first
/// ones are unknown.
const WAITING_MAX: usize = 1_000;

/// The call that ended last.
struct Before {
    place: Place,
    location: everycall_timeline::Location,
    is_within: bool,
}

/// A thunk that ended in a jump. It counts as its target's call if that follows.
struct Pending {
    call: EndedCall,
    is_within: bool,
}

/// Traverses the calls of `view` that pass `filter`. With `by_label`, the visitor receives the
/// values of that label.
pub(crate) fn walk(
    view: &TraceView<'_>,
    filter: &Filter,
    by_label: Option<&str>,
    functions: &mut Functions,
    notes: &mut Notes,
    visitor: &mut impl Visitor,
) {
    let mut places = Places::new(view, filter.function.as_ref(), visitor.is_by_symbol());
    let window = filter.window(view);
    notes.thunk_exits.resize(view.trace().threads().len(), 0);
    let is_whole = by_label.is_some() || filter.label.is_some() || filter.values.is_some();
    let is_whole = is_whole || visitor.follows_tails() || visitor.needs_all_callees();
    let is_whole = is_whole || visitor.prices().is_some();
    for (index, thread) in view.threads().iter().enumerate() {
        if !filter.admits_thread(thread) {
            continue;
        }
        let stretch = if is_whole { None } else { stretch(view, index, filter, &window) };
        let whole = || view.timeline(view.trace_index(index).unwrap_or(usize::MAX));
        let events = || stretch.as_ref().and_then(|stretch| view.timeline_of(index, stretch));
        let before = stretch.as_ref().map_or(0, |stretch| stretch.before.len() as u64);
        let chosen = match filter.call {
            Some(_) => filter.chosen(view, || events().unwrap_or_else(whole)),
            // Of a label that the trace adds, too.
            None => filter.chosen(view, || view.events_with_labels(index)),
        };
        let chosen = chosen.map(|calls| calls.into_iter().map(|position| position + before).collect());
        let values = by_label
            .map(|label| labelled_calls(view, view.events_with_labels(index), |name, _| name == label));
        if view.trace().counts().is_empty() {
            notes.thread(thread, view.thread_info(index));
        }
        visitor.thread(thread);
        let selection = Selection::new(window, chosen);
        let mut walker = Walker::new(selection, functions, &mut places, visitor);
        walker.states = view.states(index);
        walker.bounding = view.trace().has_bounds().then(|| Bounding::new(index));
        walker.values = values.map(|calls| calls.into_iter().peekable());
        let mut events = events().unwrap_or_else(whole);
        let end = stretch.as_ref().and_then(|stretch| stretch.end.as_ref());
        let mut rest = end.map_or(u64::MAX, |(count, _)| *count);
        let mut found = Notes::default();
        if let Some(stretch) = &stretch {
            walker.enter(&stretch.before);
        }
        while rest > 0 && !view.is_stopped() {
            let some = events.next_some();
            if some.is_empty() {
                break;
            }
            let some = some.get(..usize::try_from(rest).unwrap_or(usize::MAX)).unwrap_or(some);
            rest -= some.len() as u64;
            walker.walk(some, &mut found);
        }
        match end {
            Some((_, open)) => walker.leave(open),
            None => walker.untie(),
        }
        let stats = events.stats();
        let mut thunk_exits = stats.thunk_exits;
        match stretch {
            // Notes that don't depend on the range come from the whole thread.
            Some(Stretch { notes: StretchNotes { notes: all, thunk_exits: exits }, .. }) => {
                (found.gaps, found.too_deep, thunk_exits) = (all.gaps, all.too_deep, exits);
                if window.is_unbounded() {
                    found = all;
                }
            }
            None => found.too_deep = stats.too_deep,
        }
        notes.add(&found);
        if let Some(exits) = view.trace_index(index).and_then(|index| notes.thunk_exits.get_mut(index)) {
            *exits = thunk_exits;
        }
    }
}

/// The stretch of a thread that must be read; `None` for all of it.
fn stretch(view: &TraceView<'_>, thread: usize, filter: &Filter, window: &Window) -> Option<Stretch> {
    let stretches = view.stretches()?;
    let stretch = match filter.call {
        None if window.is_unbounded() => None,
        None => stretches.stretch(thread, window.since_ns, window.until_ns),
        Some(call) => {
            let (mut since, mut until) = (call.start_ns, stretches.ended_ns(thread, call)?);
            if !window.is_unbounded() {
                (since, until) = (since.min(window.since_ns), until.max(window.until_ns));
            }
            stretches.stretch(thread, since, until)
        }
    };
    stretch.filter(|stretch| view.timeline_of(thread, stretch).is_some())
}

type Labelled = Peekable<std::vec::IntoIter<(u64, Option<u64>)>>;

struct Walker<'w, P, V> {
    selection: Selection,
    /// Positions of the calls with the label that the visitor requested.
    values: Option<Labelled>,
    /// The result of the call that ends next.
    returned: Option<ValuesNumber>,
    /// Number of begins so far.
    begins: u64,
    stack: Vec<Open>,
    states: Option<&'w ThreadStates>,
    /// With thread states, by open call: those of its callees. Beside the calls, because few traces have
    /// them.
    inner_states: Vec<StateTimes>,
    /// Where events may have no times of their own.
    bounding: Option<Bounding>,
    /// Of the call that ends.
    call_bounds: Option<CallBounds>,
    before: Option<Before>,
    pending: Option<Pending>,
    /// The calls that end in the next tail call.
    jumped: VecDeque<Waiting>,
    follows_tails: bool,
    /// Whether calls say what hooks cost in them.
    has_prices: bool,
    /// Whether `pending` or `jumped` is in use.
    has_loose_end: bool,
    functions: &'w mut Functions,
    places: &'w mut P,
    visitor: &'w mut V,
}

impl<'w, P: PlaceOf, V: Visitor> Walker<'w, P, V> {
    fn new(
        selection: Selection,
        functions: &'w mut Functions,
        places: &'w mut P,
        visitor: &'w mut V,
    ) -> Walker<'w, P, V> {
        let follows_tails = visitor.follows_tails();
        let has_prices = visitor.prices().is_some();
        Walker {
            selection,
            values: None,
            returned: None,
            begins: 0,
            stack: Vec::new(),
            states: None,
            inner_states: Vec::new(),
            bounding: None,
            call_bounds: None,
            before: None,
            pending: None,
            jumped: VecDeque::new(),
            follows_tails,
            has_prices,
            has_loose_end: false,
            functions,
            places,
            visitor,
        }
    }

    /// Processes the next events of a thread. [`Walker::untie`] follows the last ones.
    fn walk(&mut self, events: &[TimelineEvent], notes: &mut Notes) {
        for event in events {
            if let Some(bounding) = &mut self.bounding {
                self.call_bounds = bounding.event(event);
            }
            match event {
                TimelineEvent::Begin(begin) => self.begin(begin),
                TimelineEvent::End(end) => self.end(end),
                TimelineEvent::Untraced(untraced) => self.untraced(untraced),
                TimelineEvent::Gap(gap) => {
                    self.gap(gap);
                    notes.gap(gap);
                }
                TimelineEvent::Loss(loss) if self.selection.window().has(loss.at_ns) => {
                    notes.loss(loss);
                }
                TimelineEvent::Instant(instant) if self.selection.window().has(instant.at_ns) => {
                    notes.orphan_exits += 1
                }
                TimelineEvent::Loss(_)
                | TimelineEvent::Instant(_)
                | TimelineEvent::Mark(_)
                | TimelineEvent::Unstamped(_) => {}
                TimelineEvent::Returned(returned) => self.returned = Some(returned.result),
            }
        }
    }

    /// Before the first event: calls are open, outermost first.
    fn enter(&mut self, open: &[WholeCall]) {
        for call in open {
            self.before = call.jumped_from().map(|location| Before {
                place: self.places.get(location, self.functions),
                location,
                is_within: true,
            });
            // A thunk and its function are one call, which didn't come from elsewhere.
            let place = self.places.get(call.begin().location, self.functions);
            let is_of_thunk = self.before.as_ref().is_some_and(|before| {
                (before.place.thunk == Some(Thunk::This) || place.split == Split::Part)
                    && before.place.function == place.function
                    && before.location != call.begin().location
            });
            let tail_call = if is_of_thunk { TailCall::No } else { call.begin().tail_call };
            if let Some(bounding) = &mut self.bounding {
                bounding.enter(call.begin().start_ns);
            }
            self.begin(&Begin { tail_call, ..*call.begin() });
            self.is_whole(call);
        }
        self.before = None;
    }

    /// The sums of all of the innermost call's callees are known.
    fn is_whole(&mut self, call: &WholeCall) {
        if let Some(open) = self.stack.last_mut() {
            open.rare.get_or_insert_default().whole = Some(Inner::of(call));
        }
    }

    /// Behind the last event that is read: the calls that are open, outermost first, end later.
    fn leave(&mut self, open: &[WholeCall]) {
        for call in open.iter().rev() {
            self.is_whole(call);
            let Some(end) = call.end() else { continue };
            self.end(&end);
            if let Some(location) = call.jumps_to().filter(|_| self.has_loose_end) {
                let place = self.places.get(location, self.functions);
                self.tie(&Begin { location, tail_call: TailCall::Yes, ..*call.begin() }, place);
            }
        }
        self.untie();
    }

    #[inline]
    fn begin(&mut self, begin: &Begin) {
        let place = self.places.get(begin.location, self.functions);
        let mut rare = if self.has_loose_end { self.tie(begin, place) } else { None };
        let mut is_led_to = false;
        if let Some(around) = self.stack.last()
            && (around.place.thunk == Some(Thunk::Result) || place.split == Split::Part)
        {
            is_led_to = around.place.function == place.function && around.location != begin.location;
        }
        if place.split == Split::Part && self.follows_tails && begin.tail_call == TailCall::Yes {
            // The call that jumped here waits for the end of this one, and has its time.
            is_led_to |= self.before.as_ref().is_some_and(|before| {
                before.place.function == place.function && before.location != begin.location
            });
        }
        let is_within = self.selection.begin(place.matches, begin.start_ns);
        if self.values.is_some() {
            self.tell_label(&mut rare);
        }
        if begin.arguments.is_some() {
            rare.get_or_insert_default().arguments = begin.arguments;
        }
        self.begins += 1;
        if self.states.is_some() {
            self.inner_states.push(StateTimes::default());
        }
        if is_within {
            let is_of_thunk = rare.as_ref().is_some_and(|rare| rare.thunk.is_some());
            let jumped = begin.tail_call == TailCall::Yes && !is_of_thunk;
            let from = if jumped { self.before.as_ref().map(|before| before.place.function) } else { None };
            self.visitor.begin(place.function, from, self.functions);
        }
        let location = begin.location;
        let inner_hooks = HookTime::default();
        self.stack.push(Open { place, location, inner_ns: 0, inner_hooks, is_led_to, is_within, rare });
    }

    /// Connects a call that begins with the one that ended right before it.
    #[cold]
    fn tie(&mut self, begin: &Begin, place: Place) -> Option<Box<Rare>> {
        self.has_loose_end = false;
        let waiting = if self.jumped.is_empty() { VecDeque::new() } else { self.arrive(begin.tail_call) };
        let thunk = if self.pending.is_some() { self.end_thunk(begin, place) } else { None };
        let is_rare = thunk.is_some() || !waiting.is_empty();
        is_rare.then(|| Box::new(Rare { thunk, waiting, ..Rare::default() }))
    }

    /// The call that ended last isn't connected with the next event.
    #[cold]
    fn untie(&mut self) {
        self.has_loose_end = false;
        if self.pending.is_some() {
            self.count_thunk();
        }
        self.tails_end(None, false);
    }

    #[cold]
    fn tell_label(&mut self, rare: &mut Option<Box<Rare>>) {
        let begins = self.begins;
        let labelled = self.values.as_mut().and_then(|places| places.next_if(|(place, _)| *place == begins));
        let around = self.stack.last().and_then(|open| open.rare.as_ref()?.label);
        let in_force = labelled.map(|(_, value)| value).or(around);
        self.visitor.label(in_force);
        if in_force.is_some() {
            rare.get_or_insert_default().label = in_force;
        }
    }

    #[inline]
    fn end(&mut self, end: &End) {
        if self.has_loose_end {
            self.untie();
        }
        let result = self.returned.take();
        let Some(open) = self.stack.pop() else { return };
        let whole = open.rare.as_ref().and_then(|rare| rare.whole);
        let states = if self.states.is_some() { self.states_of(end, whole) } else { None };
        let index = self.stack.len();
        let duration = end.end_ns.saturating_sub(end.start_ns);
        let hooks = if self.has_prices { self.hooks_of(end, &open) } else { HookTime::default() };
        if let Some(around) = self.stack.last_mut() {
            around.inner_ns = around.inner_ns.saturating_add(duration);
        }
        self.selection.end();
        let Open { place, location, is_within, .. } = open;
        // Only what follows a jump needs it.
        self.before = (end.how == EndKind::Jumped).then_some(Before { place, location, is_within });
        let (mut suspended_ns, mut thunk, mut inner_ns) = (0, None, open.inner_ns);
        let mut arguments = None;
        if let Some(rare) = open.rare {
            (suspended_ns, thunk, arguments) = (rare.suspended_ns, rare.thunk, rare.arguments);
            if !rare.waiting.is_empty() {
                self.tail_ends(rare.waiting, end);
            }
        }
        if let Some(whole) = whole {
            (inner_ns, suspended_ns) = (whole.inner_ns, whole.suspended_ns);
        }
        if !is_within {
            return;
        }
        let (thunk_ns, thunk_shown) = thunk.unwrap_or_default();
        let mut call = EndedCall {
            function: place.function,
            depth: index as u32,
            start_ns: end.start_ns,
            end_ns: end.end_ns,
            own_ns: duration.saturating_sub(inner_ns).saturating_sub(suspended_ns),
            suspended_ns,
            thunk_ns: 0,
            hooks,
            how: end.how,
            start_cut: end.start_cut,
            is_shown: self.selection.window().shows(end.start_ns, end.end_ns),
            counts: !open.is_led_to,
            goes_on: false,
            values: CallValues { arguments, result },
        };
        if thunk_shown {
            // The thunk's call, which was not counted yet.
            call.thunk_ns = thunk_ns;
        }
        let may_go_on = place.split == Split::Whole && !self.follows_tails;
        let may_go_on = may_go_on || place.thunk == Some(Thunk::This);
        if may_go_on && end.how == EndKind::Jumped && call.counts {
            call.counts = false;
            self.pending = Some(Pending { call, is_within });
            self.has_loose_end = true;
        }
        call.goes_on = self.follows_tails && end.how == EndKind::Jumped && call.counts;
        if let Some(states) = states.filter(|_| suspended_ns == 0) {
            let (is_shown, goes_on) = (call.is_shown, call.goes_on);
            self.visitor.states(&CallStates { is_shown, goes_on, ..states });
        }
        if let Some(mut bounds) = self.call_bounds.take() {
            let own_ns = call.own_ns;
            bounds.own = match whole {
                // Not all of it was read.
                Some(_) => Bars::exact(own_ns),
                None => {
                    Bars { low: bounds.own.low.min(own_ns), value: own_ns, high: bounds.own.high.max(own_ns) }
                }
            };
            self.visitor.bounds(&bounds, &call);
        }
        self.visitor.end(&call);
        if call.goes_on {
            self.has_loose_end = true;
            self.jumped.push_back(Waiting {
                token: self.visitor.token(),
                start_ns: call.start_ns.saturating_sub(call.thunk_ns),
                end_ns: call.end_ns,
                start_cut: call.start_cut,
                is_shown: call.is_shown,
                is_at_most: false,
            });
            if self.jumped.len() > WAITING_MAX
                && let Some(first) = self.jumped.pop_front()
            {
                let end_ns = first.end_ns;
                self.tell_tail(&first, end_ns, true);
            }
        }
    }

    /// Cost of hooks in the call that ended. Its caller is charged for their cost outside of it.
    fn hooks_of(&mut self, end: &End, open: &Open) -> HookTime {
        let Some(prices) = self.visitor.prices() else { return HookTime::default() };
        let around = self.stack.last_mut().map(|around| &mut around.inner_hooks);
        prices.of_ended((open.location, end), open.inner_hooks, around)
    }

    /// The thread states of the call that ended.
    #[cold]
    fn states_of(&mut self, end: &End, whole: Option<Inner>) -> Option<CallStates> {
        let total = self.states?.times(end.start_ns, end.end_ns);
        let inner = self.inner_states.pop()?;
        let inner = whole.and_then(|whole| whole.states).unwrap_or(inner);
        if let Some(around) = self.inner_states.last_mut() {
            around.add_all(&total);
        }
        Some(CallStates { total, own: total.without(&inner), ..CallStates::default() })
    }

    /// A call begins after a tail call: takes over the calls that wait for it, if it is the jump's
    /// target.
    #[cold]
    fn arrive(&mut self, tail_call: TailCall) -> VecDeque<Waiting> {
        if tail_call == TailCall::No {
            self.tails_end(None, false);
        }
        let mut waiting = std::mem::take(&mut self.jumped);
        waiting.iter_mut().for_each(|call| call.is_at_most |= tail_call == TailCall::Perhaps);
        waiting
    }

    /// The target of a tail call has ended.
    #[cold]
    fn tail_ends(&mut self, waiting: VecDeque<Waiting>, end: &End) {
        self.jumped = waiting;
        self.has_loose_end = true;
        let is_truncated = match end.how {
            EndKind::Jumped => return,
            EndKind::Returned | EndKind::Unwound => false,
            _ => true,
        };
        self.tails_end(Some(end.end_ns), is_truncated);
    }

    /// Ends the calls that wait for a tail call's target: at `end_ns`, or where they jumped if the
    /// end is unknown.
    fn tails_end(&mut self, end_ns: Option<u64>, is_truncated: bool) {
        while let Some(call) = self.jumped.pop_front() {
            let end_ns = end_ns.unwrap_or(call.end_ns);
            self.tell_tail(&call, end_ns, is_truncated);
        }
    }

    fn tell_tail(&mut self, call: &Waiting, end_ns: u64, is_truncated: bool) {
        self.visitor.tail_ended(
            call.token,
            &WithTail {
                duration_ns: end_ns.saturating_sub(call.start_ns),
                is_at_most: call.is_at_most,
                is_truncated: is_truncated || call.start_cut,
                is_shown: call.is_shown,
                states: self.states.map(|states| states.times(call.start_ns, end_ns)),
            },
        );
    }

    /// Resolves a thunk that jumped: a following call of its function is the same call. Returns the
    /// thunk's duration in that case.
    #[cold]
    fn end_thunk(&mut self, begin: &Begin, place: Place) -> Option<(u64, bool)> {
        let pending = self.pending.as_ref()?;
        let before = self.before.as_ref()?;
        let leads_there = begin.tail_call == TailCall::Yes
            && (before.place.thunk.is_some() || place.split == Split::Part)
            && before.place.function == place.function
            && before.location != begin.location;
        if !leads_there {
            self.count_thunk();
            return None;
        }
        let call = pending.call;
        self.pending = None;
        Some((call.duration_ns(), call.is_shown))
    }

    /// Counts a thunk as a call of its own, because its function's call didn't follow.
    #[cold]
    fn count_thunk(&mut self) {
        let Some(Pending { call, is_within }) = self.pending.take() else { return };
        if is_within {
            // Its time was counted already.
            let start_ns = call.end_ns;
            let thunk_ns = call.duration_ns();
            self.visitor.begin(call.function, None, self.functions);
            let hooks = HookTime::default();
            self.visitor.end(&EndedCall { start_ns, own_ns: 0, thunk_ns, hooks, counts: true, ..call });
        }
    }

    #[cold]
    fn gap(&mut self, gap: &Gap) {
        if gap.why == GapKind::Suspended
            && let Some(open) = self.stack.last_mut()
        {
            // Its thread ran another stack meanwhile.
            let suspended_ns = &mut open.rare.get_or_insert_default().suspended_ns;
            *suspended_ns = suspended_ns.saturating_add(gap.until_ns.saturating_sub(gap.at_ns));
        }
    }

    #[cold]
    fn untraced(&mut self, untraced: &Untraced) {
        if !self.jumped.is_empty() {
            self.jumped.iter_mut().for_each(|call| call.is_at_most = true);
            self.tails_end(Some(untraced.until_ns), false);
        }
        let Some(before) = self.before.as_ref().filter(|before| before.is_within) else { return };
        if self.selection.window().shows(untraced.at_ns, untraced.until_ns) {
            let at_most = untraced.until_ns.saturating_sub(untraced.at_ns);
            self.visitor.untraced(before.place.function, at_most);
        }
    }
}

#[cfg(test)]
mod stretches;

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_timeline::Location;

    use crate::profile::explain::Explanation;
    use crate::profile::focus::Focus;
    use crate::profile::functions::{Function, FunctionIdentity};
    use crate::profile::group::{Grouping, Key};
    use crate::profile::slowest::Slowest;
    use crate::profile::sums::Sums;
    use crate::profile::table::{Cells, Table};

    /// Functions at multiples of ten in the address space.
    struct ByTens<'t>(&'t dyn Fn(u64) -> Option<Thunk>);

    impl PlaceOf for ByTens<'_> {
        fn get(&mut self, location: Location, functions: &mut Functions) -> Place {
            let name = (location.image_address / 10).to_string();
            let identity = FunctionIdentity { name, ..FunctionIdentity::default() };
            let function = functions.number(Function::of(identity));
            Place { function, thunk: (self.0)(location.image_address), split: Split::No, matches: true }
        }
    }

    const NOTHING: Filter = Filter {
        pids: Vec::new(),
        tids: Vec::new(),
        since_ns: None,
        since_wall: None,
        until_wall: None,
        until_ns: None,
        last_ns: None,
        min_duration_ns: 0,
        function: None,
        label: None,
        values: None,
        depth: None,
        call: None,
    };

    /// The sums of the function with this name.
    fn sums(
        events: &[TimelineEvent],
        filter: &Filter,
        thunk: &dyn Fn(u64) -> Option<Thunk>,
        name: &str,
    ) -> Sums {
        sums_of(Cells::default(), events, filter, thunk, name)
    }

    /// The sums of the function with this name, including tail calls.
    fn sums_with_tails(events: &[TimelineEvent], name: &str) -> Sums {
        let mut cells = Cells::default();
        cells.follows_tails = true;
        sums_of(cells, events, &NOTHING, &|_| None, name)
    }

    fn sums_of(
        mut cells: Cells,
        events: &[TimelineEvent],
        filter: &Filter,
        thunk: &dyn Fn(u64) -> Option<Thunk>,
        name: &str,
    ) -> Sums {
        let mut functions = Functions::default();
        let mut table = Table::new(&mut cells, &Grouping::Function, 0, Vec::new());
        let (mut places, window) = (
            ByTens(thunk),
            Window::new(filter, (filter.since_ns.unwrap_or(0), filter.until_ns.unwrap_or(u64::MAX))),
        );
        let mut walker = Walker::new(Selection::new(window, None), &mut functions, &mut places, &mut table);
        walker.walk(events, &mut Notes::default());
        walker.untie();
        assert!(walker.stack.is_empty());
        let is_it = |key: &Key| match key {
            Key::Function(number) => functions.get(*number).is_some_and(|it| it.identity.name == name),
            _ => false,
        };
        cells.all.iter().find(|cell| is_it(&cell.key)).map(|cell| cell.sums.clone()).unwrap_or_default()
    }

    fn at(image_address: u64) -> Location {
        Location { module: 0, image_address }
    }

    fn begin_by(address: u64, start_ns: u64, tail_call: TailCall) -> TimelineEvent {
        let location = at(address);
        let begin = Begin {
            depth: 0,
            location,
            start_ns,
            cut: false,
            tail_call,
            caller_unsure: false,
            arguments: None,
        };
        TimelineEvent::Begin(begin)
    }

    fn begin(address: u64, start_ns: u64) -> TimelineEvent {
        begin_by(address, start_ns, TailCall::No)
    }

    fn end_by(address: u64, start_ns: u64, end_ns: u64, how: EndKind) -> TimelineEvent {
        TimelineEvent::End(End { depth: 0, location: at(address), start_ns, end_ns, how, start_cut: false })
    }

    fn end(address: u64, start_ns: u64, end_ns: u64) -> TimelineEvent {
        end_by(address, start_ns, end_ns, EndKind::Returned)
    }

    #[test]
    fn own_time_leaves_out_what_was_called() {
        let events =
            [begin(10, 0), begin(20, 10), end(20, 10, 40), begin(20, 50), end(20, 50, 60), end(10, 0, 100)];
        let of = |name| sums(&events, &NOTHING, &|_| None, name);
        assert_eq!((of("1").calls, of("1").total_ns, of("1").own_ns), (1, 100, 60));
        assert_eq!((of("2").calls, of("2").total_ns, of("2").own_ns), (2, 40, 40));
        assert_eq!((of("2").times.min(), of("2").times.max()), (Some(10), Some(30)));

        // Functions at 10 and 13 are clones.
        for inner in [10, 13] {
            let recursive = [begin(10, 0), begin(inner, 10), end(inner, 10, 40), end(10, 0, 100)];
            let sum = sums(&recursive, &NOTHING, &|_| None, "1");
            assert_eq!((sum.calls, sum.total_ns, sum.own_ns), (2, 100, 100));
            assert_eq!(sum.times.sum(), 130);
        }
    }

    #[test]
    fn what_is_filtered_out_is_still_no_own_time_of_its_caller() {
        let events = [begin(10, 0), begin(20, 10), end(20, 10, 40), end(10, 0, 100)];
        for filter in [
            Filter { depth: Some(1), ..NOTHING },
            Filter { min_duration_ns: 50, ..NOTHING },
            Filter { since_ns: Some(50), ..NOTHING },
            Filter { until_ns: Some(5), ..NOTHING },
        ] {
            assert_eq!(sums(&events, &filter, &|_| None, "2").calls, 0);
            let of = sums(&events, &filter, &|_| None, "1");
            assert_eq!((of.calls, of.total_ns, of.own_ns), (1, 100, 70), "{filter:?}");
        }
    }

    #[test]
    fn truncated_calls_count_but_have_no_duration() {
        for how in [
            EndKind::TruncatedAtEnd,
            EndKind::TruncatedAtLoss,
            EndKind::TruncatedAtGap,
            EndKind::ExitLost,
            EndKind::ReturnedAfterGap,
        ] {
            let sum = sums(&[begin(10, 0), end_by(10, 0, 100, how)], &NOTHING, &|_| None, "1");
            assert_eq!((sum.calls, sum.truncated, sum.total_ns, sum.times.count()), (1, 1, 100, 0));
        }
        let late = sums(&[begin(10, 0), end_by(10, 0, 9, EndKind::UnwoundLate)], &NOTHING, &|_| None, "1");
        assert_eq!((late.calls, late.unwound, late.ended_earlier, late.times.count()), (1, 1, 1, 0));
        let unwound = sums(&[begin(10, 0), end_by(10, 0, 9, EndKind::Unwound)], &NOTHING, &|_| None, "1");
        assert_eq!((unwound.calls, unwound.unwound, unwound.truncated, unwound.times.count()), (1, 1, 0, 1));
    }

    #[test]
    fn a_thunk_and_its_function_are_one_call() {
        let first = |address: u64| (address == 11).then_some(Thunk::This);
        let jumped =
            |tail| [begin(11, 0), end_by(11, 0, 2, EndKind::Jumped), begin_by(10, 2, tail), end(10, 2, 10)];
        let one = sums(&jumped(TailCall::Yes), &NOTHING, &first, "1");
        assert_eq!((one.calls, one.total_ns, one.own_ns, one.tail_calls), (1, 10, 10, 0));
        assert_eq!((one.times.count(), one.times.max()), (1, Some(10)));
        let two = sums(&jumped(TailCall::Perhaps), &NOTHING, &first, "1");
        assert_eq!((two.calls, two.total_ns, two.own_ns, two.times.min()), (2, 10, 10, Some(2)));
        // No event follows the thunk.
        let alone = [begin(20, 0), begin(11, 1), end_by(11, 1, 3, EndKind::Jumped), end(20, 0, 5)];
        let alone = sums(&alone, &NOTHING, &first, "1");
        assert_eq!((alone.calls, alone.total_ns, alone.own_ns, alone.times.max()), (1, 2, 2, Some(2)));
        // A thunk that adjusts the result.
        let around = |address: u64| (address == 11).then_some(Thunk::Result);
        let events = [begin(11, 0), begin(10, 2), end(10, 2, 8), end(11, 0, 10)];
        let inside = sums(&events, &NOTHING, &around, "1");
        assert_eq!((inside.calls, inside.total_ns, inside.own_ns), (1, 10, 10));
        assert_eq!((inside.times.count(), inside.times.max()), (1, Some(10)));
    }

    #[test]
    fn suspended_time_is_not_own_time() {
        let gap = Gap { at_ns: 20, until_ns: 50, why: GapKind::Suspended, resumed_by: None };
        let events = [begin(10, 0), TimelineEvent::Gap(gap), end(10, 0, 100)];
        let sum = sums(&events, &NOTHING, &|_| None, "1");
        assert_eq!((sum.total_ns, sum.own_ns), (100, 70));
    }

    #[test]
    fn time_behind_a_jump_into_what_is_not_traced_is_kept_apart() {
        let untraced = Untraced { at_ns: 10, until_ns: 60, exit: at(10) };
        let events = [
            begin(20, 0),
            begin(10, 0),
            end_by(10, 0, 10, EndKind::Jumped),
            TimelineEvent::Untraced(untraced),
            end(20, 0, 60),
        ];
        let sum = sums(&events, &NOTHING, &|_| None, "1");
        assert_eq!((sum.total_ns, sum.untraced_at_most_ns, sum.tail_calls), (10, 50, 1));
        let long = Filter { min_duration_ns: 55, ..NOTHING };
        assert_eq!(sums(&events, &long, &|_| None, "1").untraced_at_most_ns, 0);
    }

    #[test]
    fn with_tail_calls_a_call_goes_on_until_what_it_jumped_to_ends() {
        let jump = |address, start_ns, end_ns| end_by(address, start_ns, end_ns, EndKind::Jumped);
        // 1 jumps to 2, which calls 1 and jumps to 3; then 1 jumps to untraced code.
        let events = [
            begin(90, 0),
            begin(10, 10),
            jump(10, 10, 20),
            begin_by(20, 20, TailCall::Yes),
            begin(10, 25),
            end(10, 25, 30),
            jump(20, 20, 40),
            begin_by(30, 40, TailCall::Yes),
            end(30, 40, 70),
            begin(10, 100),
            jump(10, 100, 103),
            TimelineEvent::Untraced(Untraced { at_ns: 103, until_ns: 150, exit: at(10) }),
            end(90, 0, 200),
        ];
        let one = sums_with_tails(&events, "1");
        // The call in the first call's tail is within it.
        assert_eq!((one.calls, one.total_ns, one.own_ns, one.tail_calls), (3, 60 + 50, 10 + 5 + 3, 2));
        assert_eq!((one.times.count(), one.times.sum(), one.at_most), (3, 60 + 5 + 50, 1));
        let two = sums_with_tails(&events, "2");
        assert_eq!((two.calls, two.total_ns, two.own_ns, two.times.max()), (1, 50, 15, Some(50)));
        assert_eq!(sums_with_tails(&events, "3").total_ns, 30);
        assert_eq!(sums_with_tails(&events, "9").own_ns, 200 - 10 - 20 - 30 - 3);
        // Without tail calls: as `replay` shows them.
        let slices = sums(&events, &NOTHING, &|_| None, "1");
        assert_eq!((slices.total_ns, slices.times.sum(), slices.untraced_at_most_ns), (18, 18, 47));

        // The target of the jump, and its end, are unknown.
        let lost = [begin(10, 0), jump(10, 0, 5), begin(20, 9), end(20, 9, 12)];
        assert_eq!(sums_with_tails(&lost, "1").total_ns, 5);
        let cut = [
            begin(10, 0),
            jump(10, 0, 5),
            begin_by(20, 5, TailCall::Yes),
            end_by(20, 5, 9, EndKind::TruncatedAtEnd),
        ];
        let cut = sums_with_tails(&cut, "1");
        assert_eq!((cut.calls, cut.truncated, cut.total_ns, cut.times.count()), (1, 1, 9, 0));
        let perhaps = [begin(10, 0), jump(10, 0, 5), begin_by(20, 5, TailCall::Perhaps), end(20, 5, 9)];
        assert_eq!(sums_with_tails(&perhaps, "1").at_most, 1);
    }

    /// With tail calls, what slow calls did is theirs also after their jumps.
    #[test]
    fn slow_calls_are_listed_and_explained_with_their_tail_calls() {
        let jump = |address, start_ns, end_ns| end_by(address, start_ns, end_ns, EndKind::Jumped);
        // Function 1 jumps to 2, which calls 1 and jumps to 3; returns; jumps to untraced code.
        let events = [
            begin(90, 0),
            begin(10, 10),
            begin(40, 12),
            end(40, 12, 15),
            jump(10, 10, 20),
            begin_by(20, 20, TailCall::Yes),
            begin(10, 25),
            end(10, 25, 30),
            jump(20, 20, 40),
            begin_by(30, 40, TailCall::Yes),
            end(30, 40, 400),
            begin(10, 500),
            end(10, 500, 510),
            begin(10, 600),
            jump(10, 600, 603),
            TimelineEvent::Untraced(Untraced { at_ns: 603, until_ns: 650, exit: at(10) }),
            end(90, 0, 700),
        ];
        let is_meant = |function: &Function| function.identity.name == "1";
        let window = Window::new(&NOTHING, (0, u64::MAX));
        let mut functions = Functions::default();

        let mut slowest = Slowest::new(Focus::new(&is_meant), 10).with_tails(true);
        let name = String::new();
        slowest.thread(&Thread { process: 0, pid: 1, tid: 1, name, dropped: 0, is_sampled: false });
        let mut places = ByTens(&|_| None);
        let mut walker = Walker::new(Selection::new(window, None), &mut functions, &mut places, &mut slowest);
        walker.walk(&events, &mut Notes::default());
        walker.untie();
        let calls = slowest.calls();
        let facts = calls.iter().map(|call| (call.duration_ns(), call.has_tail, call.is_at_most));
        let expected = [(390, true, false), (50, true, true), (10, false, false), (5, false, false)];
        assert_eq!(facts.collect::<Vec<_>>(), expected);

        let mut explanation = Explanation::new(Focus::new(&is_meant)).with_tails(true);
        for pass in 0..2 {
            if pass == 1 {
                assert_eq!((explanation.times.count(), explanation.times.max()), (3, Some(390)));
                explanation.begin_second();
            }
            let mut places = ByTens(&|_| None);
            let mut walker =
                Walker::new(Selection::new(window, None), &mut functions, &mut places, &mut explanation);
            walker.walk(&events, &mut Notes::default());
            walker.untie();
        }
        let of = |name: &str| {
            let is_it = |function: &Function| function.identity.name == name;
            let number = functions.all().iter().position(is_it).unwrap() as FunctionNumber;
            explanation.slow.called.get(&number).copied()
        };
        let slow = &explanation.slow;
        assert_eq!((slow.calls, slow.duration_ns, slow.own_ns, slow.tails_ns), (1, 390, 7, 0));
        assert_eq!((of("4"), of("2"), of("3")), (Some((3, 1)), Some((20, 1)), Some((360, 1))));
        let median = &explanation.median;
        assert_eq!((median.calls, median.duration_ns), (1, 50));
        assert_eq!((median.own_ns, median.tails_ns, median.at_most), (3, 47, 1));
    }

    #[test]
    fn what_hooks_cost_is_where_the_hooks_ran() {
        let hooks = |events: &[TimelineEvent], name| {
            let mut cells = Cells::default();
            cells.prices = Some(Prices::of_all(10_000, 4_000));
            let HookTime { own_ps, total_ps } = sums_of(cells, events, &NOTHING, &|_| None, name).hooks;
            (own_ps, total_ps)
        };
        // 1 calls 2 twice, once with 3 in it.
        let tree = [
            begin(10, 0),
            begin(20, 10),
            begin(30, 20),
            end(30, 20, 30),
            end(20, 10, 40),
            begin(20, 50),
            end(20, 50, 60),
            end(10, 0, 100),
        ];
        assert_eq!(hooks(&tree, "1"), (10_000 + 2 * 4_000, 10_000 + 3 * 14_000));
        assert_eq!(hooks(&tree, "2"), (2 * 10_000 + 4_000, 2 * 10_000 + 14_000));
        assert_eq!(hooks(&tree, "3"), (10_000, 10_000));
        // Recursion counts once.
        let recursive = [begin(10, 0), begin(10, 10), end(10, 10, 40), end(10, 0, 100)];
        assert_eq!(hooks(&recursive, "1"), (2 * 10_000 + 4_000, 10_000 + 14_000));
        // A call without an exit has run one hook, and so has its caller.
        let cut = [begin(10, 0), begin(20, 10), end_by(20, 10, 40, EndKind::Unwound), end(10, 0, 100)];
        assert_eq!(hooks(&cut, "2"), (5_000, 5_000));
        assert_eq!(hooks(&cut, "1"), (10_000 + 2_000, 10_000 + 7_000));
    }

    #[test]
    fn chains_of_jumps_take_no_more_memory_than_they_may() {
        let count = 3 * WAITING_MAX as u64;
        let mut events = Vec::new();
        for at in 0..count {
            events.push(begin_by(10, at, if at == 0 { TailCall::No } else { TailCall::Yes }));
            let how = if at + 1 == count { EndKind::Returned } else { EndKind::Jumped };
            events.push(end_by(10, at, at + 1, how));
        }
        let sum = sums_with_tails(&events, "1");
        assert_eq!((sum.calls, sum.own_ns), (count, count));
        assert_eq!(sum.truncated + sum.times.count(), count);
        assert_eq!(sum.times.count(), WAITING_MAX as u64 + 1);
    }
}
