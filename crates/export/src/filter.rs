//! Which calls are shown.
//!
//! Every condition is about one call, and what passes all of them is shown. Nesting stays right because each
//! condition that a call passes is also passed by the calls around it, or (`function`, `depth`) concerns
//! whole subtrees:
//!
//! | option | a call is shown if |
//! |---|---|
//! | `tids` | it ran in one of these threads |
//! | `since_ns`, `until_ns`, `last_ns` | some moment of it lies in the window; it keeps its true begin and end |
//! | `min_duration_ns` | it took at least so long, as far as it was recorded |
//! | `function` | its function's name matches, or it was called from such a call, directly or not |
//! | `depth` | fewer than so many calls are around it; with `function`: from the outermost match inwards |
//!
//! What is left out here is no loss. Losses and stray exits are shown if they lie in the window.
//!
//! The adaptor holds back calls that may yet prove too short or too early: as many as are nested in each
//! other at most, whatever the length of the trace.

use std::collections::VecDeque;

use everycall_timeline::{Begin, End, EndKind, InstantKind, LossKind, TimelineEvent};
use regex::Regex;

use crate::names::{FunctionId, Functions};
use crate::units::ParseError;

/// So many points wait behind a held call before equal ones are added up.
const HELD_POINTS_MAX: usize = 1024;

/// Which calls are shown; the default shows all. See the module's head for what each condition means.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Threads by the kernel's number; empty for all.
    pub tids: Vec<u32>,
    /// Begin of the window, in nanoseconds since the trace's origin.
    pub since_ns: Option<u64>,
    /// End of the window, in nanoseconds since the trace's origin; a call that begins right then is shown.
    pub until_ns: Option<u64>,
    /// The window begins so many nanoseconds before the end of the trace, or at `since_ns` if that is later.
    pub last_ns: Option<u64>,
    /// Shortest duration, in nanoseconds.
    pub min_duration_ns: u64,
    /// Pattern for demangled names; it matches anywhere in a name unless anchored.
    pub function: Option<Regex>,
    /// How many levels of nesting.
    pub depth: Option<u32>,
}

/// Reads a pattern for [`Filter::function`].
///
/// # Errors
///
/// Not a regular expression, or one that would take too much memory.
pub fn parse_function(text: &str) -> Result<Regex, ParseError> {
    Regex::new(text).map_err(|error| {
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let reason =
            format!("is not a regular expression: {what}; a backslash makes special characters plain");
        ParseError { text: text.to_owned(), reason }
    })
}

impl Filter {
    /// Whether calls of this thread may be shown.
    #[must_use]
    pub fn admits_thread(&self, tid: u32) -> bool {
        self.tids.is_empty() || self.tids.contains(&tid)
    }

    /// Fixes the window for a trace that ends at `end_ns`.
    pub(crate) fn window(&self, end_ns: u64) -> Window {
        let last = self.last_ns.map_or(0, |last_ns| end_ns.saturating_sub(last_ns));
        Window {
            since_ns: self.since_ns.unwrap_or(0).max(last),
            until_ns: self.until_ns.unwrap_or(u64::MAX),
            min_duration_ns: self.min_duration_ns,
            depth: self.depth.map_or(usize::MAX, |depth| depth as usize),
        }
    }
}

/// The conditions, with `last` resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    since_ns: u64,
    until_ns: u64,
    min_duration_ns: u64,
    depth: usize,
}

/// What passed: like [`TimelineEvent`], with functions numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Begin { function: FunctionId, start_ns: u64, cut: bool },
    End { function: FunctionId, start_ns: u64, end_ns: u64, start_cut: bool, how: EndKind },
    Point(Point),
}

/// Something without a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at_ns: u64,
    /// How many; none where nobody counted.
    pub(crate) count: Option<u64>,
    pub(crate) kind: PointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// Events are missing.
    Lost(LossKind),
    /// An exit that closes no call.
    StrayExit(FunctionId),
}

#[derive(Clone, Copy)]
struct Open {
    function: FunctionId,
    start_ns: u64,
    cut: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Hidden,
    /// Nothing forbids it, but it has yet to last long enough, or into the window.
    Held,
    Shown,
}

#[derive(Clone, Copy)]
enum Held {
    /// Index in the stack.
    Call(usize),
    Point(Point),
}

/// Applies a filter to one thread's events.
pub(crate) struct Filtered<I> {
    events: I,
    window: Window,
    stack: Vec<Open>,
    /// Index of the outermost open call that matches the pattern.
    outermost_match: Option<usize>,
    /// In the order of time; calls from the outside inwards.
    held: VecDeque<Held>,
    held_calls: usize,
    shown: usize,
    /// An event that must let held ones come out first.
    waiting: Option<TimelineEvent>,
}

impl<I: Iterator<Item = TimelineEvent>> Filtered<I> {
    pub(crate) fn new(events: I, window: Window) -> Self {
        Filtered {
            events,
            window,
            stack: Vec::new(),
            outermost_match: None,
            held: VecDeque::new(),
            held_calls: 0,
            shown: 0,
            waiting: None,
        }
    }

    /// The next event that is shown.
    #[inline]
    pub(crate) fn next(&mut self, functions: &mut Functions<'_>) -> Option<Event> {
        loop {
            let Some(event) = self.waiting.take().or_else(|| self.events.next()) else {
                return self.release(0);
            };
            if !self.held.is_empty()
                && let Some(released) = self.release(event.at_ns())
            {
                self.waiting = Some(event);
                return Some(released);
            }
            let shown = match event {
                TimelineEvent::Begin(Begin { location, start_ns, cut, .. }) => {
                    if start_ns > self.window.until_ns && self.shown + self.held_calls == 0 {
                        return None;
                    }
                    let function = functions.id(location);
                    self.begin(function, functions.get(function).matches, start_ns, cut)
                }
                TimelineEvent::End(End { end_ns, how, .. }) => self.end(end_ns, how),
                TimelineEvent::Loss(loss) => self.point(Point {
                    at_ns: loss.at_ns,
                    count: loss.count,
                    kind: PointKind::Lost(loss.why),
                }),
                TimelineEvent::Instant(instant) => match instant.kind {
                    InstantKind::OrphanExit(location) | InstantKind::UnmatchedExit(location) => {
                        let kind = PointKind::StrayExit(functions.id(location));
                        self.point(Point { at_ns: instant.at_ns, count: Some(1), kind })
                    }
                },
            };
            if shown.is_some() {
                return shown;
            }
        }
    }

    #[inline]
    fn begin(&mut self, function: FunctionId, matches: bool, start_ns: u64, cut: bool) -> Option<Event> {
        let index = self.stack.len();
        if matches && self.outermost_match.is_none() {
            self.outermost_match = Some(index);
        }
        let window = &self.window;
        let state = match self.outermost_match {
            Some(outermost) if index - outermost < window.depth && start_ns <= window.until_ns => {
                let lasted = window.min_duration_ns == 0 && window.since_ns <= start_ns;
                if lasted { State::Shown } else { State::Held }
            }
            _ => State::Hidden,
        };
        self.stack.push(Open { function, start_ns, cut, state });
        match state {
            State::Hidden => None,
            State::Held => {
                self.held.push_back(Held::Call(index));
                self.held_calls += 1;
                None
            }
            State::Shown => {
                self.shown += 1;
                Some(Event::Begin { function, start_ns, cut })
            }
        }
    }

    #[inline]
    fn end(&mut self, end_ns: u64, how: EndKind) -> Option<Event> {
        let Open { function, start_ns, cut, state } = self.stack.pop()?;
        if self.outermost_match == Some(self.stack.len()) {
            self.outermost_match = None;
        }
        match state {
            State::Hidden => None,
            State::Held => {
                // The innermost of those held. Points that wait around it stay.
                let at = self.held.iter().rposition(|held| matches!(held, Held::Call(_)));
                at.map(|at| self.held.remove(at));
                self.held_calls -= 1;
                None
            }
            State::Shown => {
                self.shown -= 1;
                Some(Event::End { function, start_ns, end_ns, start_cut: cut, how })
            }
        }
    }

    fn point(&mut self, point: Point) -> Option<Event> {
        if point.at_ns < self.window.since_ns || point.at_ns > self.window.until_ns {
            return None;
        }
        if self.held_calls == 0 {
            return Some(Event::Point(point));
        }
        if self.held.len() - self.held_calls >= HELD_POINTS_MAX
            && let Some(sum) = self.held.iter_mut().rev().find_map(|held| match held {
                Held::Point(held) if held.kind == point.kind => Some(&mut held.count),
                _ => None,
            })
        {
            *sum = sum.zip(point.count).map(|(sum, count)| sum.saturating_add(count));
        } else {
            self.held.push_back(Held::Point(point));
        }
        None
    }

    /// The first of the held events if at `now_ns` it is known to be shown.
    fn release(&mut self, now_ns: u64) -> Option<Event> {
        match *self.held.front()? {
            Held::Point(point) => {
                self.held.pop_front();
                Some(Event::Point(point))
            }
            Held::Call(index) => {
                let open = &mut self.stack[index];
                let lasted = now_ns >= self.window.since_ns
                    && now_ns.saturating_sub(open.start_ns) >= self.window.min_duration_ns;
                if !lasted {
                    return None;
                }
                open.state = State::Shown;
                self.held.pop_front();
                self.held_calls -= 1;
                self.shown += 1;
                Some(Event::Begin { function: open.function, start_ns: open.start_ns, cut: open.cut })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Calls;

    /// A small generator, so that a failure comes back with its seed.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }
    }

    fn random_calls(dice: &mut Dice) -> Calls {
        let mut calls = Calls::default();
        let (mut depth, mut now_ns) = (0, dice.roll(3));
        for _ in 0..dice.roll(60) {
            now_ns += dice.roll(4) * dice.roll(6);
            match dice.roll(9) {
                0..5 => {
                    calls.begin(dice.roll(5), now_ns);
                    depth += 1;
                }
                5..8 if depth > 0 => {
                    calls.end(now_ns);
                    depth -= 1;
                }
                _ => calls.loss(now_ns, 1 + dice.roll(3)),
            }
        }
        for _ in 0..depth {
            now_ns += dice.roll(4);
            calls.end(now_ns);
        }
        calls
    }

    fn random_filter(dice: &mut Dice) -> Filter {
        let mut maybe = |sides| (dice.roll(3) == 0).then(|| dice.roll(sides));
        Filter {
            tids: Vec::new(),
            since_ns: maybe(250),
            until_ns: maybe(250),
            last_ns: maybe(100),
            min_duration_ns: maybe(40).unwrap_or(0),
            function: maybe(5).map(|f| Regex::new(&format!("^f{f}$")).unwrap()),
            depth: maybe(4).map(|depth| depth as u32),
        }
    }

    /// Function, begin and end of calls; moment and count of losses.
    type Shown = (Vec<(u64, u64, u64)>, Vec<(u64, u64)>);

    /// The calls that the conditions in the table above let through, found by
    /// looking at whole calls; and the losses.
    fn expected(calls: &Calls, filter: &Filter, trace_end_ns: u64) -> Shown {
        let since_ns = filter
            .since_ns
            .unwrap_or(0)
            .max(filter.last_ns.map_or(0, |last| trace_end_ns.saturating_sub(last)));
        let until_ns = filter.until_ns.unwrap_or(u64::MAX);
        let mut open: Vec<Begin> = Vec::new();
        let (mut shown, mut losses) = (Vec::new(), Vec::new());
        for event in &calls.events {
            match event {
                TimelineEvent::Begin(begin) => open.push(*begin),
                TimelineEvent::End(end) => {
                    let name = |begin: &Begin| format!("f{}", begin.location.image_address);
                    let matches =
                        |begin: &Begin| filter.function.as_ref().is_none_or(|f| f.is_match(&name(begin)));
                    let around = open.iter().position(matches).map(|outermost| open.len() - 1 - outermost);
                    if around.is_some_and(|around| filter.depth.is_none_or(|depth| around < depth as usize))
                        && end.start_ns <= until_ns
                        && end.end_ns >= since_ns
                        && end.end_ns - end.start_ns >= filter.min_duration_ns
                    {
                        shown.push((end.location.image_address, end.start_ns, end.end_ns));
                    }
                    open.pop();
                }
                TimelineEvent::Loss(loss) if (since_ns..=until_ns).contains(&loss.at_ns) => {
                    losses.push((loss.at_ns, loss.count.unwrap()));
                }
                _ => {}
            }
        }
        (shown, losses)
    }

    #[test]
    fn filters_agree_with_looking_at_whole_calls() {
        for seed in 0..30_000 {
            let mut dice = Dice(seed);
            let calls = random_calls(&mut dice);
            let filter = random_filter(&mut dice);
            let trace_end_ns = calls.events.last().map_or(0, TimelineEvent::at_ns);
            let (mut shown, mut losses, mut open, mut now_ns) = (Vec::new(), Vec::new(), Vec::new(), 0);
            for event in calls.filtered_by(&filter, trace_end_ns) {
                let at_ns = match event {
                    Event::Begin { function, start_ns, .. } => {
                        open.push((function, start_ns));
                        start_ns
                    }
                    Event::End { function, start_ns, end_ns, .. } => {
                        assert_eq!(open.pop(), Some((function, start_ns)), "seed {seed}: nesting");
                        shown.push((calls.number_of(function), start_ns, end_ns));
                        end_ns
                    }
                    Event::Point(point) => {
                        losses.push((point.at_ns, point.count.unwrap()));
                        point.at_ns
                    }
                };
                assert!(at_ns >= now_ns, "seed {seed}: order");
                now_ns = at_ns;
            }
            assert!(open.is_empty(), "seed {seed}: balance");
            assert_eq!(
                (shown, losses),
                expected(&calls, &filter, trace_end_ns),
                "seed {seed}: {filter:?} {calls:#?}"
            );
        }
    }

    #[test]
    fn many_losses_behind_a_held_call_are_added_up_and_none_is_forgotten() {
        let mut calls = Calls::default();
        calls.begin(0, 10);
        (0..100_000).for_each(|at_ns| calls.loss(10 + at_ns, 2));
        calls.end(200_000);
        let filter = Filter { min_duration_ns: 150_000, ..Filter::default() };
        let events = calls.filtered_by(&filter, 200_000);
        assert!(events.len() <= HELD_POINTS_MAX + 2);
        assert!(matches!(events[0], Event::Begin { start_ns: 10, .. }));
        let sum: u64 = events
            .iter()
            .filter_map(|event| if let Event::Point(point) = event { point.count } else { None })
            .sum();
        assert_eq!(sum, 200_000);
    }

    #[test]
    fn patterns_that_are_none_are_told_why() {
        assert!(parse_function("^ns::f").unwrap().is_match("ns::f(int)"));
        let sentence = parse_function("f(int").unwrap_err().to_string();
        assert!(sentence.contains("`f(int`") && sentence.contains("unclosed group"), "{sentence}");
        assert!(parse_function("(((a{100}){100}){100}){100}").is_err());
    }
}
