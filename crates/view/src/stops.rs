//! Places of a thread from which it can be read, and from which tables of ranges are computed.

use std::sync::Arc;

use everycall_analysis::{Stretch, StretchNotes, Stretches, WholeCall, WholeCalls};
use everycall_export::CallAt;
use everycall_timeline::Checkpoint;
use rustc_hash::FxHashMap;

use crate::file::File;
use crate::levels::width;

/// Bytes of the stops of all tracks of a file, with the calls that are open there.
const BYTES_MAX: usize = 96 << 20;

/// A place from which a thread can be read.
#[derive(Clone)]
pub(crate) struct Stop {
    /// When the next event happened.
    pub at: u64,
    /// Events before it.
    events: u64,
    /// Numbers of the calls that are open, outermost first.
    open: Arc<[u32]>,
    /// Whether tables can begin and end here.
    is_between: bool,
    pub checkpoint: Arc<Checkpoint>,
}

impl Stop {
    fn bytes(&self) -> usize {
        size_of::<Stop>() + size_of_val::<[u32]>(&self.open) + self.checkpoint.bytes()
    }
}

/// The stops of a track.
#[derive(Default)]
pub(crate) struct Stops {
    /// By time.
    all: Vec<Stop>,
    /// The calls that are open at some stop, by number.
    calls: FxHashMap<u32, WholeCall>,
    /// What the numbers of the whole track lack; `None` before it was read.
    notes: Option<StretchNotes>,
}

impl Stops {
    /// Adds a stop behind so many events, before an event at `at`. Returns how many bytes it takes.
    pub fn add(&mut self, at: u64, events: u64, calls: &mut WholeCalls<'_>, checkpoint: Checkpoint) -> usize {
        let is_between = calls.is_between();
        let mut bytes = 0;
        let open = calls.open().map(|(number, call)| {
            self.calls.entry(number).or_insert_with(|| {
                bytes += call_bytes(call);
                call.clone()
            });
            number
        });
        let open = open.collect();
        let stop = Stop { at, events, open, is_between, checkpoint: Arc::new(checkpoint) };
        bytes += stop.bytes();
        self.all.push(stop);
        bytes
    }

    /// A call has ended that was open at a stop.
    pub fn end(&mut self, number: u32, call: WholeCall) {
        if let Some(known) = self.calls.get_mut(&number) {
            *known = call;
        }
    }

    /// An event comes at a moment: stops that seemed to be behind that are of no use for ranges.
    #[inline]
    pub fn pass(&mut self, at_ns: u64) {
        if self.all.last().is_some_and(|last| last.at > at_ns) {
            let late = self.all.iter_mut().rev().take_while(|stop| stop.at > at_ns);
            late.for_each(|stop| stop.is_between = false);
        }
    }

    /// The track was read.
    pub fn finish(&mut self, notes: StretchNotes) {
        self.notes = Some(notes);
    }

    /// The last stop before a moment, with the calls that are open there, outermost first.
    pub fn before(&self, at_ns: u64) -> Option<(Arc<Checkpoint>, Vec<&WholeCall>)> {
        let behind = self.all.partition_point(|stop| stop.at < at_ns);
        let stop = self.all.get(behind.checked_sub(1)?)?;
        let open = stop.open.iter().map(|number| self.calls.get(number)).collect::<Option<_>>()?;
        Some((Arc::clone(&stop.checkpoint), open))
    }

    /// The calls that are open at a stop; `None` if some never ended.
    fn whole(&self, stop: &Stop) -> Option<Vec<WholeCall>> {
        let calls = stop.open.iter().map(|number| self.calls.get(number).cloned());
        calls.map(|call| call.filter(WholeCall::has_ended)).collect()
    }

    fn stretch(&self, since_ns: u64, until_ns: u64, is_in_order: bool) -> Option<Stretch> {
        let notes = self.notes.clone()?;
        let first = self.all.partition_point(|stop| stop.at < since_ns);
        let begin = self.all.iter().take(first).rev().find(|stop| stop.is_between);
        let behind = self.all.partition_point(|stop| stop.at <= until_ns);
        let end = self.all.iter().skip(behind).find(|stop| stop.is_between);
        if begin.is_none() && end.is_none() {
            return None;
        }
        let before = begin.map_or_else(|| Some(Vec::new()), |stop| self.whole(stop))?;
        let passed = begin.map_or(0, |stop| stop.events);
        let end = match end {
            Some(stop) => Some((stop.events.saturating_sub(passed), self.whole(stop)?)),
            None => None,
        };
        let checkpoint = begin.map(|stop| Arc::clone(&stop.checkpoint));
        Some(Stretch { checkpoint, before, end, is_in_order, notes })
    }

    /// Drops every second stop. Returns how many bytes the others take.
    fn thin(&mut self) -> usize {
        let mut index = 0_usize;
        self.all.retain(|_| {
            index += 1;
            index.is_multiple_of(2)
        });
        let mut needed: Vec<u32> = self.all.iter().flat_map(|stop| stop.open.iter().copied()).collect();
        needed.sort_unstable();
        needed.dedup();
        self.calls.retain(|number, _| needed.binary_search(number).is_ok());
        self.calls.shrink_to_fit();
        let calls: usize = self.calls.values().map(call_bytes).sum();
        calls + self.all.iter().map(Stop::bytes).sum::<usize>()
    }
}

fn call_bytes(call: &WholeCall) -> usize {
    // Maps keep some room.
    call.bytes() * 3 / 2
}

/// How much the stops of a file take, and which of those that are made are kept.
pub(crate) struct Limit {
    pub bytes: usize,
    made: usize,
    distance: usize,
}

impl Limit {
    pub fn new() -> Limit {
        Limit { bytes: 0, made: 0, distance: 1 }
    }

    /// Whether the next one is kept.
    pub fn keeps(&mut self) -> bool {
        self.made += 1;
        self.made.is_multiple_of(self.distance)
    }

    /// Drops stops until few enough are left.
    pub fn keep(&mut self, file: &File) {
        while self.bytes > BYTES_MAX {
            self.distance *= 2;
            let tracks = 0..file.tracks.len();
            let bytes = tracks.filter_map(|thread| Some(file.track_mut(thread)?.stops.thin())).sum();
            if bytes >= std::mem::replace(&mut self.bytes, bytes) {
                break;
            }
        }
    }
}

impl Stretches for File {
    fn stretch(&self, thread: usize, since_ns: u64, until_ns: u64) -> Option<Stretch> {
        let track = self.track(thread)?;
        track.stops.stretch(since_ns, until_ns, track.is_in_order)
    }

    fn ended_ns(&self, thread: usize, call: CallAt) -> Option<u64> {
        let track = self.track(thread)?;
        let known = track.levels.find(call.depth as usize, call.start_ns);
        let known = known.filter(|cell| cell.from == call.start_ns && cell.count == 1);
        // Otherwise it is shorter than the lowest level's pixels.
        Some(known.map_or(call.start_ns.saturating_add(width(track.levels.lowest())), |cell| cell.to()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everycall_analysis::{Grouping, Order, Profile, SymbolNames, TraceView, machine};
    use everycall_export::{Filter, Source as _};
    use everycall_reader::TraceFile;
    use everycall_synth::{Module, Process, Ring, Rng, Thread};
    use everycall_timeline::Trace;
    use serde_json::Value;

    use super::*;
    use crate::file::Input;
    use crate::library::Library;

    const START: u64 = 1 << 40;

    /// Calls of two threads by chance, in a few long ones; some are left without an exit, some
    /// events are lost, and recording is off now and then.
    fn file(seed: u64, events: u64) -> Vec<u8> {
        let thread = |tid: u32| {
            let mut ring = Ring::new(4096, 400, START);
            let mut rng = Rng::new(seed + u64::from(tid));
            let (mut now, mut open) = (START, Vec::new());
            for event in 0..events {
                now += 1 + rng.below(40);
                let deepest = 3 + (event / 20_000 % 3 * 9) as usize;
                if open.len() < 3 || open.len() < deepest && rng.one_in(2) {
                    let offset = 0x1000 + 64 * rng.below(300) as u32;
                    ring.enter(now, offset);
                    open.push(offset);
                } else if rng.one_in(500) {
                    open.truncate(open.len() - 1 - rng.below(2) as usize);
                    ring.unwind(now, open.len());
                } else if open.len() > 3 || rng.one_in(10_000) {
                    ring.exit(now, open.pop().unwrap() + 16);
                }
                if rng.one_in(5000) {
                    ring.busy(now, 3);
                }
                if rng.one_in(5000) {
                    ring.gap(now, now + 30, 1, open.len());
                    now += 30;
                }
            }
            Thread { tid, name: format!("thread {tid}"), start_ticks: START, ring }
        };
        let start = 0x40_0000;
        let (base, end) = (start - 0x1000, start + 0x10_0000);
        let module = Module { base, start, end, code_start: 0x1000, ..Module::default() };
        let threads = vec![thread(1), thread(2)];
        everycall_synth::File::of(&Process { modules: vec![module], threads, ..Process::default() })
    }

    fn opened(bytes: &[u8]) -> Arc<Library> {
        let path = "test.ect".to_owned();
        let file = TraceFile::open(bytes.to_vec()).unwrap();
        let library = Library::open(vec![Input { path, file, names: Default::default() }]).unwrap();
        while !library.files().unwrap()[0].file.is_complete() {
            std::thread::sleep(Duration::from_millis(5));
        }
        library
    }

    /// Whether the rows of an answer have the numbers of a walk over the whole file.
    fn check(library: &Library, query: &str, view: &TraceView<'_>, filter: &Filter, by: Grouping) {
        let mut profile = Profile::by(by);
        profile.add_trace(view, filter);
        let answer = library.answer("report", query).unwrap();
        assert_eq!(answer["calls"], profile.calls, "{query}");
        assert_eq!(answer["not_in_the_numbers"], machine::notes(&profile.notes), "{query}");
        let rows = profile.rows_of_all_calls(Order::OwnTime);
        let shown = answer["rows"].as_array().unwrap();
        assert_eq!(shown.len(), rows.len(), "{query}");
        let object = |row: &everycall_analysis::Row<'_>| {
            machine::object(machine::key(&profile, row.key), row.sums).to_string()
        };
        let expected: std::collections::BTreeSet<String> = rows.iter().map(object).collect();
        for row in shown {
            let Value::Object(mut row) = row.clone() else { panic!("{row}") };
            row.remove("functions");
            if !matches!(profile.grouping(), Grouping::Function) {
                row.remove("name");
            }
            row.remove("function");
            let row = Value::Object(row).to_string();
            assert!(expected.contains(&row), "{query}: {row} isn't one of {expected:?}");
        }
    }

    #[test]
    fn tables_of_ranges_have_the_numbers_of_the_whole_file_and_read_a_part_of_it() {
        let events = 400_000;
        let bytes = file(1, events);
        let library = opened(&bytes);
        let open = library.files().unwrap().remove(0);
        let file = TraceFile::open(bytes).unwrap();
        let trace = Trace::open(&file).unwrap();
        let names = SymbolNames::new(&file, &trace, Default::default());
        let view = TraceView::new(&trace, &names);
        let end = view.last_event_ns();
        let mut rng = Rng::new(7);
        let mut least = u64::MAX;
        for round in 0..8 {
            let since = rng.below(end);
            let until = since + rng.below(end / [3, 100, 1000][round % 3]);
            for thread in 0..2 {
                let stretch = open.file.stretch(thread, since, until).expect("stops");
                if let Some((count, open)) = stretch.end {
                    assert!(stretch.before.len() > 1 || stretch.checkpoint.is_none());
                    assert!(open.len() > 1);
                    least = least.min(count);
                }
            }
            let range = Filter { since_ns: Some(since), until_ns: Some(until), ..Filter::default() };
            let query = format!("from={since}&to={until}");
            let (name, by) = [
                ("function", Grouping::Function),
                ("path", Grouping::Path),
                ("module", Grouping::Module),
                ("thread", Grouping::Thread),
            ][round % 4]
                .clone();
            check(&library, &format!("by={name}&{query}"), &view, &range, by);
        }
        assert!(least < events / 4, "a part of the thread: {least}");
        // One call, a long one and a short one: it and what it called.
        let list = library.answer("text", &format!("tracks=0&from={}&limit=300", end / 2)).unwrap();
        let rows = list["rows"].as_array().unwrap();
        let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
        for row in [&rows[0], rows.iter().rfind(|row| number(row, "depth") > 1).unwrap()] {
            let (start_ns, depth) = (number(row, "from"), number(row, "depth") as u32);
            let call = Some(CallAt { start_ns, depth });
            let tids = vec![view.threads()[0].tid];
            let filter = Filter { call, tids, pids: vec![view.threads()[0].pid], ..Filter::default() };
            check(&library, &format!("call=0:{start_ns}:{depth}"), &view, &filter, Grouping::Function);
        }
        // Nothing happens behind the end.
        let empty = library.answer("flame", &format!("from={}&to={}", end + 10, end + 20)).unwrap();
        assert_eq!(empty["root"]["children"], serde_json::json!([]), "{empty}");
    }
}
