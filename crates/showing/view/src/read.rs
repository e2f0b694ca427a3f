//! The pass that reads a whole file once, and makes the summary levels.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use everycall_analysis::{
    Function, FunctionFinder, FunctionIdentity, SamplePlaces, SymbolNames, TraceView, WholeCalls,
};
use everycall_timeline::{
    Begin, Checkpoint, End, EndKind, Gap, GapKind, Instant, InstantKind, Loss, LossKind, Mark, MarkKind,
    MarkName, PairingStats, ThreadInfo, TimelineEvent, Untraced,
};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cell::Cell;
use crate::counted;
use crate::file::{DENSITY, File, Open, SharedFunctions, Track, lock};
use crate::marks::{Item, Kind, Text};
use crate::sampled::Sampling;
use crate::spill::Spill;
use crate::stretches::Limit;
use everycall_answers::bits;

/// Events that are read before they are added together.
const BATCH: usize = 8192;
/// Names of labels that can be chosen.
const LABELS_MAX: usize = 1000;
/// The text of a track's beginning, if its events were overwritten.
const OVERWRITTEN: &str = "not known: newer events have overwritten those of this time";
/// The text of a track's beginning, if its events aren't kept any more.
const NOT_KEPT: &str = "not kept: this is older than the newest events";
/// Bytes of the summary levels of all tracks of a file in memory.
const LEVELS_MAX: usize = 256 << 20;
/// Bytes of those in temporary files.
const SPILLED_MAX: u64 = 1 << 30;

/// The numbers that all files share, for the functions of one trace.
pub(crate) struct Numbers<'v> {
    finder: FunctionFinder<'v>,
    shared: SharedFunctions,
    /// By number of the finder.
    numbers: Vec<u32>,
}

impl<'v> Numbers<'v> {
    pub fn new(view: &'v TraceView<'_>, shared: &SharedFunctions) -> Numbers<'v> {
        Numbers { finder: FunctionFinder::new(view), shared: shared.clone(), numbers: Vec::new() }
    }

    /// The number of the function at a location.
    #[inline]
    pub fn of(&mut self, location: everycall_timeline::Location) -> u32 {
        let number = self.finder.number(location) as usize;
        match self.numbers.get(number) {
            Some(number) => *number,
            None => self.add(number),
        }
    }

    #[cold]
    fn add(&mut self, number: usize) -> u32 {
        let mut shared = lock(&self.shared);
        let new = self.finder.functions().all().get(self.numbers.len()..).unwrap_or_default();
        self.numbers.extend(new.iter().map(|function| shared.number(function)));
        self.numbers.get(number).copied().unwrap_or(u32::MAX)
    }

    /// The number of the untraced code that a jump leads to.
    #[cold]
    pub fn untraced(&mut self, names: &SymbolNames<'_>, exit: everycall_timeline::Location) -> u32 {
        let target = names.jump_target(exit);
        let target = target.as_deref().unwrap_or("indirect jump");
        self.named(&format!("{target} (not traced, at most)"))
    }

    /// The number of something that isn't a function of the trace.
    #[cold]
    pub fn named(&mut self, name: &str) -> u32 {
        let identity = FunctionIdentity { name: name.to_owned(), ..FunctionIdentity::default() };
        lock(&self.shared).number(&Function::of(identity))
    }
}

/// The bits of a call's begin.
pub(crate) fn begin_bits(begin: &Begin) -> u8 {
    let cut = if begin.cut { bits::CUT_START } else { 0 };
    cut | if begin.caller_unsure { bits::CALLER_UNSURE } else { 0 }
}

/// The bits of a call's end.
pub(crate) fn end_bits(end: &End) -> u8 {
    kind_bits(end.how)
}

/// The bits of the way in which a call ended.
pub(crate) fn kind_bits(how: EndKind) -> u8 {
    match how {
        EndKind::Returned => 0,
        EndKind::Jumped => bits::TAIL,
        EndKind::Unwound => bits::UNWOUND,
        EndKind::UnwoundLate => bits::UNWOUND | bits::AT_MOST,
        EndKind::ReturnedAfterGap => bits::AT_MOST,
        EndKind::TruncatedAtEnd | EndKind::TruncatedAtLoss | EndKind::TruncatedAtGap | EndKind::ExitLost => {
            bits::CUT_END
        }
    }
}

/// Reads the whole file. The summary levels may be looked at meanwhile.
pub(crate) fn read(file: &File, functions: &SharedFunctions) {
    let names = SymbolNames::new(&file.file, &file.trace, file.options.clone());
    let view = TraceView::new(&file.trace, &names);
    let mut numbers = Numbers::new(&view, functions);
    let mut places = SamplePlaces::new(&view);
    let mut stops = Limit::new();
    let mut spilled = Vec::new();
    for thread in 0..file.threads.len() {
        let calls = WholeCalls::new(file.states(thread));
        let (spans, labels) = (FxHashMap::default(), FxHashSet::default());
        let mut reading = Reading { file, thread, spans, labels, scale: scale(file), calls, loss: None };
        reading.note_overwritten();
        let mut sampling =
            places.as_ref().and_then(|places| Some(Sampling::new(places, file.threads.get(thread)?)));
        let mut events = view.events_with_labels(thread);
        events.make_checkpoints();
        let mut batch: Vec<(TimelineEvent, u32)> = Vec::with_capacity(BATCH);
        let mut checkpoints = Vec::new();
        loop {
            if let Some(sketch) = &file.sketch {
                sketch.put_off();
            }
            batch.clear();
            checkpoints.clear();
            while let Some(event) = events.next() {
                if let Some(checkpoint) = events.take_checkpoint()
                    && stops.keeps()
                {
                    let (index, events) = (batch.len(), events.returned() - 1);
                    checkpoints.push(Place { index, events, checkpoint });
                }
                let number = match &event {
                    TimelineEvent::Begin(begin) => numbers.of(begin.location),
                    TimelineEvent::Untraced(untraced) => numbers.untraced(&names, untraced.exit),
                    _ => 0,
                };
                if let (Some(sampling), Some(places)) = (&mut sampling, &mut places) {
                    sampling.event(&event, places);
                }
                batch.push((event, number));
                if batch.len() == BATCH {
                    break;
                }
            }
            let is_last = batch.len() < BATCH;
            reading.add(&batch, &mut checkpoints, is_last, &mut stops);
            if let (Some(sampling), Some(mut track)) = (&mut sampling, file.track_mut(thread)) {
                track.samples.extend(sampling.take(is_last));
            }
            stops.keep(file);
            file.read_events.fetch_add(batch.len() as u64, Ordering::Relaxed);
            while bytes(file) > LEVELS_MAX && relieve(file, &mut spilled) {}
            if is_last {
                if let Some(mut track) = file.track_mut(thread) {
                    track.is_in_order = events.is_in_order();
                    reading.finish(&mut track, events.stats());
                }
                break;
            }
        }
    }
    // Functions whose events were all overwritten get a number, too.
    counted::of_file(file, &view, functions);
    file.is_complete.store(true, Ordering::Release);
}

fn bytes(file: &File) -> usize {
    (0..file.tracks.len()).filter_map(|thread| file.track(thread)).map(|track| track.levels.bytes()).sum()
}

/// Makes room in memory: moves the lowest level that lies there to a file, if it will have room
/// there once all was read, or drops the lowest level. False if neither is possible. All tracks
/// have the same levels.
fn relieve(file: &File, spilled: &mut Vec<u64>) -> bool {
    let tracks = || (0..file.tracks.len()).filter_map(|thread| file.track(thread));
    let levels = tracks().filter_map(|track| track.levels.lowest_in_memory());
    let bytes: usize = levels.map(|(_, bytes)| bytes).sum();
    let events: u64 = file.trace.threads().iter().map(|thread| thread.events).sum();
    let read = file.read_events.load(Ordering::Relaxed).max(1);
    // A quarter more, as threads differ.
    let most = (bytes as f64 * (events.max(read) as f64 / read as f64) * 1.25) as u64;
    let fits = bytes > 0 && spilled.iter().sum::<u64>() + most <= SPILLED_MAX;
    let spill = if fits { Spill::new(most).map(Arc::new) } else { None };
    let is_possible = spill.is_some() || tracks().all(|track| track.levels.can_drop());
    let all = (0..file.tracks.len()).filter_map(|thread| file.track_mut(thread));
    match spill {
        Some(spill) => {
            all.for_each(|mut track| track.levels.spill(&spill));
            spilled.push(most);
        }
        None if is_possible => {
            all.for_each(|mut track| track.levels.drop_lowest());
            spilled.drain(..spilled.len().min(1));
        }
        None => {}
    }
    is_possible
}

/// Parts of the density per nanosecond.
fn scale(file: &File) -> f64 {
    DENSITY as f64 / (file.end_ns.saturating_sub(file.begin_ns).max(1) as f64)
}

fn is_begin(event: &TimelineEvent) -> bool {
    matches!(event, TimelineEvent::Begin(_))
}

/// A checkpoint before an event of a batch.
struct Place {
    index: usize,
    /// Events of the timeline before it.
    events: u64,
    checkpoint: Checkpoint,
}

/// A thread that is being read.
struct Reading<'f> {
    file: &'f File,
    thread: usize,
    /// Open spans by number: begin and text.
    spans: FxHashMap<u32, (u64, Text)>,
    /// Names of labels so far.
    labels: FxHashSet<MarkName>,
    scale: f64,
    calls: WholeCalls<'f>,
    /// Missing segments whose end isn't known yet: since when, and how many events they had.
    loss: Option<(u64, Option<u64>)>,
}

impl Reading<'_> {
    fn add(
        &mut self,
        batch: &[(TimelineEvent, u32)],
        checkpoints: &mut Vec<Place>,
        is_last: bool,
        stops: &mut Limit,
    ) {
        let Some(mut track) = self.file.track_mut(self.thread) else { return };
        let track = &mut *track;
        let mut checkpoints = checkpoints.drain(..).peekable();
        for (index, (event, number)) in batch.iter().enumerate() {
            if let Some(Place { events, checkpoint, .. }) = checkpoints.next_if(|place| place.index == index)
            {
                let at = event.at_ns().max(track.read_ns);
                stops.bytes += track.stops.add(at, events, &mut self.calls, checkpoint);
            }
            track.stops.pass(event.at_ns());
            self.calls.event(event, &mut |number, call| track.stops.end(number, call));
            track.read_ns = track.read_ns.max(event.at_ns());
            if let Some((at, count)) = self.loss.take_if(|(at, _)| event.at_ns() > *at || is_begin(event)) {
                let (to, text) = (event.at_ns().max(at), Text::Lost(count));
                track.marks.add(Item { at, to, kind: Kind::Loss, text, count: 1 });
            }
            match event {
                TimelineEvent::Begin(begin) => {
                    let open = Open { function: *number, from: begin.start_ns, bits: begin_bits(begin) };
                    track.open.push(open);
                    track.depth = track.depth.max(track.open.len());
                    self.count(track, begin.start_ns);
                }
                TimelineEvent::End(end) => {
                    let Some(open) = track.open.pop() else { continue };
                    let cell = Cell::call(open.from, end.end_ns, open.function, open.bits | end_bits(end));
                    track.levels.add(track.open.len(), cell);
                    self.count(track, end.end_ns);
                }
                TimelineEvent::Untraced(Untraced { at_ns, until_ns, .. }) => {
                    let cell = Cell::call(*at_ns, *until_ns, *number, bits::AT_MOST);
                    track.levels.add(track.open.len(), cell);
                }
                TimelineEvent::Gap(Gap { at_ns, until_ns, why, .. }) => {
                    let why = match why {
                        GapKind::Thread => "the program left this thread out",
                        GapKind::Disabled => "recording was off",
                        GapKind::Suspended => "suspended: no thread ran this stack",
                        GapKind::Overwritten => OVERWRITTEN,
                        GapKind::Other(_) => "nothing was recorded",
                    };
                    let text = Text::Off(why);
                    track.marks.add(Item { at: *at_ns, to: *until_ns, kind: Kind::Off, text, count: 1 });
                }
                TimelineEvent::Loss(Loss { at_ns, count, why: LossKind::Segments }) => {
                    self.loss = Some((*at_ns, *count));
                }
                TimelineEvent::Loss(Loss { at_ns, count, .. }) => {
                    let text = Text::Lost(*count);
                    track.marks.add(Item { at: *at_ns, to: *at_ns, kind: Kind::Loss, text, count: 1 });
                }
                TimelineEvent::Instant(Instant { at_ns, kind }) => {
                    let (InstantKind::OrphanExit(_) | InstantKind::InferredOrphanExit(_)) = kind;
                    let text = Text::Off("an exit without its entry");
                    track.marks.add(Item { at: *at_ns, to: *at_ns, kind: Kind::Instant, text, count: 1 });
                }
                TimelineEvent::Mark(mark) => self.mark(track, mark),
                TimelineEvent::Unstamped(_) | TimelineEvent::Returned(_) => {}
            }
        }
        if is_last {
            if let Some((at, count)) = self.loss.take() {
                let text = Text::Lost(count);
                track.marks.add(Item { at, to: at, kind: Kind::Loss, text, count: 1 });
            }
            for (_, (at, text)) in self.spans.drain() {
                let to = track.read_ns;
                track.marks.add(Item { at, to, kind: Kind::Span, text, count: 1 });
            }
            track.marks.sort();
            track.is_complete = true;
        }
    }

    /// Marks the time before the thread's oldest event, if older ones were overwritten.
    fn note_overwritten(&self) {
        let info = self.file.indices.get(self.thread).and_then(|at| self.file.trace.threads().get(*at));
        let Some((at, to)) = info.and_then(ThreadInfo::overwritten_ns) else { return };
        let Some(mut track) = self.file.track_mut(self.thread) else { return };
        let (kind, text) = match self.file.is_state {
            true => (Kind::Off, Text::Off(NOT_KEPT)),
            false => (Kind::Loss, Text::Off(OVERWRITTEN)),
        };
        track.marks.add(Item { at, to, kind, text, count: 1 });
    }

    /// After the last event.
    fn finish(self, track: &mut Track, stats: PairingStats) {
        let notes = self.calls.finish(stats, &mut |number, call| track.stops.end(number, call));
        track.stops.finish(notes);
    }

    #[inline]
    fn count(&self, track: &mut Track, at_ns: u64) {
        let Some(since) = at_ns.checked_sub(self.file.begin_ns) else { return };
        let part = (since as f64 * self.scale) as usize;
        if let Some(count) = track.density.get_mut(part.min(DENSITY - 1)) {
            *count = count.saturating_add(1);
        }
    }

    #[cold]
    fn add_label(&self, name: MarkName) {
        let name = self.file.trace.mark_names().text(name);
        let mut labels = lock(&self.file.labels);
        if !name.is_empty() && labels.len() < LABELS_MAX {
            labels.insert(name.to_owned());
        }
    }

    fn mark(&mut self, track: &mut Track, mark: &Mark) {
        let at = mark.at_ns;
        let value = mark.task_step().map(|(_, step)| step.into()).or(mark.value);
        let text = Text::Name(mark.name, value);
        let kind = match mark.kind {
            MarkKind::Label => {
                if self.labels.insert(mark.name) {
                    self.add_label(mark.name);
                }
                Kind::Label
            }
            MarkKind::Wake | MarkKind::Step => Kind::Instant,
            MarkKind::Instant | MarkKind::OrphanSpanEnd => {
                let name = self.file.trace.mark_names().text(mark.name);
                let is_module = name.starts_with("loaded ") || name.starts_with("unloaded ");
                if is_module { Kind::Module } else { Kind::Instant }
            }
            MarkKind::Throw => Kind::Throw,
            MarkKind::Catch => Kind::Catch,
            MarkKind::Log => Kind::Log,
            MarkKind::Output(_) => Kind::Output,
            MarkKind::SpanBegin { span, .. } => {
                self.spans.insert(span, (at, text));
                return;
            }
            MarkKind::SpanEnd { span, start_ns, .. } => {
                self.spans.remove(&span);
                track.marks.add(Item { at: start_ns, to: at, kind: Kind::Span, text, count: 1 });
                return;
            }
            MarkKind::Counter | MarkKind::CounterReal => {
                let value = mark.value.unwrap_or(0);
                let value = match mark.kind {
                    MarkKind::Counter => value.cast_signed() as f64,
                    _ => f64::from_bits(value),
                };
                let pid = self.file.threads.get(self.thread).map_or(0, |thread| thread.pid);
                let name = self.file.trace.mark_names().text(mark.name).to_owned();
                lock(&self.file.series).entry((pid, name)).or_default().add(at, value);
                return;
            }
        };
        track.marks.add(Item { at, to: at, kind, text, count: 1 });
    }
}
