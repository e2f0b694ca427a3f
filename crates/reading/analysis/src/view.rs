//! The timeline of a trace with pairings checked by symbols, in the form that outputs need.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everycall_export::{self as export, TraceSource};
use everycall_profile::{Correction, NoPrices, Prices};
use everycall_reader::KeptCall;
use everycall_timeline::{
    Checkpoint, Location, Mark, MarkKind, MarkName, PairingStats, Part, ThreadEvents, ThreadInfo,
    ThreadStates, TimelineEvent, Trace, WallClock,
};

use crate::budget::named_marks;
use crate::corrected::{WithoutHooks, prices_of};
use crate::names::SymbolNames;
use crate::summing::{Stretch, Stretches};
use crate::waits::Waits;

/// The timeline with jumps from the code. Symbols may reject a pairing of entry and exit. Calls
/// that triggers kept have a label with the number that `--kept` takes.
pub struct TraceView<'t> {
    trace: &'t Trace<'t>,
    source: TraceSource<'t>,
    names: &'t SymbolNames<'t>,
    /// By thread index in the trace.
    kept: Vec<Vec<KeptAt>>,
    /// Names of marks that refer to functions.
    named: BTreeMap<MarkName, String>,
    /// Looked up when events are read.
    waits: OnceCell<Waits>,
    times: export::Times<'t>,
    /// While it is set, threads have no more events.
    stop: Option<Arc<AtomicBool>>,
    stretches: Option<&'t dyn Stretches>,
    /// Cost of hooks, if durations are shown without it.
    hooks: Option<(Prices, Correction)>,
}

/// The name of the label of kept calls.
const KEPT: &str = "kept call";
/// Its number, which no name of the program can have.
const KEPT_NAME: MarkName = MarkName(u32::MAX);

/// The beginning of a kept call.
struct KeptAt {
    start_ns: u64,
    location: Location,
    number: u64,
}

fn kept_of(trace: &Trace<'_>, thread: &ThreadInfo) -> Vec<KeptAt> {
    let is_here = |call: &KeptCall| {
        call.process == thread.process && (call.tid == thread.tid || thread.fiber.is_some())
    };
    let kept = trace.kept_calls().iter().zip(1..).filter(|(call, _)| is_here(call));
    kept.filter_map(|(call, number)| {
        let location = trace.locate(call.process, call.offset?, call.start_ticks);
        Some(KeptAt { start_ns: trace.clock().ns(call.start_ticks), location, number })
    })
    .collect()
}

/// A thread's events, with the labels of its kept calls, and what labels of calls that wait refer
/// to.
pub struct LabelledEvents<'v> {
    events: ThreadEvents<'v>,
    /// The thread's index in the trace.
    thread: usize,
    kept: &'v [KeptAt],
    waits: &'v Waits,
    label: Option<Mark>,
    count: u64,
    stop: Option<&'v AtomicBool>,
}

impl LabelledEvents<'_> {
    /// How many events of the timeline were returned, labels that were added not counted.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.count
    }

    /// Statistics of events that could not be used so far; final when the iterator has ended.
    #[must_use]
    pub fn stats(&self) -> PairingStats {
        self.events.stats()
    }

    /// From now on, checkpoints are made now and then.
    pub fn make_checkpoints(&mut self) {
        self.events.make_checkpoints();
    }

    /// Whether no event so far came later than others that happened after it.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.events.is_in_order()
    }

    /// From now on, doesn't wait for events that come late: where it is known that there are none,
    /// the next events are there sooner.
    pub fn without_late(&mut self) {
        self.events.without_late();
    }

    /// A checkpoint directly before the event of the timeline that was returned last, if one was
    /// made there.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        self.events.take_checkpoint()
    }
}

impl Iterator for LabelledEvents<'_> {
    type Item = TimelineEvent;

    #[inline]
    fn next(&mut self) -> Option<TimelineEvent> {
        if let Some(label) = self.label.take() {
            return Some(TimelineEvent::Mark(label));
        }
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return None;
        }
        let event = self.events.next()?;
        self.count += 1;
        if !self.kept.is_empty()
            && let TimelineEvent::Begin(begin) = &event
        {
            let is_it = |kept: &&KeptAt| (kept.start_ns, kept.location) == (begin.start_ns, begin.location);
            self.label = self.kept.iter().find(is_it).map(|kept| Mark {
                at_ns: begin.start_ns,
                name: KEPT_NAME,
                value: Some(kept.number),
                kind: MarkKind::Label,
            });
        }
        if let TimelineEvent::Mark(mark) = &event {
            self.label = self.waits.of_label(self.thread, mark);
        }
        Some(event)
    }
}

impl<'t> TraceView<'t> {
    /// Creates a view of `trace` with names from `names`.
    pub fn new(trace: &'t Trace<'t>, names: &'t SymbolNames<'t>) -> TraceView<'t> {
        let kept = trace.threads().iter().map(|thread| kept_of(trace, thread)).collect();
        TraceView {
            trace,
            source: TraceSource::new(trace, None),
            names,
            kept,
            named: named_marks(trace, names),
            waits: OnceCell::new(),
            times: export::Times::Trace,
            stop: None,
            stretches: None,
            hooks: None,
        }
    }

    /// Shows moments in these times. Ticks need a trace that was opened in ticks.
    #[must_use]
    pub fn with_times(self, times: export::Times<'t>) -> TraceView<'t> {
        TraceView { times, ..self }
    }

    /// Shows calls without the cost of hooks in them.
    ///
    /// # Errors
    ///
    /// Where that isn't known.
    pub fn without_hooks(self) -> Result<TraceView<'t>, NoPrices> {
        let (prices, range) = prices_of(self.trace)?;
        Ok(TraceView { hooks: Some((prices, Correction::new(range))), ..self })
    }

    /// Ends the events of all threads once `stop` is set: the current computation ends soon and its
    /// result is invalid.
    #[must_use]
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> TraceView<'t> {
        TraceView { stop: Some(stop), ..self }
    }

    /// Lets profiles of ranges read only the stretches that they need.
    #[must_use]
    pub fn with_stretches(self, stretches: &'t dyn Stretches) -> TraceView<'t> {
        TraceView { stretches: Some(stretches), ..self }
    }

    pub(crate) fn stretches(&self) -> Option<&'t dyn Stretches> {
        self.stretches
    }

    /// Whether what is being computed is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Values with the names of the functions and variables that they point to.
    fn with_names_of(&self, values: Vec<(String, export::Value)>) -> Vec<(String, export::Value)> {
        let name = |value: &export::Value| export::name_of_value(self.trace, Some(self.names), value);
        values.into_iter().map(|(key, value)| (key, value.with_names(&name))).collect()
    }

    /// The trace that is viewed.
    pub fn trace(&self) -> &'t Trace<'t> {
        self.trace
    }

    /// The names that it uses.
    pub fn names(&self) -> &'t SymbolNames<'t> {
        self.names
    }

    /// Whether any label has this name.
    pub fn has_label(&self, name: &str) -> bool {
        name == KEPT && self.kept.iter().any(|kept| !kept.is_empty())
            || self.trace.mark_names().all().iter().any(|named| named.labels > 0 && named.name == name)
    }

    /// The timeline of the thread with this index in the trace.
    pub fn timeline(&self, thread: usize) -> ThreadEvents<'_> {
        self.trace.thread_events_checked(thread, Some(self.names))
    }

    /// The timeline from a stretch's begin on; `None` if the file can't be read there.
    pub(crate) fn timeline_of(&self, thread: usize, stretch: &Stretch) -> Option<ThreadEvents<'_>> {
        let mut events = self.timeline_from(thread, stretch.checkpoint.as_deref())?;
        if stretch.is_in_order && stretch.checkpoint.is_some() {
            events.without_late();
        }
        Some(events)
    }

    /// The timeline from a checkpoint or the begin on, of the thread with this index in
    /// [`Source::threads`](export::Source::threads); `None` if the file can't be read there.
    pub fn timeline_from(&self, thread: usize, checkpoint: Option<&Checkpoint>) -> Option<ThreadEvents<'_>> {
        let index = self.source.index(thread)?;
        match checkpoint {
            Some(checkpoint) => self.trace.thread_events_from(index, Some(self.names), checkpoint),
            None => Some(self.timeline(index)),
        }
    }

    /// The index in the trace of the thread with this index in [`Source::threads`](export::Source::threads).
    pub(crate) fn trace_index(&self, thread: usize) -> Option<usize> {
        self.source.index(thread)
    }

    /// The trace's facts about that thread.
    pub fn thread_info(&self, thread: usize) -> Option<&'t ThreadInfo> {
        self.trace.threads().get(self.trace_index(thread)?)
    }

    /// The events of the thread with this index in [`Source::threads`](export::Source::threads), as
    /// [`Source::events`](export::Source::events) has them.
    pub fn events_with_labels(&self, thread: usize) -> LabelledEvents<'_> {
        let index = self.source.index(thread).unwrap_or(usize::MAX);
        self.labelled(index, self.timeline(index))
    }

    /// The events of that thread with labels, from a checkpoint on; `None` if the file can't be
    /// read there.
    pub fn events_from(&self, thread: usize, checkpoint: &Checkpoint) -> Option<LabelledEvents<'_>> {
        let index = self.source.index(thread)?;
        Some(self.labelled(index, self.timeline_from(thread, Some(checkpoint))?))
    }

    /// How many parts of that thread can be read alone; 0 if none can.
    pub fn parts(&self, thread: usize) -> usize {
        self.source.index(thread).map_or(0, |index| self.trace.parts(index))
    }

    /// When one of these parts begins: [`Trace::part_begin`].
    pub fn part_begin(&self, thread: usize, part: usize) -> Option<u64> {
        self.trace.part_begin(self.source.index(thread)?, part)
    }

    /// Some of these parts: [`Trace::part`].
    pub fn part(&self, thread: usize, parts: Range<usize>) -> Option<Part<'_>> {
        self.trace.part(self.source.index(thread)?, Some(self.names), parts)
    }

    fn labelled<'v>(&'v self, index: usize, events: ThreadEvents<'v>) -> LabelledEvents<'v> {
        LabelledEvents {
            events,
            thread: index,
            kept: self.kept.get(index).map_or(&[], Vec::as_slice),
            waits: self.waits.get_or_init(|| Waits::of(self.trace, self.names)),
            label: None,
            count: 0,
            stop: self.stop.as_deref(),
        }
    }
}

impl export::Source for TraceView<'_> {
    fn processes(&self) -> &[export::Process] {
        self.source.processes()
    }

    fn threads(&self) -> &[export::Thread] {
        self.source.threads()
    }

    fn end_ns(&self) -> u64 {
        self.source.end_ns()
    }

    fn last_event_ns(&self) -> u64 {
        self.source.last_event_ns()
    }

    fn has_bounds(&self) -> bool {
        self.source.has_bounds()
    }

    fn is_corrected(&self) -> bool {
        self.hooks.is_some()
    }

    fn correcting(&self) -> Option<Box<dyn export::Correcting + '_>> {
        let (prices, correction) = self.hooks.as_ref()?;
        Some(Box::new(WithoutHooks::new(prices, *correction)))
    }

    fn mark_name(&self, name: export::MarkName) -> &str {
        match self.named.get(&name) {
            Some(named) => named,
            None if name == KEPT_NAME => KEPT,
            None => {
                let of_waits = self.waits.get().and_then(|waits| waits.text(name));
                of_waits.unwrap_or_else(|| self.source.mark_name(name))
            }
        }
    }

    fn has_values(&self) -> bool {
        self.source.has_values()
    }

    fn values(&self, number: export::ValuesNumber) -> Vec<(String, export::Value)> {
        self.with_names_of(self.source.values(number))
    }

    fn captured(&self, id: u32, bytes: &[u8]) -> Vec<(String, export::Value)> {
        self.with_names_of(self.source.captured(id, bytes))
    }

    fn log_line(&self, line: export::MarkName) -> String {
        self.trace.log_lines().text(line, |location| self.names.constant_text(location))
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.source.origin_realtime_ns()
    }

    fn times(&self) -> export::Times<'_> {
        self.times
    }

    fn wall(&self) -> Option<&WallClock> {
        self.source.wall()
    }

    fn realtime_ns(&self, at_ns: u64) -> Option<u64> {
        self.source.realtime_ns(at_ns)
    }

    fn ns_at_realtime(&self, realtime_ns: u64) -> Option<u64> {
        self.source.ns_at_realtime(realtime_ns)
    }

    fn moment(&self, ns: u64) -> u64 {
        self.source.moment(ns)
    }

    fn duration(&self, ns: u64) -> u64 {
        self.source.duration(ns)
    }

    fn overwritten(&self, thread: usize) -> Option<(u64, u64)> {
        self.source.overwritten(thread)
    }

    fn states(&self, thread: usize) -> Option<&ThreadStates> {
        self.source.states(thread)
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = export::TimelineEvent> {
        self.events_with_labels(thread)
    }
}
