//! The conditions of a filter, for the walk over the calls of a thread
//! ([`Calls`](everycall_calls::Calls)).

use everycall_calls::Window;
use everycall_timeline::{Mark, MarkKind, TimelineEvent, ValuesNumber};

use crate::filter::{Filter, LabelPattern, ValueCondition};
use crate::source::Source;

impl Filter {
    /// The window in the times of `source`.
    #[must_use]
    pub fn window(&self, source: &impl Source) -> Window {
        let min_duration_ns = source.duration(self.min_duration_ns);
        Window { min_duration_ns, ..self.window_within(self.bounds(source)) }
    }

    /// The conditions for a trace that is in nanoseconds. `bounds` are the first and the last
    /// moment.
    #[must_use]
    pub fn window_within(&self, (since_ns, until_ns): (u64, u64)) -> Window {
        Window {
            since_ns,
            until_ns,
            min_duration_ns: self.min_duration_ns,
            depth: self.depth.map_or(usize::MAX, |depth| depth as usize),
            selects: self.function.is_some()
                || self.label.is_some()
                || self.values.is_some()
                || self.call.is_some(),
        }
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
