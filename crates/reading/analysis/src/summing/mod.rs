//! Traces as sources of calls for profiles: their events, their functions, and what they have
//! counted.
//!
//! ```text
//! places     functions at locations
//! stretch    the part of a thread that a range needs
//! by_value   the values by which calls are grouped
//! counted    calls that were counted;  counted_values, memory: by value, and what they allocated
//! ```

mod by_value;
mod counted;
mod counted_values;
mod memory;
mod places;
mod stretch;

use everycall_export::{
    Filter, Source as _, Thread, ValuesNumber, Window, apart, arguments_json, arguments_text, labelled_calls,
    result_json, result_text,
};
use everycall_profile::{
    CallSource, Counts, Events, Grouping, NoPrices, Notes, Part, Prices, Range, ValueGroups, ValueOf,
    ValueText, Wanted,
};
use everycall_timeline::{PairingStats, ThreadEvents, TimelineEvent};

use crate::corrected::prices_of;
use crate::view::TraceView;
use by_value::ByValue;
pub use counted::{AllCalls, all_calls};
pub use places::FunctionFinder;
use places::Places;
pub use stretch::{Stretch, Stretches};

/// A thread's events for a profile.
pub struct EventsOf<'v>(ThreadEvents<'v>);

impl Events for EventsOf<'_> {
    #[inline]
    fn next_some(&mut self) -> &[TimelineEvent] {
        self.0.next_some()
    }

    fn stats(&self) -> PairingStats {
        self.0.stats()
    }
}

impl CallSource for TraceView<'_> {
    type Filter = Filter;
    type Events<'s>
        = EventsOf<'s>
    where
        Self: 's;
    type Places<'s>
        = Places<'s>
    where
        Self: 's;

    fn threads_of_calls(&self) -> &[Thread] {
        self.threads()
    }

    fn process_names(&self) -> Vec<String> {
        self.processes().iter().map(|process| process.name.clone()).collect()
    }

    fn admits(&self, thread: usize, filter: &Filter) -> bool {
        self.threads().get(thread).is_some_and(|thread| filter.admits_thread(thread))
    }

    fn window(&self, filter: &Filter) -> Window {
        filter.window(self)
    }

    fn places<'s>(&'s self, filter: &'s Filter, by_symbol: bool) -> Places<'s> {
        Places::new(self, filter.function.as_ref(), by_symbol)
    }

    fn part(&self, thread: usize, filter: &Filter, wanted: Wanted<'_>) -> Part<'_, EventsOf<'_>> {
        let is_whole = wanted.is_whole || filter.label.is_some() || filter.values.is_some();
        let stretch = if is_whole { None } else { stretch(self, thread, filter) };
        let whole = || self.timeline(self.trace_index(thread).unwrap_or(usize::MAX));
        let events = || stretch.as_ref().and_then(|stretch| self.timeline_of(thread, stretch));
        let before = stretch.as_ref().map_or(0, |stretch| stretch.before.len() as u64);
        let chosen = match filter.call {
            Some(_) => filter.chosen(self, || events().unwrap_or_else(whole)),
            // Of a label that the trace adds, too.
            None => filter.chosen(self, || self.events_with_labels(thread)),
        };
        let labels = wanted
            .label
            .map(|label| labelled_calls(self, self.events_with_labels(thread), |name, _| name == label));
        let events = EventsOf(events().unwrap_or_else(whole));
        let stretch = stretch.map(|Stretch { before, end, notes, .. }| (before, end, notes));
        let (before_calls, end, notes) = match stretch {
            Some((before, end, notes)) => (before, end, Some(notes)),
            None => (Vec::new(), None, None),
        };
        Part {
            chosen: chosen.map(|calls| calls.into_iter().map(|position| position + before).collect()),
            labels,
            before: before_calls,
            end,
            notes,
            states: self.states(thread),
            has_bounds: self.trace().has_bounds(),
            ..Part::new(events)
        }
    }

    fn note_thread(&self, thread: usize, notes: &mut Notes) {
        let Some(of) = self.threads().get(thread).filter(|_| self.trace().counts().is_empty()) else {
            return;
        };
        notes.dropped_short = notes.dropped_short.saturating_add(of.dropped);
        notes.beginning_overwritten += u64::from(self.thread_info(thread).is_some_and(|info| info.is_cut));
    }

    fn trace_threads(&self) -> usize {
        self.trace().threads().len()
    }

    fn trace_thread(&self, thread: usize) -> Option<usize> {
        self.trace_index(thread)
    }

    fn is_stopped(&self) -> bool {
        TraceView::is_stopped(self)
    }

    fn hook_prices(&self) -> Result<(Prices, Range), NoPrices> {
        prices_of(self.trace())
    }

    fn has_memory(&self) -> bool {
        self.trace().memory().iter().any(|memory| memory.is_seen)
    }

    fn add_counts(&self, filter: &Filter, counts: &mut Counts<'_>) {
        counted::add(counts, self, filter);
        if let Grouping::Value(of) = counts.grouping {
            counted_values::add(counts, self, filter, of);
        }
        memory::add(counts, self, filter);
    }

    fn values_of(&self, of: &ValueOf) -> Option<Box<dyn ValueGroups + '_>> {
        Some(Box::new(ByValue::new(self, of)))
    }

    fn call_site(&self, values: ValuesNumber) -> Option<String> {
        apart(self.values(values)).1
    }

    fn value_text(&self, values: ValuesNumber, is_result: bool) -> Option<ValueText> {
        let (text, json) = match is_result {
            true => (result_text(self, values), result_json(self, values)),
            false => (arguments_text(self, values), arguments_json(self, values)),
        };
        self.has_values().then_some(ValueText { text, json })
    }
}

/// The stretch of a thread that must be read; `None` for all of it.
fn stretch(view: &TraceView<'_>, thread: usize, filter: &Filter) -> Option<Stretch> {
    let (stretches, window) = (view.stretches()?, filter.window(view));
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
