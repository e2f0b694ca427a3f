//! The contents of the files.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use everycall_analysis::{EventPrice, KeptCall, counters, kept_calls};
use everycall_export::Source as _;
use everycall_timeline::{ThreadInfo, Trace};
use serde::Serialize;

use super::Answered;
use super::draw::begin_ns;
use crate::cell::Cell;
use crate::facts::{FileFacts, ProcessFacts, TrackFacts};
use crate::file::{File, Track, lock};
use crate::functions::FunctionFacts;
use crate::glance::Glance;
use crate::library::{Library, OpenFile};
use crate::marks::{Kind, Text};

/// Calls of a kept call's shape.
const SHAPE_MAX: usize = 16;
/// Losses that are listed.
const LOSSES_MAX: usize = 1000;

/// The contents of the files, as far as they were read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceFacts {
    /// The files.
    pub files: Vec<FileFacts>,
    /// The program of the first of them.
    pub program: Option<String>,
    /// When the first of them begins: nanoseconds of the real-time clock. As text, because numbers
    /// above 2^53 lose digits in JSON.
    pub begin_wall_ns: Option<String>,
    /// Until the last of them ends.
    pub duration_ns: Option<u64>,
    /// Of a running program: where what is kept of it begins; 0 for its start.
    #[serde(skip_serializing_if = "is_zero")]
    pub begin_ns: u64,
    /// Of a running program: the number of this state of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Of a running program: what recording one call costs it, in nanoseconds, as it has measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_price_ns: Option<f64>,
    /// Entries, exits and marks.
    pub events: u64,
    /// Whether they are being opened: their events were not counted yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opening: bool,
    /// Whether their events are still being counted: there is an estimate.
    pub counting: bool,
    /// Whether all of them were read.
    pub complete: bool,
    /// Events that were read.
    pub read_events: u64,
    /// Size of the files.
    pub file_bytes: u64,
    /// Bytes that were read, about.
    pub read_bytes: f64,
    /// Their processes.
    pub processes: Vec<ProcessFacts>,
    /// How many functions are known.
    pub functions: usize,
    /// Names of labels.
    pub labels: BTreeSet<String>,
    /// Calls that triggers kept, and snapshots.
    pub kept: Vec<Kept>,
    /// Events that are lost.
    pub losses: Vec<LossFacts>,
    /// Their modules.
    pub modules: Vec<ModuleFacts>,
    /// Damage and losses, as sentences.
    pub notes: Vec<String>,
}

/// The price of the hooks of one call, where the process has measured it.
fn call_price_ns(trace: &Trace<'_>) -> Option<f64> {
    let known = trace.calibrations().first().filter(|known| known.is_measured)?;
    let has_sites = trace.modules().iter().any(everycall_reader::Module::has_sites);
    let [_, of_event, _] = EventPrice::of(trace, if has_sites { &known.sites } else { &known.bodies }).ns();
    Some(2.0 * of_event)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call that a trigger kept, or a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The number that `--kept` takes.
    pub number: usize,
    /// The trigger.
    pub trigger: Option<String>,
    /// Its function.
    pub function: Option<String>,
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Its track.
    pub track: Option<u32>,
    /// Where it is drawn in the track; `None` if it isn't there, or wasn't read yet.
    pub depth: Option<usize>,
    /// Name of its thread.
    pub thread: String,
    /// How long it took.
    pub duration_ns: u64,
    /// `at least` or `at most`, if that is a bound.
    pub bound: Option<&'static str>,
    /// The function that it jumped to.
    pub jumped_to: Option<String>,
    /// How long that took.
    pub behind_ns: u64,
    /// Whether it was unwound.
    pub unwound: bool,
    /// It, its longest callee, that one's, and so on: functions with durations.
    pub shape: Vec<(u32, u64)>,
}

/// Events that are lost.
#[derive(Clone, Debug, Serialize)]
pub struct LossFacts {
    /// The track.
    pub track: u32,
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End.
    pub to: u64,
    /// How many, if they were counted.
    pub events: Option<u64>,
    /// Why recording was off.
    pub why: Option<&'static str>,
}

/// An executable or a shared object.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleFacts {
    /// Its path.
    pub path: String,
    /// When it was loaded, in nanoseconds since the trace's begin.
    pub from: u64,
    /// When it was unloaded.
    pub to: Option<u64>,
    /// Its build id.
    pub build_id: String,
}

/// The contents of the files.
///
/// # Errors
///
/// A sentence why they aren't known.
pub fn trace(library: &Library) -> Answered<TraceFacts> {
    if let Some(glances) = library.glances() {
        return Ok(opening(glances));
    }
    // Before they are counted, there is an estimate.
    let is_counting = library.is_counting();
    let files = library.drawn()?;
    let first = &files.first().ok_or("there is no file")?.file;
    let sum = |of: fn(&File) -> u64| files.iter().map(|open| of(&open.file)).sum::<u64>();
    let events = sum(|file| {
        let counted = file.trace.threads().iter().map(|thread| thread.events).sum();
        file.sketch.as_ref().filter(|_| counted == 0).map_or(counted, |sketch| sketch.events())
    });
    let is_complete = files.iter().all(|open| open.file.is_complete());
    let read = sum(|file| file.read_events.load(Ordering::Relaxed)).min(events);
    let mut labels = BTreeSet::new();
    let mut kept = Vec::new();
    for open in &files {
        labels.extend(lock(&open.file.labels).iter().cloned());
        kept.extend(kept_of(open)?);
    }
    let file_bytes = sum(|file| file.file.size());
    let read_bytes = if events == 0 { 0.0 } else { file_bytes as f64 * read as f64 / events as f64 };
    Ok(TraceFacts {
        files: files.iter().map(|open| file_facts(&open.file)).collect(),
        program: first
            .trace
            .processes()
            .first()
            .map(|process| everycall_export::process_name(&first.trace, process)),
        begin_wall_ns: first.trace.clock().origin_realtime_ns().map(|ns| ns.to_string()),
        duration_ns: files.iter().map(|open| open.file.end_ns).max(),
        begin_ns: begin_ns(&files),
        generation: library.generation,
        call_price_ns: library.generation.and_then(|_| call_price_ns(&first.trace)),
        events,
        opening: false,
        counting: is_counting,
        complete: is_complete,
        read_events: if is_complete { events } else { read },
        file_bytes,
        read_bytes: read_bytes.floor(),
        processes: files.iter().flat_map(|open| processes(&open.file)).collect(),
        functions: lock(&library.functions).len(),
        labels,
        kept,
        losses: files.iter().flat_map(|open| losses(&open.file)).take(LOSSES_MAX).collect(),
        modules: files.iter().flat_map(|open| modules(&open.file)).collect(),
        notes: files.iter().flat_map(|open| notes(&open.file)).collect(),
    })
}

/// The answer while files are being opened.
fn opening(glances: Vec<Glance>) -> TraceFacts {
    let (files, processes): (Vec<_>, Vec<_>) =
        glances.into_iter().map(|glance| (glance.file, glance.processes)).unzip();
    TraceFacts {
        program: processes.first().and_then(|of| of.first()?.name.clone()),
        duration_ns: files.iter().map(|file| file.duration_ns).max(),
        opening: true,
        file_bytes: files.iter().map(|file| file.bytes).sum(),
        processes: processes.into_iter().flatten().collect(),
        files,
        ..TraceFacts::default()
    }
}

fn file_facts(file: &File) -> FileFacts {
    let meta = file.trace.meta();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<String> = meta.arguments.iter().map(|word| text(word)).collect();
    FileFacts {
        name: file.path.clone(),
        command: words.join(" "),
        host: text(&meta.host),
        everycall_version: text(&meta.tool_version),
        duration_ns: file.end_ns,
        bytes: file.file.size(),
    }
}

/// The processes of a file, each with its tracks.
fn processes(file: &File) -> Vec<ProcessFacts> {
    let mut places: Vec<usize> = Vec::new();
    for thread in &file.threads {
        if !places.contains(&thread.process) {
            places.push(thread.process);
        }
    }
    let of = |process: &usize| {
        let known = file.trace.processes().get(*process);
        let tracks = (0..file.threads.len()).filter(|thread| file.threads[*thread].process == *process);
        ProcessFacts {
            file: file.index,
            pid: known.map(|known| known.pid),
            name: known.map(|known| everycall_export::process_name(&file.trace, known)),
            tracks: tracks.map(|thread| track(file, thread)).collect(),
        }
    };
    places.iter().map(of).collect()
}

fn track(file: &File, index: usize) -> TrackFacts {
    let thread = &file.threads[index];
    let info = file.indices.get(index).and_then(|at| file.trace.threads().get(*at));
    let reach = info.and_then(|info| info.reach);
    let known = file.track(index);
    let depths = |track: &Track| track.levels.depths().max(track.open.len()).max(track.samples.depths());
    let depth = known.as_ref().map_or(0, |track| depths(track));
    let is_read = known.as_ref().is_some_and(|track| track.is_complete);
    let sketch = file.sketch.as_ref().filter(|_| !is_read);
    let depth = depth.max(sketch.map_or(0, |sketch| sketch.depth(index)));
    let (kind, number) = match (thread.task(), thread.fiber()) {
        _ if thread.is_sampled => ("counter", thread.tid),
        (Some(task), _) => ("task", task),
        (None, Some(fiber)) => ("fiber", fiber),
        (None, None) => ("thread", thread.tid),
    };
    TrackFacts {
        id: file.track_id(index),
        pid: thread.pid,
        tid: number,
        name: thread.name.clone(),
        kind,
        depth,
        from: reach.map_or(0, |(from, _)| from),
        to: reach.map_or(0, |(_, to)| to),
        events: info.map_or(0, |info| info.events),
        complete: is_read,
        read_ns: known.as_ref().map(|track| track.read_ns),
        has_marks: known.as_ref().is_some_and(|track| !track.marks.is_empty()),
        has_states: file.states(index).is_some(),
        has_samples: known.as_ref().is_some_and(|track| !track.samples.is_empty()),
    }
}

fn kept_of(open: &std::sync::Arc<OpenFile>) -> Answered<Vec<Kept>> {
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
                Kept {
                    number: call.number,
                    trigger,
                    from: call.start_ns,
                    to: call.start_ns.saturating_add(call.took_ns),
                    track: thread.map(|index| context.file.track_id(index)),
                    depth: place.map(|(_, depth)| depth),
                    duration_ns: call.took_ns,
                    bound: bound(&call),
                    behind_ns: call.tail.as_ref().map_or(0, |tail| tail.behind_ns),
                    unwound: call.is_unwound,
                    shape: place.map_or_else(Vec::new, |place| shape(context.file, place, &call)),
                    function: call.function,
                    thread: call.thread,
                    jumped_to: call.tail.and_then(|tail| tail.target),
                }
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

fn losses(file: &File) -> Vec<LossFacts> {
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
            LossFacts { track: file.track_id(index), from: item.at, to: item.to, events, why }
        }));
        if all.len() >= LOSSES_MAX {
            break;
        }
    }
    all
}

fn modules(file: &File) -> Vec<ModuleFacts> {
    let clock = file.trace.clock();
    let module = |module: &everycall_reader::Module| ModuleFacts {
        path: module.path_lossy().to_string(),
        from: clock.ns(module.loaded_ticks),
        to: module.unloaded_ticks.map(|ticks| clock.ns(ticks)),
        build_id: module.build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
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

/// The functions with the numbers `from` until `to`, as far as they are known.
#[must_use]
pub fn functions(library: &Library, from: usize, to: usize) -> Vec<FunctionFacts> {
    lock(&library.functions).facts(from, to)
}

/// Begin and end of the window that the library's filter leaves, in nanoseconds, once the files are
/// open.
///
/// # Errors
///
/// A sentence why it isn't known.
pub fn window(library: &Library) -> Answered<(Option<u64>, Option<u64>)> {
    let files = library.files()?;
    let filters = || files.iter().map(|open| &open.file.filter);
    let since = filters().map(|filter| filter.since_ns).min().flatten();
    let until = filters().map(|filter| filter.until_ns).collect::<Option<Vec<_>>>();
    Ok((since, until.and_then(|all| all.into_iter().max())))
}
