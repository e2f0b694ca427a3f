//! The contents of the files.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use everycall_analysis::{KeptCall, counters, kept_calls};
use everycall_export::Source as _;
use everycall_timeline::ThreadInfo;
use serde_json::{Map, Value, json};

use crate::cell::Cell;
use crate::file::{File, lock};
use crate::library::{Library, OpenFile};
use crate::marks::{Kind, Text};
use crate::query::{Answered, Query};

/// Calls of a kept call's shape.
const SHAPE_MAX: usize = 16;
/// Losses that are listed.
const LOSSES_MAX: usize = 1000;

/// `trace`.
pub(crate) fn trace(library: &Library) -> Answered<Value> {
    if let Some(glances) = library.glances() {
        return Ok(opening(&glances));
    }
    // Before they are counted, there is an estimate.
    let is_counting = library.is_counting();
    let files = library.drawn()?;
    let first = files.first().ok_or("there is no file")?;
    let sum = |of: fn(&File) -> u64| files.iter().map(|open| of(&open.file)).sum::<u64>();
    let events = sum(|file| {
        let counted = file.trace.threads().iter().map(|thread| thread.events).sum();
        file.sketch.as_ref().filter(|_| counted == 0).map_or(counted, |sketch| sketch.events())
    });
    let is_complete = files.iter().all(|open| open.file.is_complete());
    let read = sum(|file| file.read_events.load(Ordering::Relaxed));
    let mut labels = BTreeSet::new();
    let mut kept = Vec::new();
    for open in &files {
        labels.extend(lock(&open.file.labels).iter().cloned());
        kept.extend(kept_of(open)?);
    }
    Ok(json!({
        "files": files.iter().map(|open| file_json(&open.file)).collect::<Vec<_>>(),
        "program": first.file.trace.processes().first().map(|process| everycall_export::process_name(&first.file.trace, process)),
        // Above 2^53, so as text.
        "begin_wall_ns": first.file.trace.clock().origin_realtime_ns().map(|ns| ns.to_string()),
        "duration_ns": files.iter().map(|open| open.file.end_ns).max(),
        "events": events,
        "counting": is_counting,
        "complete": is_complete,
        "read_events": if is_complete { events } else { read.min(events) },
        "file_bytes": sum(|file| file.file.size()),
        "read_bytes": if events == 0 { 0.0 } else { sum(|file| file.file.size()) as f64 * read.min(events) as f64 / events as f64 }.floor(),
        "processes": files.iter().flat_map(|open| processes(&open.file)).collect::<Vec<_>>(),
        "functions": lock(&library.functions).len(),
        "labels": labels,
        "kept": kept,
        "losses": files.iter().flat_map(|open| losses(&open.file)).take(LOSSES_MAX).collect::<Vec<_>>(),
        "modules": files.iter().flat_map(|open| modules(&open.file)).collect::<Vec<_>>(),
        "notes": files.iter().flat_map(|open| notes(&open.file)).collect::<Vec<_>>(),
    }))
}

/// The answer while files are being opened: their events were not counted yet.
fn opening(glances: &[Value]) -> Value {
    let sum = |name: &str| glances.iter().filter_map(|glance| glance[name].as_u64()).sum::<u64>();
    let list = |name: &str| {
        glances.iter().filter_map(|glance| glance[name].as_array()).flatten().collect::<Vec<_>>()
    };
    json!({
        "files": glances,
        "program": glances.first().map(|glance| &glance["processes"][0]["name"]),
        "begin_wall_ns": null,
        "duration_ns": glances.iter().filter_map(|glance| glance["duration_ns"].as_u64()).max(),
        "events": 0,
        "opening": true,
        "complete": false,
        "read_events": 0,
        "file_bytes": sum("bytes"),
        "read_bytes": 0,
        "processes": list("processes"),
        "functions": 0,
        "kept": [],
        "losses": [],
        "modules": [],
        "notes": [],
    })
}

fn file_json(file: &File) -> Value {
    let meta = file.trace.meta();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<String> = meta.arguments.iter().map(|word| text(word)).collect();
    json!({
        "name": file.path,
        "command": words.join(" "),
        "host": text(&meta.host),
        "everycall_version": text(&meta.tool_version),
        "duration_ns": file.end_ns,
        "bytes": file.file.size(),
    })
}

/// The processes of a file, each with its tracks.
fn processes(file: &File) -> Vec<Value> {
    let mut places: Vec<usize> = Vec::new();
    for thread in &file.threads {
        if !places.contains(&thread.process) {
            places.push(thread.process);
        }
    }
    let of = |process: &usize| {
        let known = file.trace.processes().get(*process);
        let tracks = (0..file.threads.len()).filter(|thread| file.threads[*thread].process == *process);
        json!({
            "file": file.index,
            "pid": known.map(|known| known.pid),
            "name": known.map(|known| everycall_export::process_name(&file.trace, known)),
            "tracks": tracks.map(|thread| track(file, thread)).collect::<Vec<_>>(),
        })
    };
    places.iter().map(of).collect()
}

fn track(file: &File, index: usize) -> Value {
    let thread = &file.threads[index];
    let info = file.indices.get(index).and_then(|at| file.trace.threads().get(*at));
    let reach = info.and_then(|info| info.reach);
    let known = file.track(index);
    let depth = known.as_ref().map_or(0, |track| track.levels.depths().max(track.open.len()));
    let is_read = known.as_ref().is_some_and(|track| track.is_complete);
    let sketch = file.sketch.as_ref().filter(|_| !is_read);
    let depth = depth.max(sketch.map_or(0, |sketch| sketch.depth(index)));
    let (kind, number) = match (thread.task(), thread.fiber()) {
        _ if thread.is_sampled => ("counter", thread.tid),
        (Some(task), _) => ("task", task),
        (None, Some(fiber)) => ("fiber", fiber),
        (None, None) => ("thread", thread.tid),
    };
    json!({
        "id": file.track_id(index),
        "pid": thread.pid,
        "tid": number,
        "name": thread.name,
        "kind": kind,
        "depth": depth,
        "from": reach.map_or(0, |(from, _)| from),
        "to": reach.map_or(0, |(_, to)| to),
        "events": info.map_or(0, |info| info.events),
        "complete": known.as_ref().is_some_and(|track| track.is_complete),
        "read_ns": known.as_ref().map(|track| track.read_ns),
        "has_marks": known.as_ref().is_some_and(|track| !track.marks.is_empty()),
        "has_states": file.states(index).is_some(),
    })
}

fn kept_of(open: &std::sync::Arc<OpenFile>) -> Answered<Vec<Value>> {
    if open.file.trace.kept_calls().is_empty() {
        return Ok(Vec::new());
    }
    let kept = open.quick.ask(|context| {
        let calls = kept_calls(context.view.trace(), context.names);
        calls
            .into_iter()
            .map(|call| {
                let place = place_of(context.file, &call);
                let threads = context.view.threads().iter();
                let of_thread =
                    threads.enumerate().find(|(_, thread)| (thread.pid, thread.tid) == (call.pid, call.tid));
                let thread = place.map(|(thread, _)| thread).or(of_thread.map(|(index, _)| index));
                let triggers = context.view.trace().triggers();
                let trigger = triggers
                    .get(call.trigger)
                    .map(|trigger| String::from_utf8_lossy(&trigger.text).into_owned());
                json!({
                    "number": call.number,
                    "trigger": trigger,
                    "function": call.function,
                    "from": call.start_ns,
                    "to": call.start_ns.saturating_add(call.took_ns),
                    "track": thread.map(|index| context.file.track_id(index)),
                    "depth": place.map(|(_, depth)| depth),
                    "thread": call.thread,
                    "duration_ns": call.took_ns,
                    "bound": bound(&call),
                    "jumped_to": call.tail.as_ref().and_then(|tail| tail.target.as_deref()),
                    "behind_ns": call.tail.as_ref().map_or(0, |tail| tail.behind_ns),
                    "unwound": call.is_unwound,
                    "shape": place.map_or_else(Vec::new, |place| shape(context.file, place, &call)),
                })
            })
            .collect()
    })?;
    Ok(kept)
}

/// Where a kept call is drawn: track and depth. It may be on a track of a task or a fiber, which
/// the thread ran. `None` if its beginning isn't there, or wasn't read yet.
fn place_of(file: &File, call: &KeptCall) -> Option<(usize, usize)> {
    if !call.is_call {
        return None;
    }
    let its = |thread: &usize| file.threads[*thread].pid == call.pid;
    let mut threads: Vec<usize> = (0..file.threads.len()).filter(its).collect();
    // Its own thread first.
    threads.sort_by_key(|thread| file.threads[*thread].tid != call.tid);
    let end_ns = call.start_ns.saturating_add(call.took_ns);
    threads.into_iter().find_map(|thread| {
        let track = file.track(thread)?;
        let levels = &track.levels;
        // A call may begin together with its caller: the one whose end fits best.
        let distance = |depth: usize| {
            let cell = levels.find(depth, call.start_ns)?;
            let is_it = cell.from == call.start_ns && cell.count == 1;
            is_it.then(|| (cell.to().abs_diff(end_ns), depth))
        };
        let (_, depth) = (0..levels.depths()).filter_map(distance).min()?;
        Some((thread, depth))
    })
}

/// Whether a kept call's duration is a bound.
fn bound(call: &KeptCall) -> Option<&'static str> {
    match call.most_ns() {
        None => Some("at least"),
        Some(most) => (call.least_ns() < most).then_some("at most"),
    }
}

/// The longest callee of a kept call, that one's, and so on: functions with durations, from the
/// call itself on. What its tail call led to counts as called; code that isn't traced isn't there,
/// and the path ends before it if it took longest.
fn shape(file: &File, (thread, mut depth): (usize, usize), kept: &KeptCall) -> Vec<(u32, u64)> {
    let Some(track) = file.track(thread) else { return Vec::new() };
    let levels = &track.levels;
    let Some(first) = levels.find(depth, kept.start_ns) else { return Vec::new() };
    let mut shape = vec![(first.function, kept.took_ns)];
    let longest_in = |depth: usize, from: u64, to: u64, least: u64| {
        let mut longest: Option<Cell> = None;
        let mut longest_ns = least;
        levels.cells_of(depth..depth + 1, levels.lowest(), from, to, &mut |_, cell| {
            let ns = cell.to() - cell.from;
            let is_within = cell.from >= from && cell.to() <= to;
            if is_within && cell.count == 1 && (ns > longest_ns || longest.is_none() && ns == longest_ns) {
                (longest, longest_ns) = (Some(cell), ns);
            }
        });
        longest
    };
    // Its tail calls are beside it.
    let untraced_ns = match &kept.tail {
        Some(tail) if tail.is_at_most => tail.behind_ns,
        _ => 0,
    };
    let end_ns = kept.start_ns.saturating_add(kept.took_ns);
    let behind = longest_in(depth, first.to(), end_ns, untraced_ns.max(1));
    let behind_ns = behind.map_or(untraced_ns, |cell| cell.to() - cell.from);
    let inside = longest_in(depth + 1, first.from, first.to(), behind_ns);
    let mut next = match inside {
        Some(_) => {
            depth += 1;
            inside
        }
        None => behind,
    };
    while let Some(call) = next.filter(|_| shape.len() < SHAPE_MAX) {
        shape.push((call.function, call.to() - call.from));
        depth += 1;
        next = longest_in(depth, call.from, call.to(), 0);
    }
    shape
}

fn losses(file: &File) -> Vec<Value> {
    let mut all = Vec::new();
    for index in 0..file.threads.len() {
        let Some(track) = file.track(index) else { continue };
        let items = track.marks.within(0, u64::MAX, usize::MAX);
        all.extend(items.iter().filter(|item| item.kind == Kind::Loss).take(LOSSES_MAX).map(|item| {
            let events = match item.text {
                Text::Lost(count) => count,
                _ => None,
            };
            let why = match item.text {
                Text::Off(why) => Some(why),
                _ => None,
            };
            json!({ "track": file.track_id(index), "from": item.at, "to": item.to, "events": events, "why": why })
        }));
        if all.len() >= LOSSES_MAX {
            break;
        }
    }
    all
}

fn modules(file: &File) -> Vec<Value> {
    let clock = file.trace.clock();
    let module = |module: &everycall_reader::Module| {
        let mut object = Map::new();
        object.insert("path".to_owned(), json!(module.path_lossy()));
        object.insert("from".to_owned(), json!(clock.ns(module.loaded_ticks)));
        object.insert("to".to_owned(), json!(module.unloaded_ticks.map(|ticks| clock.ns(ticks))));
        let build: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        object.insert("build_id".to_owned(), json!(build));
        Value::Object(object)
    };
    file.trace.modules().iter().filter(|module| !module.path.is_empty()).map(module).collect()
}

/// Damage and losses, as sentences; none exactly if `info` calls the file complete, without an
/// exception.
fn notes(file: &File) -> Vec<String> {
    let mut notes: Vec<String> = file.trace.warnings().iter().map(ToString::to_string).collect();
    let sum = |of: fn(&ThreadInfo) -> u64| file.trace.threads().iter().map(of).sum::<u64>();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    add(sum(|thread| thread.losses), "events are lost within the times shown");
    add(sum(|thread| thread.missing), "events of missing segments are lost");
    let overwritten = sum(|thread| u64::from(thread.is_cut));
    let keeps = everycall_analysis::ring_that_keeps_all(&file.trace).map(|size| {
        format!("`everycall record --ring-size {size}` would have kept it, and `--stream` keeps everything")
    });
    let keeps = keeps.unwrap_or_else(|| "`everycall record --stream` keeps everything".to_owned());
    add(overwritten, &format!("threads have lost their beginning: newer events took its place; {keeps}"));
    add(
        sum(|thread| thread.dropped_within.unwrap_or(0)),
        "short calls were dropped on purpose while recording",
    );
    let too_deep =
        (0..file.threads.len()).filter_map(|index| file.track(index)).map(|track| track.levels.too_deep);
    add(too_deep.sum(), "calls are deeper than the viewer draws");
    notes.extend(counters::counted_doubts(&file.trace));
    notes.extend(counters::changed_selections(&file.trace));
    let is_complete = notes.is_empty();
    let gaps = counters::gaps(sum(|thread| thread.gaps));
    notes.extend(gaps.map(|gaps| if is_complete { format!("complete but for {gaps}") } else { gaps }));
    notes
}

/// `functions`.
pub(crate) fn functions(library: &Library, query: &Query) -> Answered<Value> {
    let functions = lock(&library.functions);
    let from = query.number("from")?.unwrap_or(0);
    let to = query.number("to")?.unwrap_or(functions.len() as u64);
    let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(functions.json(place(from), place(to)))
}
