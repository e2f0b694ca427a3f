//! Facts about a file before its events are read: enough for the page to show tracks while a large
//! file is opened.

use everycall_reader::{Recording, Source as _, Thread};
use everycall_timeline::{Clock, FIBERS_FROM};
use serde_json::{Value, json};

use crate::file::{Input, track_id};

/// The beginning of an answer to `trace`, without events. Times are estimates: the first event of a
/// thread is later than its start.
pub(crate) fn glance(index: usize, input: &Input) -> Value {
    let recording = input.file.recording();
    let threads = || recording.snapshots.iter().flat_map(|snapshot| &snapshot.threads);
    let clock = Clock::new(&recording.clock, threads().map(|thread| thread.start_ticks).min());
    let end = recording.snapshots.iter().filter_map(|snapshot| snapshot.ticks).max();
    let end_ns = end.map_or(0, |ticks| clock.ns(ticks));
    json!({
        "name": input.path,
        "duration_ns": end_ns,
        "bytes": input.file.size(),
        "processes": processes(index, recording, &clock, end_ns),
    })
}

/// The process with its tracks, if there is only one: the order of several isn't known yet.
fn processes(file: usize, recording: &Recording, clock: &Clock, end_ns: u64) -> Value {
    let [process] = recording.processes.as_slice() else { return json!([]) };
    let id = |thread: &Thread| thread.fiber.map_or(thread.tid, |fiber| FIBERS_FROM.saturating_add(fiber));
    let snapshots = recording.snapshots.iter().enumerate();
    let mut threads: Vec<(usize, &Thread)> = snapshots
        .flat_map(|(place, snapshot)| snapshot.threads.iter().map(move |thread| (place, thread)))
        .collect();
    // As the outputs sort them.
    threads.sort_by_key(|(place, thread)| (*place, thread.pid != id(thread), clock.ns(thread.start_ticks)));
    let track = |(index, (_, thread)): (usize, &(usize, &Thread))| {
        json!({
            "id": track_id(file, index),
            "pid": thread.pid,
            "tid": thread.fiber.unwrap_or(thread.tid),
            "name": thread.name_lossy(),
            "kind": if thread.is_sampled { "counter" } else if thread.fiber.is_some() { "fiber" } else { "thread" },
            "depth": 1,
            "from": clock.ns(thread.start_ticks),
            "to": end_ns,
            "events": 0,
            "complete": false,
            "read_ns": 0,
            "has_marks": false,
            "has_states": false,
        })
    };
    let name = String::from_utf8_lossy(process.command.first().map_or(&process.name, |command| command));
    json!([{
        "file": file,
        "pid": process.pid,
        "name": name.rsplit('/').next(),
        "tracks": threads.iter().enumerate().map(track).collect::<Vec<_>>(),
    }])
}
