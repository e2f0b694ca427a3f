//! The adaptor that passes on what a [`Filter`](crate::filter::Filter) shows of one thread.
//!
//! It delays calls that may still turn out too short or too early. Their number is bounded by the
//! nesting depth, whatever the length of the trace. Other events wait behind them, up to a limit.

use std::collections::{BTreeMap, VecDeque};

use everycall_timeline::{
    Bars, Begin, End, EndKind, Gap, GapKind, InstantKind, Intervals, LossKind, Mark, MarkKind, TailCall,
    TimelineEvent,
};
use rustc_hash::FxHashSet;

use crate::filter::Filter;
use crate::names::{FunctionId, Functions};
use crate::off_cpu::OffCpu;
use crate::source::{Correcting, Source};
use everycall_calls::Window;
use everycall_calls::{CallValues, Calls};

/// Above this number of points behind a pending call, equal ones are merged.
const PENDING_POINTS_MAX: usize = 1024;
/// Largest number of labels, spans and gaps behind a pending call; further ones are counted.
const PENDING_MARKS_MAX: usize = 4096;

/// An event that passed: like [`TimelineEvent`], with functions numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Begin {
        function: FunctionId,
        start_ns: u64,
        start: Start,
    },
    End {
        function: FunctionId,
        start_ns: u64,
        end_ns: u64,
        start: Start,
        how: EndKind,
    },
    Point(Point),
    Mark(Mark),
    Gap(Gap),
    /// A suspension shorter than the minimum duration: not shown, and not own time of its call.
    ShortSuspension(Gap),
    Untraced(UntracedSlice),
    OffCpu(OffCpu),
}

/// Time after a tail call into untraced code: [`everycall_timeline::Untraced`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UntracedSlice {
    pub(crate) function: FunctionId,
    pub(crate) at_ns: u64,
    pub(crate) until_ns: u64,
}

/// An empty placeholder that no output shows.
impl Default for Event {
    fn default() -> Event {
        Event::Point(Point { at_ns: 0, count: None, kind: PointKind::LeftOut })
    }
}

impl Event {
    /// When it happened.
    #[inline]
    pub(crate) fn at_ns(&self) -> u64 {
        match self {
            Event::Begin { start_ns, .. } => *start_ns,
            Event::End { end_ns, .. } => *end_ns,
            Event::Point(point) => point.at_ns,
            Event::Mark(mark) => mark.at_ns,
            Event::Gap(gap) | Event::ShortSuspension(gap) => gap.at_ns,
            Event::Untraced(slice) => slice.at_ns,
            Event::OffCpu(off) => off.at_ns,
        }
    }
}

/// Attributes of a call's begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// It began before the recorded range.
    pub(crate) cut: bool,
    /// Whether it is uncertain that the enclosing call made it.
    pub(crate) caller_unsure: bool,
    pub(crate) tail: Option<Tail>,
    pub(crate) values: CallValues,
}

/// The tail call that made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The function that jumped.
    pub(crate) of: FunctionId,
    /// Whether the target of the jump is known.
    pub(crate) is_sure: bool,
}

/// Something without a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at_ns: u64,
    /// The count; `None` if unknown.
    pub(crate) count: Option<u64>,
    pub(crate) kind: PointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// Events were lost.
    Lost(LossKind),
    /// An orphan exit.
    OrphanExit(FunctionId),
    /// Marks and gaps that were omitted because of the limit.
    LeftOut,
    /// Short calls that were dropped while the thread was recorded.
    Dropped,
}

/// Facts of an open call that outputs need.
#[derive(Clone, Copy)]
struct Shown {
    function: FunctionId,
    tail: Option<Tail>,
    state: State,
    /// Whether one of its labels is pending.
    labelled: bool,
}

impl Shown {
    /// The call as the event of its begin shows it.
    #[inline]
    fn start(&self, begin: &Begin) -> Start {
        let Begin { cut, caller_unsure, arguments, .. } = *begin;
        let values = CallValues { arguments, result: None };
        Start { cut, caller_unsure, tail: self.tail, values }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Hidden,
    /// Passed so far, but it must still last long enough, or until the window begins.
    Pending,
    Shown,
}

#[derive(Clone, Copy)]
enum Pending {
    /// Index in the stack.
    Call(usize),
    Point(Point),
    Gap(Gap),
    Untraced(UntracedSlice),
    Mark(Mark),
    /// A label of the call at this index in the stack.
    Label(usize, Mark),
}

#[cold]
fn put(shown: Option<Event>, out: &mut Event) -> bool {
    if let Some(shown) = shown {
        *out = shown;
    }
    shown.is_some()
}

impl Filter {
    /// The events that are shown of the thread at `index` in `source`.
    pub(crate) fn apply<'s, S: Source>(
        &self,
        source: &'s S,
        index: usize,
        window: Window,
    ) -> Filtered<'s, impl Iterator<Item = TimelineEvent> + use<'s, S>> {
        let calls = Calls::new(window, self.chosen(source, || source.events(index)));
        Filtered::new(source.events(index), calls, source.correcting())
    }
}

/// Applies a filter to one thread's events.
pub(crate) struct Filtered<'s, I> {
    events: I,
    calls: Calls<Shown>,
    /// Open spans that began before the window.
    early: BTreeMap<u32, Mark>,
    /// Open spans whose begin was passed on.
    spans: FxHashSet<u32>,
    /// In the order of time; enclosing calls come first.
    pending: VecDeque<Pending>,
    held_calls: usize,
    held_marks: usize,
    shown: usize,
    /// An event that waits until pending ones have been passed on.
    waiting: Option<TimelineEvent>,
    intervals: Intervals,
    correcting: Option<Box<dyn Correcting + 's>>,
    /// The duration of the call that ended last, if it isn't known exactly, or is corrected.
    bars: Option<Bars>,
}

impl<'s, I: Iterator<Item = TimelineEvent>> Filtered<'s, I> {
    fn new(events: I, calls: Calls<Shown>, correcting: Option<Box<dyn Correcting + 's>>) -> Self {
        Filtered {
            events,
            calls,
            early: BTreeMap::new(),
            spans: FxHashSet::default(),
            pending: VecDeque::new(),
            held_calls: 0,
            held_marks: 0,
            shown: 0,
            waiting: None,
            intervals: Intervals::default(),
            correcting,
            bars: None,
        }
    }

    /// The duration of the call whose end [`Filtered::next`] returned last, if it isn't known
    /// exactly.
    #[inline]
    pub(crate) fn bars(&self) -> Option<Bars> {
        self.bars
    }

    /// Puts the next event that is shown into `out`; `false` if there is none. Each field is stored
    /// where it is read: a copy of the whole would wait for them.
    #[inline]
    pub(crate) fn next(&mut self, functions: &mut Functions<'_>, out: &mut Event) -> bool {
        loop {
            let is_waiting = self.waiting.is_some();
            let event = if is_waiting { self.waiting.take() } else { self.events.next() };
            let Some(event) = event else { return put(self.release(0), out) };
            if !is_waiting {
                self.bars = match &mut self.correcting {
                    None => self.intervals.event(&event),
                    Some(correcting) => correcting.event(&event),
                };
            }
            let reached_ns = match event {
                TimelineEvent::Gap(gap) => gap.until_ns,
                TimelineEvent::Untraced(untraced) => untraced.until_ns,
                _ => event.at_ns(),
            };
            if !self.early.is_empty() && reached_ns >= self.calls.window().since_ns {
                self.admit_early();
            }
            if !self.pending.is_empty()
                && let Some(released) = self.release(reached_ns)
            {
                self.waiting = Some(event);
                return put(Some(released), out);
            }
            let shown = match event {
                TimelineEvent::Begin(begin) => {
                    if begin.start_ns > self.calls.window().until_ns
                        && self.shown + self.held_calls == 0
                        && self.spans.is_empty()
                        && self.early.is_empty()
                    {
                        return false;
                    }
                    let function = functions.id(begin.location);
                    let matches = functions.pattern_matches(function);
                    if self.begin(function, matches, &begin, out) {
                        return true;
                    }
                    continue;
                }
                TimelineEvent::End(end) => {
                    if self.end(&end, out) {
                        return true;
                    }
                    continue;
                }
                TimelineEvent::Unstamped(_) => continue,
                TimelineEvent::Returned(returned) => {
                    self.calls.returned(&returned);
                    continue;
                }
                TimelineEvent::Loss(loss) => self.point(Point {
                    at_ns: loss.at_ns,
                    count: loss.count,
                    kind: PointKind::Lost(loss.why),
                }),
                TimelineEvent::Instant(instant) => match instant.kind {
                    InstantKind::OrphanExit(location) | InstantKind::InferredOrphanExit(location) => {
                        let kind = PointKind::OrphanExit(functions.id(location));
                        self.point(Point { at_ns: instant.at_ns, count: Some(1), kind })
                    }
                },
                TimelineEvent::Mark(mark) => self.mark(mark),
                TimelineEvent::Gap(gap) => self.gap(gap),
                TimelineEvent::Untraced(untraced) => match self.calls.untraced(&untraced) {
                    None => None,
                    Some(_) => self.in_order(Pending::Untraced(UntracedSlice {
                        function: functions.untraced(untraced.exit),
                        at_ns: untraced.at_ns,
                        until_ns: untraced.until_ns,
                    })),
                },
            };
            if put(shown, out) {
                return true;
            }
        }
    }

    #[inline]
    fn begin(&mut self, function: FunctionId, matches: bool, begin: &Begin, out: &mut Event) -> bool {
        let tail = match begin.tail_call {
            TailCall::No => None,
            how => self.calls.jumped().map(|by| Tail { of: by.of.function, is_sure: how == TailCall::Yes }),
        };
        let window = self.calls.window();
        let has_lasted = window.min_duration_ns == 0 && window.since_ns <= begin.start_ns;
        let state = if has_lasted { State::Shown } else { State::Pending };
        let shown = Shown { function, tail, state, labelled: false };
        let index = self.calls.open().len();
        if !self.calls.begin(begin, matches, shown) {
            if let Some(shown) = self.calls.of_mut(index) {
                shown.state = State::Hidden;
            }
            return false;
        }
        if state == State::Pending {
            self.pending.push_back(Pending::Call(index));
            self.held_calls += 1;
            return false;
        }
        self.shown += 1;
        *out = Event::Begin { function, start_ns: begin.start_ns, start: shown.start(begin) };
        true
    }

    #[inline]
    fn end(&mut self, end: &End, out: &mut Event) -> bool {
        let Some(call) = self.calls.end(end) else { return false };
        match call.of.state {
            State::Hidden => false,
            State::Pending => {
                // The innermost of the pending calls. Points that wait around it stay.
                let at = self.pending.iter().rposition(|pending| matches!(pending, Pending::Call(_)));
                at.map(|at| self.pending.remove(at));
                self.held_calls -= 1;
                if call.of.labelled {
                    self.drop_labels();
                }
                false
            }
            State::Shown => {
                self.shown -= 1;
                let Shown { function, tail, .. } = call.of;
                let (cut, caller_unsure, values) = (call.start_cut, call.caller_unsure, call.values);
                *out = Event::End {
                    function,
                    start_ns: call.start_ns,
                    end_ns: call.end_ns,
                    start: Start { cut, caller_unsure, tail, values },
                    how: call.how,
                };
                true
            }
        }
    }

    /// Removes the labels of the innermost call, which was just dropped.
    #[cold]
    fn drop_labels(&mut self) {
        let dropped = self.calls.open().len();
        let before = self.pending.len();
        self.pending.retain(|pending| !matches!(pending, Pending::Label(call, _) if *call == dropped));
        self.held_marks -= before - self.pending.len();
    }

    fn mark(&mut self, mark: Mark) -> Option<Event> {
        match mark.kind {
            MarkKind::Throw | MarkKind::Catch if !self.calls.window().has(mark.at_ns) => None,
            MarkKind::Label | MarkKind::Throw | MarkKind::Catch if !self.calls.open().is_empty() => {
                let index = self.calls.open().len() - 1;
                let call = self.calls.of_mut(index)?;
                match call.state {
                    State::Hidden => None,
                    State::Shown => self.in_order(Pending::Mark(mark)),
                    State::Pending => {
                        call.labelled = true;
                        self.in_order(Pending::Label(index, mark))
                    }
                }
            }
            MarkKind::SpanBegin { span, .. } => {
                if mark.at_ns > self.calls.window().until_ns || !self.calls.is_selected() {
                    None
                } else if mark.at_ns < self.calls.window().since_ns {
                    self.early.insert(span, mark);
                    None
                } else if self.held_marks < PENDING_MARKS_MAX {
                    self.spans.insert(span);
                    self.in_order(Pending::Mark(mark))
                } else {
                    self.left_out(mark.at_ns)
                }
            }
            MarkKind::SpanEnd { span, .. } => {
                self.early.remove(&span);
                if !self.spans.remove(&span) {
                    return None;
                }
                if self.pending.is_empty() {
                    return Some(Event::Mark(mark));
                }
                // Its begin was passed on or will be.
                self.held_marks += 1;
                self.pending.push_back(Pending::Mark(mark));
                None
            }
            MarkKind::Label
            | MarkKind::Instant
            | MarkKind::Wake
            | MarkKind::Step
            | MarkKind::Throw
            | MarkKind::Catch
            | MarkKind::Counter
            | MarkKind::CounterReal
            | MarkKind::Log
            | MarkKind::Output(_)
            | MarkKind::OrphanSpanEnd => {
                if self.calls.window().has(mark.at_ns) && self.calls.is_selected() {
                    self.in_order(Pending::Mark(mark))
                } else {
                    None
                }
            }
        }
    }

    fn gap(&mut self, gap: Gap) -> Option<Event> {
        if !self.calls.window().overlaps(gap.at_ns, gap.until_ns) {
            return None;
        }
        // No loss: it is shown like calls.
        if gap.why == GapKind::Suspended && !self.calls.is_selected() {
            return None;
        }
        self.in_order(Pending::Gap(gap))
    }

    fn gap_event(&self, gap: Gap) -> Event {
        let is_short = gap.until_ns.saturating_sub(gap.at_ns) < self.calls.window().min_duration_ns;
        if is_short && gap.why == GapKind::Suspended { Event::ShortSuspension(gap) } else { Event::Gap(gap) }
    }

    /// Passes on a mark or gap, after pending events.
    fn in_order(&mut self, pending: Pending) -> Option<Event> {
        let (event, at_ns) = match pending {
            Pending::Mark(mark) | Pending::Label(_, mark) => (Event::Mark(mark), mark.at_ns),
            Pending::Gap(gap) => (self.gap_event(gap), gap.at_ns),
            Pending::Untraced(slice) => (Event::Untraced(slice), slice.at_ns),
            Pending::Call(_) | Pending::Point(_) => return None,
        };
        if self.pending.is_empty() {
            return Some(event);
        }
        if self.held_marks >= PENDING_MARKS_MAX {
            return self.left_out(at_ns);
        }
        self.held_marks += 1;
        self.pending.push_back(pending);
        None
    }

    /// Counts a mark or gap that exceeds the limit.
    #[cold]
    fn left_out(&mut self, at_ns: u64) -> Option<Event> {
        self.postpone_point(Point { at_ns, count: Some(1), kind: PointKind::LeftOut })
    }

    /// The window has begun: inserts the open spans among the pending events.
    #[cold]
    fn admit_early(&mut self) {
        let mut early = std::mem::take(&mut self.early).into_iter().peekable();
        let pending = std::mem::take(&mut self.pending);
        self.held_marks += early.len();
        for pending in pending {
            let at_ns = match pending {
                Pending::Call(index) => self.calls.open()[index].begin.start_ns,
                Pending::Point(point) => point.at_ns,
                Pending::Mark(mark) | Pending::Label(_, mark) => mark.at_ns,
                Pending::Gap(gap) => gap.at_ns,
                Pending::Untraced(slice) => slice.at_ns,
            };
            while let Some((span, mark)) = early.next_if(|(_, mark)| mark.at_ns < at_ns) {
                self.spans.insert(span);
                self.pending.push_back(Pending::Mark(mark));
            }
            self.pending.push_back(pending);
        }
        for (span, mark) in early {
            self.spans.insert(span);
            self.pending.push_back(Pending::Mark(mark));
        }
    }

    fn point(&mut self, point: Point) -> Option<Event> {
        if self.calls.window().has(point.at_ns) { self.postpone_point(point) } else { None }
    }

    fn postpone_point(&mut self, point: Point) -> Option<Event> {
        if self.pending.is_empty() {
            return Some(Event::Point(point));
        }
        if self.pending.len() - self.held_calls - self.held_marks >= PENDING_POINTS_MAX
            && let Some(sum) = self.pending.iter_mut().rev().find_map(|pending| match pending {
                Pending::Point(pending) if pending.kind == point.kind => Some(&mut pending.count),
                _ => None,
            })
        {
            *sum = sum.zip(point.count).map(|(sum, count)| sum.saturating_add(count));
        } else {
            self.pending.push_back(Pending::Point(point));
        }
        None
    }

    /// The first pending event, if it is known at `now_ns` that it is shown.
    fn release(&mut self, now_ns: u64) -> Option<Event> {
        match *self.pending.front()? {
            Pending::Point(point) => {
                self.pending.pop_front();
                Some(Event::Point(point))
            }
            Pending::Mark(mark) | Pending::Label(_, mark) => {
                self.pending.pop_front();
                self.held_marks -= 1;
                Some(Event::Mark(mark))
            }
            Pending::Gap(gap) => {
                self.pending.pop_front();
                self.held_marks -= 1;
                Some(self.gap_event(gap))
            }
            Pending::Untraced(slice) => {
                self.pending.pop_front();
                self.held_marks -= 1;
                Some(Event::Untraced(slice))
            }
            Pending::Call(index) => {
                let begin = self.calls.open()[index].begin;
                // It has begun within the window, and lasts until now.
                let window = self.calls.window();
                let lasted = now_ns >= window.since_ns
                    && now_ns.saturating_sub(begin.start_ns) >= window.min_duration_ns;
                if !lasted {
                    return None;
                }
                let call = self.calls.of_mut(index)?;
                call.state = State::Shown;
                let (function, start) = (call.function, call.start(&begin));
                self.pending.pop_front();
                self.held_calls -= 1;
                self.shown += 1;
                Some(Event::Begin { function, start_ns: begin.start_ns, start })
            }
        }
    }
}

#[cfg(test)]
mod tests;
