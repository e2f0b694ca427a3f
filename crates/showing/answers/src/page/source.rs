//! A page as a source of calls for profiles.

use everycall_calls::{Begin, Location, PairingStats, TailCall, Thread, TimelineEvent, Untraced, Window};
use everycall_profile::{
    CallSource, Counts, Events, Functions, Grouping, Key, Part, Place, PlaceOf, ReducedCall, Sums, Wanted,
};

use super::data::Page;
use super::slices::{MAYBE_TAIL, PlaceKind, Slice, Slices, Track, WITHOUT_CALL};
use crate::bits;

/// Events that are made at once.
const BATCH: usize = 4096;

/// The calls that an answer covers.
pub struct Range {
    pub from: u64,
    pub to: u64,
    /// `None` for all.
    pub tracks: Option<Vec<u32>>,
    /// One call, instead of all others: its track, and its position among the track's calls.
    pub call: Option<(u32, u64)>,
}

impl Default for Range {
    fn default() -> Range {
        Range { from: 0, to: u64::MAX, tracks: None, call: None }
    }
}

impl Range {
    /// Whether calls of a track are covered.
    pub fn has(&self, track: u32) -> bool {
        match self.call {
            Some((of, _)) => of == track,
            None => self.tracks.as_ref().is_none_or(|tracks| tracks.contains(&track)),
        }
    }
}

/// Makes events of calls.
pub struct PageEvents<'p> {
    slices: Slices<'p>,
    open: Vec<(Begin, Slice)>,
    batch: Vec<TimelineEvent>,
    is_done: bool,
}

impl PageEvents<'_> {
    fn end_until(&mut self, depth: usize) {
        while self.open.len() > depth
            && let Some((begin, slice)) = self.open.pop()
        {
            self.batch.push(TimelineEvent::End(begin.ended(slice.to(), slice.how())));
        }
    }

    fn add(&mut self, slice: Slice) {
        self.end_until(slice.depth as usize);
        let location = location(slice.place);
        if slice.bits & WITHOUT_CALL != 0 {
            return;
        }
        if slice.is_untraced() {
            let untraced = Untraced { at_ns: slice.from, until_ns: slice.to(), exit: location };
            return self.batch.push(TimelineEvent::Untraced(untraced));
        }
        let begin = Begin {
            depth: self.open.len() as u32,
            location,
            start_ns: slice.from,
            cut: slice.has(bits::CUT_START),
            tail_call: match slice.bits & (u64::from(bits::BY_TAIL) | MAYBE_TAIL) {
                0 => TailCall::No,
                both if both & MAYBE_TAIL != 0 => TailCall::Perhaps,
                _ => TailCall::Yes,
            },
            caller_unsure: slice.has(bits::CALLER_UNSURE),
            arguments: None,
        };
        self.batch.push(TimelineEvent::Begin(begin));
        self.open.push((begin, slice));
    }
}

impl Events for PageEvents<'_> {
    fn next_some(&mut self) -> &[TimelineEvent] {
        self.batch.clear();
        while self.batch.len() < BATCH && !self.is_done {
            match self.slices.next() {
                Some(slice) => self.add(slice),
                None => {
                    self.is_done = true;
                    self.end_until(0);
                }
            }
        }
        &self.batch
    }

    fn stats(&self) -> PairingStats {
        PairingStats::default()
    }
}

/// Where code is: the place's number takes the address's place.
fn location(place: u64) -> Location {
    Location { module: 0, image_address: place }
}

impl CallSource for Page {
    type Filter = Range;
    type Events<'s> = PageEvents<'s>;
    type Places<'s> = KnownPlaces<'s>;

    fn threads_of_calls(&self) -> &[Thread] {
        &self.threads
    }

    fn process_names(&self) -> Vec<String> {
        let names = self.head.trace.processes.iter().map(|process| process.name.clone());
        names.map(Option::unwrap_or_default).collect()
    }

    fn admits(&self, thread: usize, range: &Range) -> bool {
        self.tracks.get(thread).is_some_and(|track| range.has(track.id))
    }

    fn window(&self, range: &Range) -> Window {
        let selects = range.call.is_some();
        Window { since_ns: range.from, until_ns: range.to, selects, ..Window::default() }
    }

    fn places<'s>(&'s self, _: &'s Range, _: bool) -> KnownPlaces<'s> {
        KnownPlaces { page: self, known: vec![None; self.head.places.len()] }
    }

    fn part(&self, thread: usize, range: &Range, _: Wanted<'_>) -> Part<'_, PageEvents<'_>> {
        let slices = || self.tracks.get(thread).map(|track| track.slices(&self.bytes));
        let calls = slices().into_iter().flatten().filter(|slice| !slice.is_untraced()).zip(0..);
        let reduced = calls.filter_map(|(slice, position)| {
            let (inner_ns, suspended_ns) = slice.less?;
            Some(ReducedCall { position, inner_ns, suspended_ns })
        });
        let events = PageEvents {
            slices: slices().unwrap_or_default(),
            open: Vec::new(),
            batch: Vec::new(),
            is_done: false,
        };
        Part {
            chosen: range.call.map(|(_, position)| vec![position]),
            reduced: reduced.collect(),
            ..Part::new(events)
        }
    }

    fn add_counts(&self, range: &Range, counts: &mut Counts<'_>) {
        let is_possible = range.call.is_none() && (range.from, range.to) == (0, u64::MAX);
        if !is_possible || matches!(counts.grouping, Grouping::Path | Grouping::Label(_) | Grouping::Value(_))
        {
            return;
        }
        for (of, track, calls) in &self.head.all_calls {
            if range.tracks.is_some() && !track.is_some_and(|track| range.has(track)) {
                continue;
            }
            let Some(function) = self.functions.get(*of as usize) else { continue };
            let track = track.and_then(|id| self.tracks.iter().find(|track| track.id == id));
            let key = self.key(counts, function.clone(), track);
            counts.add(key, &Sums { all_calls: *calls, ..Sums::default() });
        }
    }
}

impl Page {
    /// The group of a function's calls in a track.
    fn key(
        &self,
        counts: &mut Counts<'_>,
        function: everycall_profile::Function,
        track: Option<&Track>,
    ) -> Key {
        let (trace, thread) = (counts.number, track.map(|track| &track.thread));
        match counts.grouping {
            Grouping::Thread => Key::Thread {
                trace,
                pid: thread.map_or(0, |thread| thread.pid),
                tid: thread.map_or(0, |thread| thread.tid),
                name: thread.map_or_else(|| "?".to_owned(), |thread| thread.name.clone()),
            },
            Grouping::Process => {
                let process = thread.and_then(|thread| self.head.trace.processes.get(thread.process));
                let name = process.and_then(|process| process.name.clone()).unwrap_or_default();
                Key::Process { trace, pid: thread.map_or(0, |thread| thread.pid), name }
            }
            Grouping::Module => Key::Module(function.identity.module),
            Grouping::File => Key::File(function.identity.file),
            _ => Key::Function(counts.functions.number(function)),
        }
    }
}

/// The places of a page, each looked up once.
pub struct KnownPlaces<'p> {
    page: &'p Page,
    known: Vec<Option<Place>>,
}

impl PlaceOf for KnownPlaces<'_> {
    #[inline]
    fn get(&mut self, location: Location, functions: &mut Functions) -> Place {
        let index = usize::try_from(location.image_address).unwrap_or(usize::MAX);
        match self.known.get(index) {
            Some(Some(place)) => *place,
            _ => self.find(index, functions),
        }
    }
}

impl KnownPlaces<'_> {
    #[cold]
    fn find(&mut self, index: usize, functions: &mut Functions) -> Place {
        let Page { head, functions: all, .. } = self.page;
        let (of, kind) = head.places.get(index).copied().unwrap_or((u32::MAX, 0));
        let function = all.get(of as usize).cloned().unwrap_or_default();
        let PlaceKind { thunk, split } = PlaceKind::of(kind);
        let place = Place { function: functions.number(function), thunk, split, matches: true };
        if let Some(known) = self.known.get_mut(index) {
            *known = Some(place);
        }
        place
    }
}
