//! The interface by which profiles read calls: implemented for traces, and for the data of a page.

use everycall_calls::{PairingStats, Thread, ThreadStates, TimelineEvent, ValuesNumber, Window};

use crate::counted::Counts;
use crate::functions::PlaceOf;
use crate::hooks::{NoPrices, Prices, Range};
use crate::notes::Notes;
use crate::stretch::{StretchNotes, WholeCall};
use crate::value_of::{ValueGroups, ValueOf, ValueText};

/// The events of a thread, in the order of time.
pub trait Events {
    /// The next ones; none after the last.
    fn next_some(&mut self) -> &[TimelineEvent];

    /// Counts of events that could not be used so far.
    fn stats(&self) -> PairingStats;
}

/// The needs of a profile, for one thread.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'l> {
    /// The label by whose value calls are grouped.
    pub label: Option<&'l str>,
    /// Whether all events must be read, also those outside of the filter's range.
    pub is_whole: bool,
}

/// The events of a thread that are read, with what is known of its calls beside them.
pub struct Part<'s, E> {
    /// The events.
    pub events: E,
    /// Positions of the calls that the filter chooses one by one, among the thread's begins; `None`
    /// if it doesn't.
    pub chosen: Option<Vec<u64>>,
    /// Positions of the calls that set the wanted label, with its values.
    pub labels: Option<Vec<(u64, Option<u64>)>>,
    /// The calls that are open before the first event, outermost first.
    pub before: Vec<WholeCall>,
    /// How many events are read, and the calls that are open behind them, outermost first; `None`
    /// if all are read.
    pub end: Option<(u64, Vec<WholeCall>)>,
    /// Losses in the whole thread, where only a part of it is read.
    pub notes: Option<StretchNotes>,
    /// Calls that don't have all of their callees among the events.
    pub reduced: Vec<ReducedCall>,
    /// When the kernel ran the thread.
    pub states: Option<&'s ThreadStates>,
    /// Whether events may have no times of their own.
    pub has_bounds: bool,
}

impl<E> Part<'_, E> {
    /// All of these events, of which nothing else is known.
    pub fn new(events: E) -> Self {
        Part {
            events,
            chosen: None,
            labels: None,
            before: Vec::new(),
            end: None,
            notes: None,
            reduced: Vec::new(),
            states: None,
            has_bounds: false,
        }
    }
}

/// A call some of whose callees, or suspensions, aren't among the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReducedCall {
    /// Its position among the begins.
    pub position: u64,
    /// Nanoseconds in all of its callees.
    pub inner_ns: u64,
    /// Nanoseconds in it, but not in its callees, in which its stack was suspended.
    pub suspended_ns: u64,
}

/// Calls that can be summed up.
pub trait CallSource {
    /// Which of them are meant; the default is all.
    type Filter: Default;
    /// The events of a thread.
    type Events<'s>: Events
    where
        Self: 's;
    /// The functions at their locations.
    type Places<'s>: PlaceOf
    where
        Self: 's;

    /// The threads, in the order in which they are shown.
    fn threads_of_calls(&self) -> &[Thread];

    /// Names of the processes of these threads.
    fn process_names(&self) -> Vec<String>;

    /// Whether calls of the thread with this index may be meant.
    fn admits(&self, thread: usize, filter: &Self::Filter) -> bool;

    /// The conditions on times and depth.
    fn window(&self, filter: &Self::Filter) -> Window;

    /// Finds functions. `by_symbol`: each linker name is one of its own.
    fn places<'s>(&'s self, filter: &'s Self::Filter, by_symbol: bool) -> Self::Places<'s>;

    /// The events to be read of the thread with this index.
    fn part(&self, thread: usize, filter: &Self::Filter, wanted: Wanted<'_>) -> Part<'_, Self::Events<'_>>;

    /// Notes what is known to be missing in a thread before its events are read.
    fn note_thread(&self, thread: usize, notes: &mut Notes) {
        let _ = (thread, notes);
    }

    /// How many threads the trace has.
    fn trace_threads(&self) -> usize {
        self.threads_of_calls().len()
    }

    /// The index in the trace of the thread with this index here.
    fn trace_thread(&self, thread: usize) -> Option<usize> {
        Some(thread)
    }

    /// Whether what is being computed is to end.
    fn is_stopped(&self) -> bool {
        false
    }

    /// The cost of hooks.
    ///
    /// # Errors
    ///
    /// Where that isn't known.
    fn hook_prices(&self) -> Result<(Prices, Range), NoPrices> {
        Err(NoPrices::Missing)
    }

    /// Whether it was seen what calls allocate.
    fn has_memory(&self) -> bool {
        false
    }

    /// Adds calls that were counted: instead of recording them, or beside that.
    fn add_counts(&self, filter: &Self::Filter, counts: &mut Counts<'_>) {
        let _ = (filter, counts);
    }

    /// Groups by a recorded value; `None` if there are no values.
    fn values_of(&self, of: &ValueOf) -> Option<Box<dyn ValueGroups + '_>> {
        let _ = of;
        None
    }

    /// The place that a call was made from, if its values have it.
    fn call_site(&self, values: ValuesNumber) -> Option<String> {
        let _ = values;
        None
    }

    /// The text of recorded arguments, or of a result; `None` if there are no values.
    fn value_text(&self, values: ValuesNumber, is_result: bool) -> Option<ValueText> {
        let _ = (values, is_result);
        None
    }
}
