//! The calls of a trace for a page without a server: those that pass a filter, with all that their
//! sums need.

use everycall_analysis::{CallSource, Function, Functions, PlaceOf, SymbolNames, TraceView};
use everycall_answers::page::{MAYBE_TAIL, PlaceKind, WITHOUT_CALL};
use everycall_answers::{LabelValue, bits};
use everycall_export::{Calls, Filter, Source as _, ValuesNumber, shown_values};
use everycall_timeline::{Begin, End, Location, Mark, MarkKind, TailCall, TimelineEvent, Untraced};
use rustc_hash::FxHashMap;

use crate::file::{File, SharedFunctions, lock};
use crate::read::{Numbers, begin_bits, kind_bits};

/// A call, as the page gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub from: u64,
    pub duration: u64,
    /// Index of its place.
    pub place: u32,
    pub depth: u32,
    pub bits: u16,
    /// Time in all of its callees, and in which its stack was suspended, where the page doesn't have
    /// all of its callees, or it was.
    pub less: Option<(u64, u64)>,
}

/// The calls of one track, in the order of their begins.
pub(crate) struct Track {
    pub id: u32,
    pub slices: Vec<Slice>,
}

/// All of a page's calls.
#[derive(Default)]
pub(crate) struct Gathered {
    pub tracks: Vec<Track>,
    /// Track, begin and depth of a call, with the name and value of a label.
    pub labels: Vec<(u32, u64, u32, String, LabelValue)>,
    /// Function and kind of each place.
    pub places: Vec<(u32, u8)>,
}

/// Facts about an open call.
#[derive(Clone, Copy)]
struct OpenCall {
    /// Its index among the track's calls, and how many labels there were before it; `None` if it
    /// isn't shown.
    shown: Option<(usize, usize)>,
    /// Time of those of its callees that are shown.
    inner_ns: u64,
}

/// A place in code, once it was looked up.
#[derive(Clone, Copy)]
struct Known {
    place: u32,
    matches: bool,
}

struct Gathering<'g, P> {
    view: &'g TraceView<'g>,
    names: &'g SymbolNames<'g>,
    shared: &'g SharedFunctions,
    numbers: Numbers<'g>,
    finder: P,
    functions: Functions,
    known: FxHashMap<Location, Known>,
    untraced: FxHashMap<u32, u32>,
    calls: Calls<OpenCall>,
    /// How many of the open calls are shown.
    depth: u32,
    track: Track,
    found: Gathered,
}

/// The calls of a file that pass a filter.
pub(crate) fn gathered(
    file: &File,
    view: &TraceView<'_>,
    names: &SymbolNames<'_>,
    shared: &SharedFunctions,
    filter: &Filter,
) -> Gathered {
    let window = filter.window(view);
    let mut gathering = Gathering {
        view,
        names,
        shared,
        numbers: Numbers::new(view, shared),
        finder: CallSource::places(view, filter, false),
        functions: Functions::default(),
        known: FxHashMap::default(),
        untraced: FxHashMap::default(),
        calls: Calls::new(window, None),
        depth: 0,
        track: Track { id: 0, slices: Vec::new() },
        found: Gathered::default(),
    };
    for (index, _) in view.threads().iter().enumerate().filter(|(_, thread)| filter.admits_thread(thread)) {
        gathering.calls = Calls::new(window, filter.chosen(view, || view.events_with_labels(index)));
        gathering.track = Track { id: file.track_id(index), slices: Vec::new() };
        gathering.depth = 0;
        for event in view.events_with_labels(index) {
            gathering.event(&event);
        }
        let id = gathering.track.id;
        gathering
            .found
            .tracks
            .push(std::mem::replace(&mut gathering.track, Track { id, slices: Vec::new() }));
    }
    gathering.found
}

impl<P: PlaceOf> Gathering<'_, P> {
    fn event(&mut self, event: &TimelineEvent) {
        match event {
            TimelineEvent::Begin(begin) => self.begin(begin),
            TimelineEvent::End(end) => self.end(end),
            TimelineEvent::Returned(returned) => self.calls.returned(returned),
            TimelineEvent::Gap(gap) => self.calls.gap(gap),
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Label => self.label(mark),
            TimelineEvent::Untraced(untraced) => self.add_untraced(untraced),
            TimelineEvent::Mark(_)
            | TimelineEvent::Loss(_)
            | TimelineEvent::Instant(_)
            | TimelineEvent::Unstamped(_) => {}
        }
    }

    fn place(&mut self, location: Location) -> Known {
        if let Some(known) = self.known.get(&location) {
            return *known;
        }
        let place = self.finder.get(location, &mut self.functions);
        let unknown = Function::default();
        let function = self.functions.get(place.function).unwrap_or(&unknown);
        let number = lock(self.shared).number(function);
        let kind = PlaceKind { thunk: place.thunk, split: place.split };
        let known = Known { place: self.found.places.len() as u32, matches: place.matches };
        self.found.places.push((number, kind.number()));
        self.known.insert(location, known);
        known
    }

    fn begin(&mut self, begin: &Begin) {
        let Known { place, matches } = self.place(begin.location);
        let is_selected = self.calls.begin(begin, matches, OpenCall { shown: None, inner_ns: 0 });
        if !is_selected {
            return;
        }
        let open = self.calls.open().len();
        if let Some(of) = open.checked_sub(1).and_then(|depth| self.calls.of_mut(depth)) {
            of.shown = Some((self.track.slices.len(), self.found.labels.len()));
        }
        let tail = match begin.tail_call {
            TailCall::No => 0,
            TailCall::Perhaps => u16::from(bits::BY_TAIL) | MAYBE_TAIL as u16,
            TailCall::Yes => bits::BY_TAIL.into(),
        };
        let bits = u16::from(begin_bits(begin)) | tail;
        let slice = Slice { from: begin.start_ns, place, depth: self.depth, bits, ..Slice::default() };
        self.track.slices.push(slice);
        self.depth += 1;
        self.add_values(&slice, begin.arguments);
    }

    fn end(&mut self, end: &End) {
        let Some(call) = self.calls.end(end) else { return };
        let Some((index, labels)) = call.of.shown else { return };
        self.depth -= 1;
        if !call.is_shown {
            // Nor is what it called.
            self.track.slices.truncate(index);
            self.found.labels.truncate(labels);
            return;
        }
        let duration = call.duration_ns();
        let around = self.calls.open().len().checked_sub(1).and_then(|depth| self.calls.of_mut(depth));
        if let Some(around) = around {
            around.inner_ns = around.inner_ns.saturating_add(duration);
        }
        let inner_ns = duration.saturating_sub(call.own_ns).saturating_sub(call.suspended_ns);
        let has_all = inner_ns == call.of.inner_ns && call.suspended_ns == 0;
        let Some(slice) = self.track.slices.get_mut(index) else { return };
        slice.duration = duration;
        slice.bits |= u16::from(kind_bits(call.how));
        slice.less = (!has_all).then_some((inner_ns, call.suspended_ns));
        let slice = *slice;
        self.add_values(&slice, call.values.result);
    }

    fn add_values(&mut self, slice: &Slice, values: Option<ValuesNumber>) {
        let Some(values) = values else { return };
        let (id, Slice { from, depth, .. }) = (self.track.id, *slice);
        let shown = shown_values(self.view, values);
        let label = |(name, text)| (id, from, depth, name, LabelValue::Text(text));
        self.found.labels.extend(shown.into_iter().map(label));
    }

    /// The innermost call got a label.
    fn label(&mut self, mark: &Mark) {
        let shown = self.calls.open().last().and_then(|open| open.of.shown);
        let Some(slice) = shown.and_then(|(index, _)| self.track.slices.get(index)) else { return };
        let name = self.view.mark_name(mark.name).to_owned();
        let value = LabelValue::Number(mark.value);
        self.found.labels.push((self.track.id, slice.from, slice.depth, name, value));
    }

    fn add_untraced(&mut self, untraced: &Untraced) {
        let jumped = self.calls.untraced(untraced).and_then(|jumped| jumped.of.shown);
        let Some((index, _)) = jumped else { return };
        let is_there = index < self.track.slices.len();
        let function = self.numbers.untraced(self.names, untraced.exit);
        let next = self.found.places.len() as u32;
        let place = *self.untraced.entry(function).or_insert(next);
        if place == next {
            let kind = PlaceKind { thunk: None, split: everycall_analysis::Split::No };
            self.found.places.push((function, kind.number()));
        }
        self.track.slices.push(Slice {
            from: untraced.at_ns,
            duration: untraced.until_ns.saturating_sub(untraced.at_ns),
            place,
            depth: self.depth,
            bits: u16::from(bits::AT_MOST | bits::UNTRACED) | if is_there { 0 } else { WITHOUT_CALL as u16 },
            less: None,
        });
    }
}
