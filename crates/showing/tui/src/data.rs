//! Requests to the library, and what of its answers is shown.

use everycall_analysis::{Grouping, Key, Notes, machine};
pub use everycall_view::FunctionFacts as Function;
use everycall_view::Library;
use everycall_view::answers::{self, Details as Call, LabelValue, Scope, Slice, Sought, TimesOfStates, Tree};
pub use everycall_view::answers::{Kept, Mark, Place, Position, Slow, State};

/// Slowest calls that are listed.
const INSTANCES: usize = 500;

/// A part of the trace: begin and end in nanoseconds; `None` for all of it.
pub type Range = Option<(u64, u64)>;

/// A thread or fiber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    pub id: u32,
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Levels of nesting, as far as it was read.
    pub depth: usize,
}

/// The file's facts, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub program: String,
    pub duration_ns: u64,
    /// Whether its events are still being counted.
    pub is_opening: bool,
    pub is_complete: bool,
    /// Parts of a hundred that were read.
    pub percent: u64,
    pub tracks: Vec<Track>,
    pub notes: Vec<String>,
    pub kept: Vec<Kept>,
}

/// The part of the timeline that is shown: tracks with their levels of nesting, and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    pub pixels: u64,
    pub tracks: Vec<(u32, std::ops::Range<usize>)>,
    /// Asked again while the file is being read.
    pub round: u64,
}

/// The contents of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// By track.
    pub slices: Vec<(u32, Vec<Slice>)>,
    pub states: Vec<(u32, Vec<State>)>,
    pub marks: Vec<Mark>,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub place: Place,
    pub function: Option<u32>,
    pub own_ns: u64,
    /// How far its duration may be from what is shown, if it isn't known exactly.
    pub error_ns: Option<u64>,
    pub labels: Vec<String>,
    /// Unusual properties, in words.
    pub flags: Vec<&'static str>,
    pub caller: Option<u32>,
    /// All calls of its function since the process began, if they were counted.
    pub all_calls: Option<u64>,
    pub states: Option<TimesOfStates>,
}

/// The call or mark that a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    pub place: Place,
    pub function: Option<u32>,
    /// For a mark, which has no depth.
    pub mark: Option<String>,
    pub index: u64,
    pub total: u64,
}

/// Columns of the table: heading, and name in `report -f json`.
pub const COLUMNS: [(&str, &str); 9] = [
    ("total", "total_ns"),
    ("own", "own_ns"),
    ("calls", "calls"),
    ("all calls", "all_calls"),
    ("avg", "average_ns"),
    ("max", "max_ns"),
    ("p50", "p50_ns"),
    ("p99", "p99_ns"),
    ("min", "min_ns"),
];
/// The columns of [`COLUMNS`] that aren't times: calls in the trace, and all calls, also those
/// whose events were overwritten or that were dropped.
pub const CALLS: usize = 2;
pub const ALL_CALLS: usize = 3;

/// A function's row in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub function: u32,
    pub numbers: [Option<u64>; COLUMNS.len()],
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub rows: Vec<Row>,
    pub calls: u64,
    /// Whether a row has more calls in all than in the trace.
    pub has_more_calls: bool,
    /// Counts that the numbers lack, each with its name.
    pub lacks: Vec<(String, u64)>,
}

/// A request to the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Trace,
    Window(Window),
    Details(Position),
    Next { q: String, cursor: Option<(u64, u32, Option<usize>)>, is_forward: bool, tracks: Vec<u32> },
    Table(Range),
    Tree(Range),
    Instances { function: u32, range: Range },
}

impl Request {
    /// Whether it may take as long as reading the whole file.
    pub fn is_long(&self) -> bool {
        matches!(self, Request::Table(_) | Request::Tree(_) | Request::Instances { .. })
    }

    /// Whether another request makes this one superfluous.
    pub fn is_replaced_by(&self, newer: &Request) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(newer)
    }
}

/// The answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Trace(Trace),
    /// The window that the options leave.
    Window(Window, Contents),
    Details(Details),
    Hit(Option<Hit>),
    Table(Table),
    Tree(Tree),
    Instances(Vec<Slow>),
}

/// Answers a request.
pub fn answer(library: &Library, request: &Request) -> Result<Answer, String> {
    Ok(match request {
        Request::Trace => Answer::Trace(trace(answers::trace(library)?)),
        Request::Window(window) => Answer::Window(window.clone(), contents(library, window)?),
        Request::Details(position) => Answer::Details(details(answers::slice(library, *position)?)),
        Request::Next { q, cursor, is_forward, tracks } => {
            // Where no track is shown, all are meant.
            let tracks = Some(tracks.as_slice()).filter(|tracks| !tracks.is_empty());
            let next = answers::next(library, &Sought::Text(q.clone()), *cursor, *is_forward, tracks)?;
            Answer::Hit(hit(next))
        }
        Request::Table(range) => Answer::Table(table(library, *range)?),
        Request::Tree(range) => Answer::Tree(answers::tree(library, &scope(*range))?),
        Request::Instances { function, range } => {
            let instances = answers::instances(library, *function, &scope(*range), INSTANCES)?;
            Answer::Instances(instances.slowest)
        }
    })
}

fn scope(range: Range) -> Scope {
    let (from, to) = range.unzip();
    Scope { from, to, ..Scope::default() }
}

fn trace(facts: answers::TraceFacts) -> Trace {
    let track = |track: answers::TrackFacts| Track {
        id: track.id,
        pid: track.pid,
        tid: track.tid,
        name: track.name,
        depth: track.depth,
    };
    let (read, events) = (u128::from(facts.read_events), u128::from(facts.events));
    Trace {
        program: facts.program.unwrap_or_default(),
        duration_ns: facts.duration_ns.unwrap_or(0),
        is_opening: facts.opening,
        is_complete: facts.complete,
        percent: (read * 100).checked_div(events).map_or(0, |percent| percent as u64),
        tracks: facts.processes.into_iter().flat_map(|process| process.tracks).map(track).collect(),
        kept: facts.kept,
        notes: facts.notes,
    }
}

fn contents(library: &Library, window: &Window) -> Result<Contents, String> {
    let size = (window.from, window.to, window.pixels);
    let slices = |(track, depths): &(u32, std::ops::Range<usize>)| {
        Ok((*track, answers::slices(library, *track, size, depths.clone())?))
    };
    let tracks: Vec<u32> = window.tracks.iter().map(|(track, _)| *track).collect();
    Ok(Contents {
        slices: window.tracks.iter().map(slices).collect::<Result<_, String>>()?,
        states: answers::states(library, &tracks, size)?.into_iter().collect(),
        marks: answers::marks(library, &tracks, size)?,
    })
}

fn details(call: Call) -> Details {
    let flags = [
        (call.cut_start, "began before the recording"),
        (call.cut_end, "its end isn't known"),
        (call.unwound, "unwound"),
        (call.tail, "ended in a tail call"),
        (call.at_most, "took at most so long"),
        (call.caller_uncertain, "caller uncertain"),
    ];
    let label = |(name, value): (String, LabelValue)| match value {
        LabelValue::Text(text) => format!("{name} = {text}"),
        LabelValue::Number(Some(number)) => format!("{name} = {number}"),
        LabelValue::Number(None) => name,
    };
    let length = call.place.to.saturating_sub(call.place.from);
    let bounds = call.low_ns.zip(call.high_ns);
    Details {
        place: call.place,
        error_ns: bounds.map(|(low, high)| length.saturating_sub(low).max(high.saturating_sub(length))),
        function: known(call.function),
        own_ns: call.own_ns,
        labels: call.labels.into_iter().map(label).collect(),
        flags: flags.iter().filter(|(is_so, _)| *is_so).map(|(_, words)| *words).collect(),
        caller: call.caller.and_then(|caller| known(caller.function)),
        all_calls: call.all_calls,
        states: call.states,
    }
}

fn known(function: u32) -> Option<u32> {
    Some(function).filter(|function| *function != u32::MAX)
}

fn hit(next: answers::Next) -> Option<Hit> {
    let hit = next.hit?;
    let (place, function) = (hit.place(), hit.function.and_then(known));
    Some(Hit { place, function, mark: hit.text, index: next.index, total: next.total })
}

fn table(library: &Library, range: Range) -> Result<Table, String> {
    let report = answers::report(library, &scope(range), Grouping::Function, usize::MAX)?;
    let row = |row: everycall_analysis::Row<'_>| {
        let Key::Function(function) = row.key else { return None };
        let numbers = machine::numbers(row.sums);
        let number = |name: &str| numbers.iter().find(|(of, _)| *of == name).and_then(|(_, number)| *number);
        Some(Row {
            function: report.number(*function).unwrap_or(u32::MAX),
            numbers: COLUMNS.map(|(_, name)| number(name)),
        })
    };
    let rows: Vec<Row> = report.rows().into_iter().filter_map(row).collect();
    let has_more = |row: &Row| row.numbers[ALL_CALLS] > row.numbers[CALLS];
    let notes = &report.profile.notes;
    let lacks = Notes::NAMES.iter().zip(notes.numbers()).filter(|(_, count)| *count > 0);
    Ok(Table {
        calls: report.profile.calls,
        has_more_calls: rows.iter().any(has_more),
        rows,
        lacks: lacks.map(|(name, count)| (name.replace('_', " "), count)).collect(),
    })
}
