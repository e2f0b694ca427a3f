//! Facts about a file before its events are read: enough for the page to show tracks while a large
//! file is opened.

use everycall_reader::{Recording, Source as _, Thread};
use everycall_timeline::{Clock, FIBERS_FROM};

use crate::facts::{FileFacts, ProcessFacts, TrackFacts};
use crate::file::{Input, track_id};

/// Facts about a file and its processes, without events.
#[derive(Clone)]
pub(crate) struct Glance {
    pub file: FileFacts,
    pub processes: Vec<ProcessFacts>,
}

/// The facts. Times are estimates: the first event of a thread is later than its start.
pub(crate) fn glance(index: usize, input: &Input) -> Glance {
    let recording = input.file.recording();
    let threads = || recording.snapshots.iter().flat_map(|snapshot| &snapshot.threads);
    let clock = Clock::new(&recording.clock, threads().map(|thread| thread.start_ticks).min());
    let end = recording.snapshots.iter().filter_map(|snapshot| snapshot.ticks).max();
    let end_ns = end.map_or(0, |ticks| clock.ns(ticks));
    Glance {
        file: FileFacts {
            name: input.path.clone(),
            duration_ns: end_ns,
            bytes: input.file.size(),
            ..FileFacts::default()
        },
        processes: Vec::from_iter(process(index, recording, &clock, end_ns)),
    }
}

/// The process with its tracks, if there is only one: the order of several isn't known yet.
fn process(file: usize, recording: &Recording, clock: &Clock, end_ns: u64) -> Option<ProcessFacts> {
    let [process] = recording.processes.as_slice() else { return None };
    let id = |thread: &Thread| thread.fiber.map_or(thread.tid, |fiber| FIBERS_FROM.saturating_add(fiber));
    let snapshots = recording.snapshots.iter().enumerate();
    let mut threads: Vec<(usize, &Thread)> = snapshots
        .flat_map(|(place, snapshot)| snapshot.threads.iter().map(move |thread| (place, thread)))
        .collect();
    // As the outputs sort them.
    threads.sort_by_key(|(place, thread)| (*place, thread.pid != id(thread), clock.ns(thread.start_ticks)));
    let track = |(index, (_, thread)): (usize, &(usize, &Thread))| TrackFacts {
        id: track_id(file, index),
        pid: thread.pid,
        tid: thread.fiber.unwrap_or(thread.tid),
        name: thread.name_lossy().to_string(),
        kind: match thread.fiber {
            _ if thread.is_sampled => "counter",
            Some(_) => "fiber",
            None => "thread",
        },
        depth: 1,
        from: clock.ns(thread.start_ticks),
        to: end_ns,
        read_ns: Some(0),
        ..TrackFacts::default()
    };
    let name = String::from_utf8_lossy(process.command.first().map_or(&process.name, |command| command));
    Some(ProcessFacts {
        file,
        pid: Some(process.pid),
        name: name.rsplit('/').next().map(str::to_owned),
        tracks: threads.iter().enumerate().map(track).collect(),
    })
}
