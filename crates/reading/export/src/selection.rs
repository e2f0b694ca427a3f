//! The calls of a thread that a filter selects. [`Calls`](crate::calls::Calls) asks here, so that
//! each condition is written once.
//!
//! A call is *selected* by what is known when it begins: its function, the labels and the place
//! that it or a call around it has, its depth, and that it begins within the window. Whether a
//! selected call is *shown* depends on how long it took, which is known when it ends:
//! [`Window::shows`].

use std::iter::Peekable;

use everycall_timeline::{Mark, MarkKind, TimelineEvent, ValuesNumber};

use crate::filter::{Filter, LabelPattern, ValueCondition};
use crate::source::Source;

/// The conditions on single calls, in the times of a source.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The first moment.
    pub since_ns: u64,
    /// The last moment.
    pub until_ns: u64,
    /// Shortest duration.
    pub min_duration_ns: u64,
    /// Largest number of levels.
    pub depth: usize,
    /// Whether only some calls with all of their callees are selected.
    pub selects: bool,
}

impl Window {
    /// The conditions of a filter for a trace that is in nanoseconds. `bounds` are the first and
    /// the last moment.
    #[must_use]
    pub fn new(filter: &Filter, (since_ns, until_ns): (u64, u64)) -> Window {
        Window {
            since_ns,
            until_ns,
            min_duration_ns: filter.min_duration_ns,
            depth: filter.depth.map_or(usize::MAX, |depth| depth as usize),
            selects: filter.function.is_some()
                || filter.label.is_some()
                || filter.values.is_some()
                || filter.call.is_some(),
        }
    }

    /// Whether a selected call with these times is shown.
    #[must_use]
    #[inline]
    pub fn shows(&self, start_ns: u64, end_ns: u64) -> bool {
        self.overlaps(start_ns, end_ns) && end_ns.saturating_sub(start_ns) >= self.min_duration_ns
    }

    /// Whether some moment between these lies in the window.
    #[must_use]
    #[inline]
    pub fn overlaps(&self, start_ns: u64, end_ns: u64) -> bool {
        start_ns <= self.until_ns && end_ns >= self.since_ns
    }

    /// Whether a moment lies in the window.
    #[must_use]
    #[inline]
    pub fn has(&self, at_ns: u64) -> bool {
        (self.since_ns..=self.until_ns).contains(&at_ns)
    }

    /// Whether everything that has a time lies in it.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        (self.since_ns, self.until_ns) == (0, u64::MAX)
    }
}

/// Which of a thread's calls are selected, as they begin and end.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    window: Window,
    /// Number of open calls.
    open: usize,
    /// Number of begins so far.
    begins: u64,
    /// Positions of the calls that the filter chooses one by one; `None` if it doesn't.
    chosen: Option<Peekable<std::vec::IntoIter<u64>>>,
    /// Index of the outermost open call whose function matches the pattern.
    outermost_match: Option<usize>,
    /// Index of the outermost open call that is chosen.
    outermost_chosen: Option<usize>,
}

impl Selection {
    /// Before the first event of a thread. `chosen` are the positions of the calls that
    /// [`Filter::chosen`] gives.
    pub(crate) fn new(window: Window, chosen: Option<Vec<u64>>) -> Selection {
        Selection {
            window,
            open: 0,
            begins: 0,
            chosen: chosen.map(|calls| calls.into_iter().peekable()),
            outermost_match: None,
            outermost_chosen: None,
        }
    }

    /// The conditions.
    #[inline]
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// A call begins; `matches` says whether its function matches the filter's pattern. Returns
    /// whether the call is selected.
    #[inline]
    pub(crate) fn begin(&mut self, matches: bool, start_ns: u64) -> bool {
        let index = self.open;
        self.open += 1;
        if self.window.selects {
            self.note_begin(matches, index);
        }
        self.is_in_tree(index) && start_ns <= self.window.until_ns
    }

    /// The innermost call ends.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.window.selects {
            let open = self.open;
            self.outermost_match = self.outermost_match.filter(|outermost| *outermost < open);
            self.outermost_chosen = self.outermost_chosen.filter(|outermost| *outermost < open);
        }
    }

    /// Whether something that isn't a call, and happens now, is selected, whatever its time.
    pub(crate) fn is_selected(&self) -> bool {
        !self.window.selects || self.outermost().is_some()
    }

    fn note_begin(&mut self, matches: bool, index: usize) {
        if matches && self.outermost_match.is_none() {
            self.outermost_match = Some(index);
        }
        let begins = self.begins;
        self.begins += 1;
        let is_chosen = self.chosen.as_mut().is_none_or(|calls| calls.next_if_eq(&begins).is_some());
        if is_chosen && self.outermost_chosen.is_none() {
            self.outermost_chosen = Some(index);
        }
    }

    /// Whether the call at this index is selected, apart from its time.
    #[inline]
    fn is_in_tree(&self, index: usize) -> bool {
        let depth = self.window.depth;
        match self.window.selects {
            true => self.outermost().is_some_and(|outermost| index - outermost < depth),
            false => index < depth,
        }
    }

    /// Index of the call with which a tree of selected calls begins.
    #[inline]
    fn outermost(&self) -> Option<usize> {
        self.outermost_match.zip(self.outermost_chosen).map(|(by_name, by_choice)| by_name.max(by_choice))
    }
}

impl Filter {
    /// The window in the times of `source`.
    #[must_use]
    pub fn window(&self, source: &impl Source) -> Window {
        let min_duration_ns = source.duration(self.min_duration_ns);
        Window { min_duration_ns, ..Window::new(self, self.bounds(source)) }
    }

    /// The calls of a thread that the filter chooses one by one, by their position among its begins
    /// in `events`; `None` if it doesn't choose any.
    #[must_use]
    pub fn chosen<I>(&self, source: &impl Source, events: impl Fn() -> I) -> Option<Vec<u64>>
    where
        I: Iterator<Item = TimelineEvent>,
    {
        if let Some(call) = self.call {
            return Some(call.position(events()).into_iter().collect());
        }
        let labelled = self.label.as_ref().map(|LabelPattern { name, value }| {
            let wanted = |of: &str, it: Option<u64>| of == name && (value.is_none() || it == *value);
            let labelled = labelled_calls(source, events(), wanted);
            labelled.into_iter().map(|(position, _)| position).collect::<Vec<u64>>()
        });
        let met = self.values.as_ref().map(|condition| calls_with_values(source, events(), condition));
        match (labelled, met) {
            (Some(labelled), Some(met)) => {
                Some(labelled.into_iter().filter(|position| met.binary_search(position).is_ok()).collect())
            }
            (labelled, met) => labelled.or(met),
        }
    }
}

/// The calls of a thread whose values meet a condition, by their position among its begins, in
/// order. The result is known at a call's end, so this needs a pass of its own.
fn calls_with_values(
    source: &impl Source,
    events: impl Iterator<Item = TimelineEvent>,
    condition: &ValueCondition,
) -> Vec<u64> {
    let mut found = Vec::new();
    // Position and arguments.
    let mut open: Vec<(u64, Option<ValuesNumber>)> = Vec::new();
    let (mut begins, mut returned) = (0, None);
    let mut look = |(position, arguments): (u64, Option<ValuesNumber>), result: Option<ValuesNumber>| {
        if arguments.is_some() || result.is_some() {
            let numbers = arguments.into_iter().chain(result);
            let values: Vec<_> = numbers.flat_map(|number| source.values(number)).collect();
            if condition.holds(&values) {
                found.push(position);
            }
        }
    };
    for event in events {
        match event {
            TimelineEvent::Begin(begin) => {
                open.push((begins, begin.arguments));
                begins += 1;
            }
            TimelineEvent::Returned(it) => returned = Some(it.result),
            TimelineEvent::End(_) => {
                if let Some(call) = open.pop() {
                    look(call, returned.take());
                }
            }
            _ => {}
        }
    }
    open.into_iter().for_each(|call| look(call, None));
    found.sort_unstable();
    found
}

/// The calls of a thread that carry a label, by their position among its begins, with the label's
/// first value. A label is set after its call has begun, so this needs a pass of its own.
pub fn labelled_calls(
    source: &impl Source,
    events: impl Iterator<Item = TimelineEvent>,
    wanted: impl Fn(&str, Option<u64>) -> bool,
) -> Vec<(u64, Option<u64>)> {
    let mut found = Vec::new();
    // Position, and whether it was found.
    let mut open: Vec<(u64, bool)> = Vec::new();
    let mut begins = 0;
    for event in events {
        match event {
            TimelineEvent::Begin(_) => {
                open.push((begins, false));
                begins += 1;
            }
            TimelineEvent::End(_) => _ = open.pop(),
            TimelineEvent::Mark(Mark { kind: MarkKind::Label, name, value, .. }) => {
                if let Some((position, known @ false)) = open.last_mut()
                    && wanted(source.mark_name(name), value)
                {
                    *known = true;
                    found.push((*position, value));
                }
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found
}
