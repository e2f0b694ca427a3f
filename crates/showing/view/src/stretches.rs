//! The stops of a file's tracks: how many are kept, and which part of a track a range needs.

use everycall_analysis::{Stretch, Stretches};
use everycall_export::CallAt;

use crate::file::File;
use crate::levels::width;

/// Bytes of the stops of all tracks of a file, with the calls that are open there.
const BYTES_MAX: usize = 96 << 20;

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
    use std::sync::Arc;
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

    fn json(library: &Library, path: &str, query: &str) -> Value {
        serde_json::from_slice(&crate::requests::answer(library, path, query).body).unwrap()
    }

    /// Whether the rows of an answer have the numbers of a walk over the whole file.
    fn check(library: &Library, query: &str, view: &TraceView<'_>, filter: &Filter, by: Grouping) {
        let mut profile = Profile::by(by);
        profile.add_trace(view, filter);
        let answer = json(library, "report", query);
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
        let list = json(&library, "text", &format!("tracks=0&from={}&limit=300", end / 2));
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
        let empty = json(&library, "flame", &format!("from={}&to={}", end + 10, end + 20));
        assert_eq!(empty["root"]["children"], serde_json::json!([]), "{empty}");
    }
}
