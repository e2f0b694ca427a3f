//! The contents of a window of time.

use std::collections::BTreeMap;
use std::ops::Range;

use everycall_export::{Source as _, type_name};
use everycall_timeline::{StateTimes, ThreadState, system_call_name};
use serde::{Serialize, Serializer};

use super::Answered;
use crate::cell::{Cell, SEVERAL};
use crate::context::Context;
use crate::file::{DENSITY, File, lock, place_of_track};
use crate::levels::Merger;
use crate::library::{Library, OpenFile, quick_threads};
use crate::marks::{Item, Kind, Text};
use crate::series::{Point, Series};
use crate::{parts, window};
use everycall_answers::bits;

/// Calls are summaries of several; all are exact otherwise.
const CELLS: u32 = 1;
/// The file is still being read here.
const INCOMPLETE: u32 = 2;

/// The drawing of a track.
#[derive(Default)]
pub(crate) struct Drawn {
    pub flags: u32,
    /// Depth and cell, by depth and then by time.
    pub cells: Vec<(usize, Cell)>,
}

/// The tracks that are meant; `None` for all.
pub(crate) fn tracks_of(library: &Library, tracks: Option<Vec<u32>>) -> Answered<Vec<u32>> {
    if let Some(tracks) = tracks {
        return Ok(tracks);
    }
    let files = library.drawn()?;
    Ok(files
        .iter()
        .flat_map(|open| (0..open.file.threads.len()).map(|thread| open.file.track_id(thread)))
        .collect())
}

/// When the longest of the files ends, in nanoseconds since its begin.
///
/// # Errors
///
/// A sentence why it isn't known.
pub fn end_ns(library: &Library) -> Answered<u64> {
    Ok(library.drawn()?.iter().map(|open| open.file.end_ns).max().unwrap_or(0))
}

/// The slices of tracks in columns, as the page gets them.
pub(crate) fn encoded(
    library: &Library,
    tracks: &[u32],
    window: (u64, u64, u64),
    depths: &Range<usize>,
) -> Answered<Vec<u8>> {
    let mut body = Vec::new();
    body.extend_from_slice(b"EVS1");
    body.extend_from_slice(&(tracks.len() as u32).to_le_bytes());
    for (id, drawn) in tracks.iter().zip(all_drawn(library, tracks, window, depths)?) {
        encode(&mut body, *id, &drawn, depths.start);
    }
    Ok(body)
}

/// The drawing of each track. Those that need events are shared out among the threads that answer
/// frames.
fn all_drawn(
    library: &Library,
    tracks: &[u32],
    window: (u64, u64, u64),
    depths: &Range<usize>,
) -> Answered<Vec<Drawn>> {
    let mut all: Vec<Drawn> = tracks.iter().map(|_| Drawn::default()).collect();
    // By file: places among the tracks, and threads.
    let mut need_events = BTreeMap::new();
    for ((place, id), drawn) in tracks.iter().enumerate().zip(&mut all) {
        let (open, thread) = library.drawn_track(*id)?;
        if needs_events(&open.file, thread, window) {
            let of_file =
                need_events.entry(open.file.index).or_insert_with(|| (open, Vec::<(usize, usize)>::new()));
            of_file.1.push((place, thread));
        } else {
            *drawn = of_levels(&open.file, thread, window, depths.clone());
        }
    }
    let mut asked = Vec::new();
    for (open, threads) in need_events.values() {
        let some = threads.len().div_ceil(quick_threads());
        for some in threads.chunks(some) {
            let (threads, depths) = (some.to_vec(), depths.clone());
            asked.push(open.quick.begin(move |context| {
                let drawn =
                    |(place, thread): (usize, usize)| (place, of_events(context, thread, window, &depths));
                threads.into_iter().map(drawn).collect::<Vec<_>>()
            })?);
        }
    }
    // Dropped once all of them are there.
    let _frames: Vec<_> =
        need_events.values().filter_map(|(open, _)| Some(open.file.sketch.as_ref()?.frame())).collect();
    for some in asked {
        for (place, drawn) in some.answer()? {
            if let Some(of_track) = all.get_mut(place) {
                *of_track = drawn;
            }
        }
    }
    Ok(all)
}

/// A call, or several that are narrower than a pixel, in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of enclosing calls.
    pub depth: usize,
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Number of the function, of several calls that of the longest; `None` if it isn't known.
    pub function: Option<u32>,
    /// How many calls it stands for.
    pub calls: u32,
    /// [`bits`](crate::bits).
    pub bits: u8,
}

/// The slices of a track in a window of time that is so many pixels wide, by depth and then by
/// time.
///
/// # Errors
///
/// A sentence why there are none.
pub fn slices(
    library: &Library,
    track: u32,
    (from, to, pixels): (u64, u64, u64),
    depths: Range<usize>,
) -> Answered<Vec<Slice>> {
    let window = (from, to.max(from), pixels.max(1));
    let (open, thread) = library.drawn_track(track)?;
    let slice = |(depth, cell): &(usize, Cell)| Slice {
        depth: *depth,
        from: cell.from,
        to: cell.to(),
        function: Some(cell.function).filter(|function| *function != SEVERAL),
        calls: cell.count,
        bits: cell.bits(),
    };
    Ok(drawn(&open, thread, window, depths)?.cells.iter().map(slice).collect())
}

/// The cells of a window.
fn drawn(open: &OpenFile, thread: usize, window: (u64, u64, u64), depths: Range<usize>) -> Answered<Drawn> {
    if needs_events(&open.file, thread, window) {
        return open.quick.ask(move |context| of_events(context, thread, window, &depths));
    }
    Ok(of_levels(&open.file, thread, window, depths))
}

fn pixel((from, to, pixels): (u64, u64, u64)) -> u64 {
    (to.saturating_sub(from) / pixels).max(1)
}

/// Whether the levels for a window's pixels are kept, and up to when the thread was read.
fn known(file: &File, thread: usize, window: (u64, u64, u64)) -> Option<(bool, u64)> {
    let track = file.track(thread)?;
    let read_ns = if track.is_complete { u64::MAX } else { track.read_ns };
    Some((track.levels.level_for(pixel(window)).1, read_ns))
}

/// Whether the summary levels don't have all of a window.
fn needs_events(file: &File, thread: usize, window: (u64, u64, u64)) -> bool {
    let is_lacking = |(is_kept, read_ns): (bool, u64)| {
        !is_kept && read_ns > window.0 || read_ns < window.1 && file.sketch.is_some()
    };
    known(file, thread, window).is_some_and(is_lacking)
}

/// The cells of a window: those that were read in order, and what is known of the rest.
fn of_events(context: &Context<'_>, thread: usize, window: (u64, u64, u64), depths: &Range<usize>) -> Drawn {
    let ((from, to, _), pixel) = (window, pixel(window));
    let Some((is_kept, read_ns)) = known(context.file, thread, window) else { return Drawn::default() };
    let mut drawn = if is_kept || read_ns <= from {
        of_levels(context.file, thread, window, depths.clone())
    } else {
        exact(context, thread, (from, to, pixel), depths)
    };
    if read_ns < to && context.file.sketch.is_some() {
        let from = from.max(read_ns);
        let mut merging = Merging::new(pixel);
        parts::window(context, thread, depths, (from, to), |depth, cell| {
            // Cells that begin before are those of the part that was read.
            if cell.from >= from || from == window.0 && read_ns < from {
                merging.add(depth, cell);
            }
        });
        let sketched = merging.finish();
        drawn.flags |= sketched.flags | INCOMPLETE;
        drawn.cells.extend(sketched.cells);
        drawn.cells.sort_by_key(|(depth, cell)| (*depth, cell.from));
    }
    drawn
}

/// The cells of a window, read from the file.
fn exact(
    context: &Context<'_>,
    thread: usize,
    (from, to, pixel): (u64, u64, u64),
    depths: &Range<usize>,
) -> Drawn {
    // In each depth, calls come in the order of time.
    let mut merging: Vec<Merging> = Vec::new();
    window::calls(context, thread, from, to, &mut |depth, cell| {
        let Some(index) = depth.checked_sub(depths.start).filter(|_| depths.contains(&depth)) else { return };
        while merging.len() <= index {
            merging.push(Merging::new(pixel));
        }
        if let Some(of) = merging.get_mut(index) {
            of.add(depth, cell);
        }
    });
    let mut drawn = Drawn::default();
    for of_depth in merging {
        let of_depth = of_depth.finish();
        drawn.flags |= of_depth.flags;
        drawn.cells.extend(of_depth.cells);
    }
    if context.file.track(thread).is_some_and(|track| !track.is_complete) {
        drawn.flags |= INCOMPLETE;
    }
    drawn
}

/// The cells of a window from the summary levels.
pub(crate) fn of_levels(
    file: &File,
    thread: usize,
    (from, to, pixels): (u64, u64, u64),
    depths: Range<usize>,
) -> Drawn {
    let Some(track) = file.track(thread) else { return Drawn::default() };
    let pixel = pixel((from, to, pixels));
    let (level, _) = track.levels.level_for(pixel);
    let mut merging = Merging::new(pixel);
    track.levels.cells_of(depths.clone(), level, from, to, &mut |depth, cell| merging.add(depth, cell));
    let mut drawn = merging.finish();
    if !track.is_complete {
        drawn.flags |= INCOMPLETE;
        for (depth, open) in track.open.iter().enumerate().take(depths.end).skip(depths.start) {
            if open.from <= to && track.read_ns >= from {
                let cell = Cell::call(open.from, track.read_ns, open.function, open.bits | bits::CUT_END);
                drawn.cells.push((depth, cell));
            }
        }
        drawn.cells.sort_by_key(|(depth, cell)| (*depth, cell.from));
    }
    drawn
}

/// Merges cells to the width of pixels.
struct Merging {
    pixel: u64,
    depth: usize,
    merger: Merger,
    drawn: Drawn,
}

impl Merging {
    fn new(pixel: u64) -> Merging {
        Merging { pixel, depth: 0, merger: Merger::default(), drawn: Drawn::default() }
    }

    /// Adds a cell; those of a depth come together, in the order of time.
    fn add(&mut self, depth: usize, cell: Cell) {
        if depth != self.depth {
            self.end_depth();
            self.depth = depth;
        }
        let (depth, cells) = (self.depth, &mut self.drawn.cells);
        self.merger.add(cell, self.pixel, &mut |cell| cells.push((depth, cell)));
    }

    fn end_depth(&mut self) {
        let (depth, cells) = (self.depth, &mut self.drawn.cells);
        self.merger.finish(&mut |cell| cells.push((depth, cell)));
    }

    fn finish(mut self) -> Drawn {
        self.end_depth();
        if self.drawn.cells.iter().any(|(_, cell)| cell.count > 1) {
            self.drawn.flags |= CELLS;
        }
        self.drawn
    }
}

/// Columns: begins, ends, functions, counts, depths, bits. Each is padded to 8 bytes.
fn encode(body: &mut Vec<u8>, id: u32, drawn: &Drawn, first_depth: usize) {
    let cells = &drawn.cells;
    let depth_of = |depth: usize| u16::try_from(depth.saturating_sub(first_depth)).unwrap_or(u16::MAX);
    for number in [id, cells.len() as u32, drawn.flags] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    pad(body);
    body.extend(cells.iter().flat_map(|(_, cell)| (cell.from as f64).to_le_bytes()));
    body.extend(cells.iter().flat_map(|(_, cell)| (cell.to() as f64).to_le_bytes()));
    body.extend(cells.iter().flat_map(|(_, cell)| cell.function.to_le_bytes()));
    pad(body);
    body.extend(cells.iter().flat_map(|(_, cell)| cell.count.to_le_bytes()));
    pad(body);
    body.extend(cells.iter().flat_map(|(depth, _)| depth_of(*depth).to_le_bytes()));
    pad(body);
    body.extend(cells.iter().map(|(_, cell)| cell.bits()));
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(8), 0);
}

/// A span of a thread's states. As JSON, an array of its fields, without those at its end that
/// aren't known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Begin, in nanoseconds since the trace's.
    pub from: u64,
    /// End.
    pub to: u64,
    /// 0 running, 1 runnable, 2 blocked, 3 unknown.
    pub state: u8,
    /// The thread that woke it.
    pub woken_by: Option<u32>,
    /// The system call in which it waited.
    pub waits_in: Option<&'static str>,
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let fields = (self.from, self.to, self.state);
        match (self.woken_by, self.waits_in) {
            (waker, Some(call)) => (fields.0, fields.1, fields.2, waker, call).serialize(to),
            (Some(waker), None) => (fields.0, fields.1, fields.2, waker).serialize(to),
            (None, None) => fields.serialize(to),
        }
    }
}

/// The thread states in a window, by track.
///
/// # Errors
///
/// A sentence why there are none.
pub fn states(
    library: &Library,
    tracks: &[u32],
    window: (u64, u64, u64),
) -> Answered<BTreeMap<u32, Vec<State>>> {
    let mut all = BTreeMap::new();
    for id in tracks {
        let (open, thread) = library.drawn_track(*id)?;
        if let Some(rows) = states_of(&open.file, thread, window) {
            all.insert(*id, rows);
        }
    }
    Ok(all)
}

/// The states of a thread in a window.
pub(crate) fn states_of(
    file: &File,
    thread: usize,
    (from, to, pixels): (u64, u64, u64),
) -> Option<Vec<State>> {
    let states = file.states(thread)?;
    let pixel = to.saturating_sub(from) / pixels;
    let first = states.spans().partition_point(|span| span.end <= from);
    let mut rows: Vec<State> = Vec::new();
    // Spans shorter than a pixel together: from, to, times.
    let mut short: Option<(u64, u64, StateTimes)> = None;
    let flush = |short: &mut Option<(u64, u64, StateTimes)>, rows: &mut Vec<State>| {
        if let Some((from, to, times)) = short.take() {
            let most = times.all().into_iter().enumerate().max_by_key(|(_, time)| *time);
            let state = most.map_or(3, |(state, _)| state as u8);
            rows.push(State { from, to, state, woken_by: None, waits_in: None });
        }
    };
    for span in states.spans().get(first..).unwrap_or_default() {
        if span.start > to {
            break;
        }
        let end = span.end.min(file.end_ns.max(span.start));
        if end - span.start >= pixel {
            flush(&mut short, &mut rows);
            rows.push(State {
                from: span.start,
                to: end,
                state: number_of(span.state),
                woken_by: span.woken_by,
                waits_in: span.blocked_in.and_then(system_call_name),
            });
            continue;
        }
        if short.as_ref().is_some_and(|(from, ..)| end - from > pixel) {
            flush(&mut short, &mut rows);
        }
        let (_, until, times) = short.get_or_insert((span.start, end, StateTimes::default()));
        *until = end;
        times.add(span.state, end - span.start);
    }
    flush(&mut short, &mut rows);
    Some(rows)
}

fn number_of(state: ThreadState) -> u8 {
    match state {
        ThreadState::Running => 0,
        ThreadState::Runnable => 1,
        ThreadState::Blocked(_) => 2,
        ThreadState::Unknown => 3,
    }
}

/// A mark beside the calls, or several of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Its track.
    pub track: u32,
    /// When it is, in nanoseconds since the trace's begin.
    pub at: u64,
    /// Its end, if that is later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Its kind, by name.
    pub kind: &'static str,
    /// Its text; of several, that of the first.
    pub text: String,
    /// How many there are.
    pub count: u32,
}

impl Mark {
    /// Its end.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.to.unwrap_or(self.at)
    }
}

/// The marks in a window.
///
/// # Errors
///
/// A sentence why there are none.
pub fn marks(library: &Library, tracks: &[u32], (from, to, pixels): (u64, u64, u64)) -> Answered<Vec<Mark>> {
    let mut all = Vec::new();
    for id in tracks {
        library.drawn_track(*id)?;
        let (file, thread) = place_of_track(*id);
        all.extend(marks_of(library, file, thread, (from, to), pixels as usize)?);
    }
    Ok(all)
}

/// The marks of a thread in a window, at most about `limit`.
pub(crate) fn marks_of(
    library: &Library,
    file: usize,
    thread: usize,
    (from, to): (u64, u64),
    limit: usize,
) -> Answered<Vec<Mark>> {
    let files = library.drawn()?;
    let open = files.get(file).ok_or("there is no such file")?;
    let items = open.file.track(thread).map(|track| track.marks.within(from, to, limit)).unwrap_or_default();
    if items.is_empty() {
        return Ok(Vec::new());
    }
    open.quick.ask(move |context| items.iter().map(|item| mark(context, thread, item)).collect())
}

fn mark(context: &Context<'_>, thread: usize, item: &Item) -> Mark {
    Mark {
        track: context.file.track_id(thread),
        at: item.at,
        to: Some(item.to).filter(|to| *to > item.at),
        kind: item.kind.name(),
        text: text(context, item),
        count: item.count,
    }
}

pub(super) fn text(context: &Context<'_>, item: &Item) -> String {
    match item.text {
        Text::Lost(Some(1)) => "1 event lost".to_owned(),
        Text::Lost(Some(count)) => format!("{count} events lost"),
        Text::Lost(None) => "events lost, not counted".to_owned(),
        Text::Off(why) => why.to_owned(),
        Text::Name(name, value) => match item.kind {
            Kind::Log | Kind::Output => context.view.log_line(name),
            Kind::Throw | Kind::Catch => type_name(context.view.mark_name(name)).unwrap_or_default(),
            _ => {
                let name = context.view.mark_name(name);
                value.map_or_else(|| name.to_owned(), |value| format!("{name} = {value}"))
            }
        },
    }
}

/// Sampled stacks in one call at one place, or in several calls closer than a pixel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleRun {
    /// Its track.
    pub track: u32,
    /// When the first sample was taken, in nanoseconds since the trace's begin.
    pub at: u64,
    /// When the last was taken.
    pub to: u64,
    /// Calls around it.
    pub depth: usize,
    /// What ran; of several places, that of most.
    pub text: String,
    /// Samples.
    pub count: u32,
}

/// The sampled stacks in a window.
///
/// # Errors
///
/// A sentence why there are none.
pub fn samples(library: &Library, tracks: &[u32], window: (u64, u64, u64)) -> Answered<Vec<SampleRun>> {
    let files = library.drawn()?;
    let mut all = Vec::new();
    for id in tracks {
        library.drawn_track(*id)?;
        let (file, thread) = place_of_track(*id);
        let open = files.get(file).ok_or("there is no such file")?;
        all.extend(samples_of(&open.file, thread, window));
    }
    Ok(all)
}

/// The sampled stacks of a thread in a window.
pub(crate) fn samples_of(file: &File, thread: usize, (from, to, pixels): (u64, u64, u64)) -> Vec<SampleRun> {
    let runs = file.track(thread).map(|track| track.samples.within(from, to, pixels)).unwrap_or_default();
    let shown = |run: crate::sampled::Run| {
        let crate::sampled::Run { at, to, depth, text, count, .. } = run;
        SampleRun { track: file.track_id(thread), at, to, depth, text: text.to_string(), count }
    };
    runs.into_iter().map(shown).collect()
}

/// The values of a counter.
#[derive(Clone, Debug, Serialize)]
pub struct Counter {
    /// Its file.
    pub file: usize,
    /// A track of its process.
    pub track: Option<u32>,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// The counters of all files in a window.
///
/// # Errors
///
/// A sentence why there are none.
pub fn counters(library: &Library, window: (u64, u64, u64)) -> Answered<Vec<Counter>> {
    let files = library.drawn()?;
    Ok(files.iter().flat_map(|open| counters_of(&open.file, window)).collect())
}

/// The counters of a file in a window.
pub(crate) fn counters_of(file: &File, (from, to, pixels): (u64, u64, u64)) -> Vec<Counter> {
    let series = lock(&file.series);
    let mut all: Vec<_> = series.iter().collect();
    all.sort_by_key(|(key, _)| *key);
    let counter = |((pid, name), series): (&(u32, String), &Series)| {
        let of_process =
            |thread: &&usize| file.threads.get(**thread).is_some_and(|thread| thread.pid == *pid);
        let threads: Vec<usize> = (0..file.threads.len()).collect();
        let sampled = threads.iter().filter(of_process).find(|thread| file.threads[**thread].is_sampled);
        let track = sampled.or_else(|| threads.iter().find(of_process)).map(|thread| file.track_id(*thread));
        let points = series.within(from, to, pixels);
        Counter { file: file.index, track, pid: *pid, name: name.clone(), points }
    };
    all.into_iter().map(counter).collect()
}

/// Spreads events evenly over the pixels between two moments.
fn spread(counts: &mut [u64], pixel: f64, (from, to): (u64, u64), events: u64) {
    let (from, to) = (from as f64 / pixel, to as f64 / pixel);
    if from >= to {
        return;
    }
    let some = counts.iter_mut().enumerate().take(to as usize + 1).skip(from as usize);
    for (at, sum) in some {
        let here = (at as f64 + 1.0).min(to) - (at as f64).max(from);
        *sum += (events as f64 * here / (to - from)) as u64;
    }
}

/// Where what is shown of the files begins, in nanoseconds since their origin.
pub(crate) fn begin_ns(files: &[std::sync::Arc<OpenFile>]) -> u64 {
    files.iter().map(|open| open.file.begin_ns).min().unwrap_or(0)
}

/// How many entries and exits there are at each pixel of the whole trace, or of what is shown of a
/// running program.
///
/// # Errors
///
/// A sentence why that isn't known.
pub fn overview(library: &Library, pixels: u64) -> Answered<Vec<u64>> {
    let end = end_ns(library)?.saturating_sub(begin_ns(&library.drawn()?)).max(1);
    let mut counts = vec![0_u64; pixels as usize];
    for open in library.drawn()? {
        let file = &open.file;
        let scale = file.end_ns.saturating_sub(file.begin_ns) as f64 / end as f64;
        for thread in 0..file.threads.len() {
            let Some(track) = file.track(thread) else { continue };
            for (part, count) in track.density.iter().enumerate() {
                let pixel = ((part as f64 + 0.5) / DENSITY as f64 * scale * pixels as f64) as usize;
                if let Some(sum) = counts.get_mut(pixel) {
                    *sum += u64::from(*count);
                }
            }
            if let Some(sketch) = file.sketch.as_ref().filter(|_| !track.is_complete) {
                let read_ns = track.read_ns;
                drop(track);
                let pixel = end as f64 / pixels as f64;
                sketch.density(thread, |from, to, events| {
                    let from = from.max(read_ns);
                    spread(&mut counts, pixel, (from, to), events);
                });
            }
        }
    }
    Ok(counts)
}
