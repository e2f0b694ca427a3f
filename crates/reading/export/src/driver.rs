//! The loop that all outputs share: threads, filter, events.
//!
//! ```text
//! Source -> filter -> Event -> Sink                      outputs of calls: replay, JSON lines, CSV
//!                       |-> CallSums -> a function       outputs of sums: folded stacks, pprof, callgrind
//!                       `-> Pen -> Drawn -> DrawnSink    outputs for viewers: Chrome JSON, Perfetto
//! ```
//!
//! An output is a [`Sink`], a [`DrawnSink`] or a function of [`CallSums`]. It receives each thread
//! that has something to show, then the thread's events, or what was added up of them, and appends
//! bytes to its [`Portions`]. The driver decides which threads and calls are shown, when bytes are
//! written, and what is counted.

use std::collections::BTreeMap;
use std::io::{self, Write};

use everycall_timeline::{Bars, Gap, GapKind, TimelineEvent};

use crate::draw::{Drawn, Pen};
use crate::filter::Filter;
use crate::filtered::{Event, Filtered, Point, PointKind};
use crate::names::{Functions, Names};
use crate::off_cpu::Walk;
use crate::portions::Portions;
use crate::source::{Process, Source, process_titles};
use crate::summary::{MANY_SLICES, Note, Summary};
use crate::switches::{Switch, switches};
use everycall_calls::Thread;
use everycall_calls::Window;

/// The state of an export.
pub(crate) struct Export<'a, S> {
    /// The trace.
    pub(crate) source: &'a S,
    /// Provides names and sources.
    pub(crate) names: &'a dyn Names,
    /// The functions that occurred so far.
    pub(crate) functions: Functions<'a>,
    /// The duration of the call that the present event ends, if it isn't known exactly.
    pub(crate) bars: Option<Bars>,
    /// Counts of the output. Threads are counted here; everything else is counted by
    /// [`Summary::event`] or for viewers.
    pub(crate) summary: Summary,
    /// Why the output can't go on.
    pub(crate) failure: Option<io::Error>,
    /// Takes notes for the user.
    pub(crate) notify: &'a mut dyn FnMut(Note),
}

/// An output of events.
pub(crate) trait Sink<'o, S: Source> {
    /// The buffer for its bytes.
    fn portions(&mut self) -> &mut Portions<'o>;

    /// Called first.
    fn begin(&mut self, export: &mut Export<'_, S>) {
        let _ = export;
    }

    /// A thread whose events follow. `index` is its position in [`Source::threads`].
    fn thread(&mut self, export: &mut Export<'_, S>, index: usize, thread: &Thread);

    /// An event of the thread.
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event);

    /// The thread has no more events.
    fn thread_end(&mut self, export: &mut Export<'_, S>) {
        let _ = export;
    }

    /// Called after the last thread: what the CPUs did with the threads that were shown.
    fn switches(&mut self, export: &mut Export<'_, S>, switches: &Switches) {
        let _ = (export, switches);
    }

    /// Called last.
    ///
    /// # Errors
    ///
    /// Those of its [`Portions`].
    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        let _ = export;
        Ok(())
    }
}

/// Events between two reports of progress: there are one or two a second.
const PROGRESS: u64 = 1 << 22;

/// By CPU.
pub(crate) type Switches = BTreeMap<u16, Vec<Switch>>;

/// Writes what passes `filter` into `sink`.
pub(crate) fn run<'o, S: Source>(
    source: &S,
    names: &dyn Names,
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    sink: &mut impl Sink<'o, S>,
) -> io::Result<Summary> {
    let functions = Functions::new(names, filter.function.as_ref());
    let summary = Summary::default();
    let mut export = Export { source, names, functions, bars: None, summary, failure: None, notify };
    sink.begin(&mut export);
    let window = filter.window(source);
    let mut shown = Vec::new();
    let mut count = 0_u64;
    for (index, thread) in source.threads().iter().enumerate() {
        if !filter.admits_thread(thread) {
            continue;
        }
        let mut events = ThreadEvents::new(source, filter, window, index, thread);
        let mut any = false;
        let mut event = Event::default();
        while events.next(&mut export.functions, &mut event) {
            if !any {
                any = true;
                shown.push(index);
                export.summary.threads += u64::from(!thread.is_sampled);
                sink.thread(&mut export, index, thread);
            }
            export.bars = events.bars();
            export.summary.bounded_calls += u64::from(export.bars.is_some());
            sink.event(&mut export, &event);
            sink.portions().spill()?;
            count += 1;
            if count.is_multiple_of(PROGRESS) {
                (export.notify)(Note::Progress { events: count });
            }
        }
        if any {
            sink.thread_end(&mut export);
            export.failure.take().map_or(Ok(()), Err)?;
            sink.portions().spill()?;
        }
    }
    let switches = switches(source, shown.into_iter(), (window.since_ns, window.until_ns));
    if !switches.is_empty() {
        sink.switches(&mut export, &switches);
        sink.portions().spill()?;
    }
    sink.end(&mut export)?;
    sink.portions().finish()?;
    Ok(export.summary)
}

/// The shown events of a thread, how many short calls were dropped, and when it was off the CPU in
/// its calls.
pub(crate) struct ThreadEvents<'s, I> {
    events: Filtered<'s, I>,
    off_cpu: Walk<'s>,
    min_duration_ns: u64,
    /// Short calls that were dropped, until they are reported.
    dropped: u64,
    /// Calls that are shown and open.
    depth: u64,
    /// An event that others came before.
    held: Option<Event>,
}

impl<'s> ThreadEvents<'s, ()> {
    /// Of the thread at `index`.
    pub(crate) fn new<S: Source>(
        source: &'s S,
        filter: &Filter,
        window: Window,
        index: usize,
        thread: &Thread,
    ) -> ThreadEvents<'s, impl Iterator<Item = TimelineEvent> + use<'s, S>> {
        ThreadEvents {
            events: filter.apply(source, index, window),
            off_cpu: Walk::new(source.states(index), window.since_ns, source.end_ns()),
            min_duration_ns: window.min_duration_ns,
            dropped: thread.dropped,
            depth: 0,
            held: None,
        }
    }
}

impl<I: Iterator<Item = TimelineEvent>> ThreadEvents<'_, I> {
    /// Puts the next one into `out`; `false` if there is none.
    #[inline]
    pub(crate) fn next(&mut self, functions: &mut Functions<'_>, out: &mut Event) -> bool {
        if self.held.is_some() || self.dropped > 0 || !self.off_cpu.is_over() {
            return self.next_with_others(functions, out);
        }
        let any = self.events.next(functions, out);
        if any {
            self.count(out);
        }
        any
    }

    /// As [`ThreadEvents::next`], while there are events of other sources.
    fn next_with_others(&mut self, functions: &mut Functions<'_>, out: &mut Event) -> bool {
        match self.held.take() {
            Some(held) => *out = held,
            None if self.events.next(functions, out) => {}
            None => return false,
        }
        let at_ns = out.at_ns();
        if self.dropped > 0 {
            let count = Some(std::mem::take(&mut self.dropped));
            let dropped = Event::Point(Point { at_ns, count, kind: PointKind::Dropped });
            self.held = Some(std::mem::replace(out, dropped));
            return true;
        }
        while let Some(off) = self.off_cpu.before(at_ns) {
            // Outside of all calls, it belongs to none.
            if self.depth > 0 && off.until_ns - off.at_ns >= self.min_duration_ns {
                self.held = Some(std::mem::replace(out, Event::OffCpu(off)));
                return true;
            }
        }
        self.count(out);
        true
    }

    /// The duration of the call that the last event has ended, if it isn't known exactly.
    #[inline]
    pub(crate) fn bars(&self) -> Option<Bars> {
        self.events.bars().filter(|_| self.held.is_none())
    }

    #[inline]
    fn count(&mut self, event: &Event) {
        match event {
            Event::Begin { .. } => self.depth += 1,
            Event::End { .. } => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Sums of calls, which are written when all threads have ended.
pub(crate) trait CallSums: Default {
    /// The events of a thread follow.
    fn thread(&mut self, thread: &Thread, processes: &[Process]);

    /// An event of the thread.
    fn event(&mut self, event: &Event);

    /// Counts calls that have no place of their own.
    fn count(&self, summary: &mut Summary) {
        let _ = summary;
    }
}

/// Adds up what passes `filter`, and calls `write` with the sums.
pub(crate) fn sum<'o, S: Source, T: CallSums>(
    (source, names): (&S, &dyn Names),
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    out: &'o mut dyn Write,
    write: impl FnMut(&T, &Export<'_, S>, &mut Portions<'o>) -> io::Result<()>,
) -> io::Result<Summary> {
    let mut adding = Adding { portions: Portions::new(out), sums: T::default(), write };
    run(source, names, filter, notify, &mut adding)
}

/// Adds up events for an output.
struct Adding<'o, T, W> {
    portions: Portions<'o>,
    sums: T,
    write: W,
}

impl<'o, S: Source, T: CallSums, W> Sink<'o, S> for Adding<'o, T, W>
where
    W: FnMut(&T, &Export<'_, S>, &mut Portions<'o>) -> io::Result<()>,
{
    fn portions(&mut self) -> &mut Portions<'o> {
        &mut self.portions
    }

    fn thread(&mut self, export: &mut Export<'_, S>, _: usize, thread: &Thread) {
        self.sums.thread(thread, export.source.processes());
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        export.summary.event(event);
        self.sums.event(event);
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        self.sums.count(&mut export.summary);
        (self.write)(&self.sums, export, &mut self.portions)
    }
}

/// An output for viewers.
pub(crate) trait DrawnSink<'o, S: Source> {
    /// The buffer for its bytes.
    fn portions(&mut self) -> &mut Portions<'o>;

    /// Called first.
    fn begin(&mut self, export: &mut Export<'_, S>);

    /// A thread whose first event to draw is at `at_ns`. `process` is the title of its process if
    /// this is the process's first thread.
    fn thread(
        &mut self,
        export: &mut Export<'_, S>,
        index: usize,
        thread: &Thread,
        process: Option<&str>,
        at_ns: u64,
    );

    /// An event to draw in the thread. `pen` has the labels and jumps of its slices.
    fn draw(&mut self, export: &mut Export<'_, S>, drawn: &Drawn, pen: &Pen);

    /// Called after the last thread: what the CPUs did with the threads that were shown.
    fn switches(&mut self, export: &mut Export<'_, S>, switches: &Switches);

    /// Called last.
    ///
    /// # Errors
    ///
    /// Those of its [`Portions`].
    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()>;
}

/// Draws what passes `filter` into `sink`.
pub(crate) fn draw<'o, S: Source>(
    source: &S,
    names: &dyn Names,
    filter: &Filter,
    notify: &mut dyn FnMut(Note),
    sink: impl DrawnSink<'o, S>,
) -> io::Result<Summary> {
    let titles = process_titles(source);
    let (since_ns, _) = filter.bounds(source);
    let mut drawing = Drawing { sink, titles, pen: Pen::new(1), is_new: None, since_ns, overwritten: None };
    run(source, names, filter, notify, &mut drawing)
}

/// Draws the events for an output.
struct Drawing<K> {
    sink: K,
    /// Titles of processes without threads so far.
    titles: Titles,
    pen: Pen,
    /// The thread, until one of its events is drawn.
    is_new: Option<(usize, Thread)>,
    /// Begin of the window.
    since_ns: u64,
    /// The time before the thread's oldest event, until it is drawn.
    overwritten: Option<Gap>,
}

/// The time before the oldest event of a thread, if older ones were overwritten, as far as it is in
/// a window that begins at `since_ns`.
pub(crate) fn overwritten(source: &impl Source, index: usize, since_ns: u64) -> Option<Gap> {
    let (at_ns, until_ns) = source.overwritten(index)?;
    let at_ns = at_ns.max(since_ns);
    (at_ns < until_ns).then_some(Gap { at_ns, until_ns, why: GapKind::Overwritten, resumed_by: None })
}

type Titles = rustc_hash::FxHashMap<u32, String>;

impl<'o, S: Source, K: DrawnSink<'o, S>> Sink<'o, S> for Drawing<K> {
    fn portions(&mut self) -> &mut Portions<'o> {
        self.sink.portions()
    }

    fn begin(&mut self, export: &mut Export<'_, S>) {
        self.sink.begin(export);
    }

    fn thread(&mut self, export: &mut Export<'_, S>, index: usize, thread: &Thread) {
        self.overwritten = overwritten(export.source, index, self.since_ns);
        // Numbers of chains are unique in the whole output.
        self.pen = Pen::new(self.pen.next_chain());
        self.is_new = Some((index, thread.clone()));
    }

    #[inline]
    fn event(&mut self, export: &mut Export<'_, S>, event: &Event) {
        // Within the calls that were open then: those began before it.
        if let Some(gap) = self.overwritten.take_if(|gap| event.at_ns() >= gap.until_ns) {
            self.draw(export, &Event::Gap(gap));
        }
        self.draw(export, event);
    }

    fn switches(&mut self, export: &mut Export<'_, S>, switches: &Switches) {
        self.sink.switches(export, switches);
    }

    fn end(&mut self, export: &mut Export<'_, S>) -> io::Result<()> {
        self.sink.end(export)
    }
}

impl<K> Drawing<K> {
    #[inline]
    fn draw<'o, S: Source>(&mut self, export: &mut Export<'_, S>, event: &Event)
    where
        K: DrawnSink<'o, S>,
    {
        // Not moved out: a copy would wait for each of its fields.
        let drawn = self.pen.draw(event);
        let Some(drawn) = &drawn else { return };
        if let Some((index, thread)) = self.is_new.take() {
            let title = self.titles.remove(&thread.pid);
            self.sink.thread(export, index, &thread, title.as_deref(), drawn.at_ns());
        }
        self.sink.draw(export, drawn, &self.pen);
        let Export { summary, notify, .. } = export;
        match *drawn {
            Drawn::Begin { .. } => {}
            Drawn::End(ref slice) => {
                summary.slices += 1;
                if summary.slices == MANY_SLICES + 1 {
                    notify(Note::ManySlices);
                }
                if slice.has_remarks() {
                    summary.moved_slices += u64::from(slice.moved.is_some());
                    summary.deep_calls += if slice.what.is_none() { slice.calls } else { 0 };
                }
            }
            Drawn::Point(point) => summary.event(&Event::Point(point)),
            Drawn::Mark(mark) => summary.event(&Event::Mark(mark)),
            Drawn::Gap(gap) => summary.event(&Event::Gap(gap)),
            Drawn::Untraced(slice) => summary.event(&Event::Untraced(slice)),
        }
    }
}
