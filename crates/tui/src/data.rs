//! Requests to the library, and its answers with types.

use everycall_view::{Library, Slice, Tree};
use serde_json::Value;

/// Slowest calls that are listed.
const INSTANCES: u64 = 500;

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

/// A kept call, or a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// As `--kept` takes it.
    pub number: usize,
    pub from: u64,
    pub to: u64,
    /// Where it is drawn: track and depth; `None` if it isn't there, or wasn't read yet.
    pub drawn: Option<(u32, usize)>,
}

/// A function, by its place in the list of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub full: String,
    pub module: String,
    pub file: Option<String>,
    pub line: Option<u64>,
}

/// A mark beside the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub track: u32,
    pub at: u64,
    pub to: u64,
    pub kind: String,
    pub text: String,
    pub count: u64,
}

/// A span of a thread's states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub from: u64,
    pub to: u64,
    /// 0 running, 1 runnable, 2 blocked, 3 unknown.
    pub state: u64,
    /// The system call in which it waited.
    pub waits_in: Option<String>,
}

/// How long a thread was in each state in a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub running_ns: u64,
    pub runnable_ns: u64,
    pub blocked_ns: u64,
    /// How long it waited in which system calls, as far as they are known.
    pub waits_in: Vec<(String, u64)>,
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

/// Where a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub track: u32,
    pub depth: usize,
    pub from: u64,
    pub to: u64,
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
    pub states: Option<Times>,
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

/// One of the slowest calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub place: Place,
    pub own_ns: u64,
    pub is_uncertain: bool,
}

/// A request to the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Trace,
    Window(Window),
    Details { track: u32, at: u64, depth: usize },
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
    Instances(Vec<Instance>),
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

fn small(value: &Value, name: &str) -> u32 {
    u32::try_from(number(value, name)).unwrap_or(u32::MAX)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn function(value: &Value, name: &str) -> Option<u32> {
    value[name].as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number != u32::MAX)
}

/// Answers a request.
pub fn answer(library: &Library, request: &Request) -> Result<Answer, String> {
    Ok(match request {
        Request::Trace => Answer::Trace(trace(&library.answer("trace", "")?)),
        Request::Window(window) => Answer::Window(window.clone(), contents(library, window)?),
        Request::Details { track, at, depth } => {
            let query = format!("track={track}&at={at}&depth={depth}");
            Answer::Details(details(&library.answer("slice", &query)?))
        }
        Request::Next { q, cursor, is_forward, tracks } => {
            let mut query = format!("q={}&tracks={}", escaped(q), joined(tracks));
            if let Some((from, track, depth)) = cursor {
                query += &format!("&from={from}&track={track}");
                query += &depth.map_or_else(String::new, |depth| format!("&depth={depth}"));
            }
            query += if *is_forward { "&dir=next" } else { "&dir=previous" };
            Answer::Hit(hit(&library.answer("next", &query)?))
        }
        Request::Table(range) => Answer::Table(table(&library.answer("report", &ranged(*range))?)),
        Request::Tree(range) => Answer::Tree(library.tree(&ranged(*range))?),
        Request::Instances { function, range } => {
            let query = format!("function={function}&limit={INSTANCES}&{}", ranged(*range));
            let answer = library.answer("instances", &query)?;
            Answer::Instances(list(&answer, "slowest").iter().map(instance).collect())
        }
    })
}

/// The functions from a number on.
pub fn functions(library: &Library, from: usize) -> Vec<Function> {
    let answer = library.answer("functions", &format!("from={from}")).unwrap_or_default();
    let function = |value: &Value| Function {
        name: text(value, "name"),
        full: text(value, "full"),
        module: text(value, "module"),
        file: value["file"].as_str().map(str::to_owned),
        line: value["line"].as_u64(),
    };
    answer.as_array().map_or_else(Vec::new, |all| all.iter().map(function).collect())
}

fn ranged(range: Range) -> String {
    range.map_or_else(String::new, |(from, to)| format!("from={from}&to={to}"))
}

fn joined(tracks: &[u32]) -> String {
    tracks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A text as a value of a query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn trace(value: &Value) -> Trace {
    let track = |track: &Value| Track {
        id: small(track, "id"),
        pid: small(track, "pid"),
        tid: small(track, "tid"),
        name: text(track, "name"),
        depth: number(track, "depth") as usize,
    };
    let (read, events) = (number(value, "read_events"), number(value, "events"));
    Trace {
        program: text(value, "program"),
        duration_ns: number(value, "duration_ns"),
        is_opening: value["opening"] == true,
        is_complete: value["complete"] == true,
        percent: if events == 0 {
            0
        } else {
            u64::try_from(u128::from(read) * 100 / u128::from(events)).unwrap_or(100)
        },
        tracks: list(value, "processes")
            .iter()
            .flat_map(|process| list(process, "tracks"))
            .map(track)
            .collect(),
        kept: list(value, "kept").iter().map(kept).collect(),
        notes: list(value, "notes").iter().filter_map(|note| note.as_str().map(str::to_owned)).collect(),
    }
}

fn kept(value: &Value) -> Kept {
    let drawn = value["track"].as_u64().zip(value["depth"].as_u64());
    Kept {
        number: number(value, "number") as usize,
        from: number(value, "from"),
        to: number(value, "to"),
        drawn: drawn.and_then(|(track, depth)| Some((track.try_into().ok()?, depth.try_into().ok()?))),
    }
}

fn contents(library: &Library, window: &Window) -> Result<Contents, String> {
    let (from, to, pixels) = (window.from, window.to, window.pixels);
    let mut contents = Contents::default();
    for (track, depths) in &window.tracks {
        let slices = library.slices(*track, (from, to), pixels, depths.clone())?;
        contents.slices.push((*track, slices));
    }
    if window.tracks.is_empty() {
        return Ok(contents);
    }
    let tracks: Vec<u32> = window.tracks.iter().map(|(track, _)| *track).collect();
    let query = format!("tracks={}&from={from}&to={to}&pixels={pixels}", joined(&tracks));
    let states = library.answer("states", &query)?;
    let span = |span: &Value| {
        let waits_in = span[4].as_str().map(str::to_owned);
        Some(State { from: span[0].as_u64()?, to: span[1].as_u64()?, state: span[2].as_u64()?, waits_in })
    };
    for (track, spans) in states.as_object().into_iter().flatten() {
        let spans = spans.as_array().map_or_else(Vec::new, |all| all.iter().filter_map(span).collect());
        contents.states.extend(track.parse().ok().map(|track| (track, spans)));
    }
    let marks = library.answer("marks", &query)?;
    let mark = |mark: &Value| Mark {
        track: small(mark, "track"),
        at: number(mark, "at"),
        to: mark["to"].as_u64().unwrap_or_else(|| number(mark, "at")),
        kind: text(mark, "kind"),
        text: text(mark, "text"),
        count: number(mark, "count"),
    };
    contents.marks = marks.as_array().map_or_else(Vec::new, |all| all.iter().map(mark).collect());
    Ok(contents)
}

fn place(value: &Value) -> Place {
    Place {
        track: small(value, "track"),
        depth: number(value, "depth") as usize,
        from: number(value, "from"),
        to: number(value, "to"),
    }
}

fn details(value: &Value) -> Details {
    const FLAGS: [(&str, &str); 6] = [
        ("cut_start", "began before the recording"),
        ("cut_end", "its end isn't known"),
        ("unwound", "unwound"),
        ("tail", "ended in a tail call"),
        ("at_most", "took at most so long"),
        ("caller_uncertain", "caller uncertain"),
    ];
    let label = |label: &Value| {
        let name = label[0].as_str().unwrap_or_default();
        match &label[1] {
            Value::Null => name.to_owned(),
            Value::String(value) => format!("{name} = {value}"),
            value => format!("{name} = {value}"),
        }
    };
    let states = &value["states"];
    let shown = place(value);
    let length = shown.to.saturating_sub(shown.from);
    let bounds = value["low_ns"].as_u64().zip(value["high_ns"].as_u64());
    let error = bounds.map(|(low, high)| length.saturating_sub(low).max(high.saturating_sub(length)));
    Details {
        place: shown,
        error_ns: error,
        function: function(value, "function"),
        own_ns: number(value, "own_ns"),
        labels: list(value, "labels").iter().map(label).collect(),
        flags: FLAGS.iter().filter(|(name, _)| value[name] == true).map(|(_, words)| *words).collect(),
        caller: function(&value["caller"], "function"),
        all_calls: value["all_calls"].as_u64(),
        states: states.is_object().then(|| Times {
            running_ns: number(states, "running_ns"),
            runnable_ns: number(states, "runnable_ns"),
            blocked_ns: number(states, "blocked_ns"),
            waits_in: list(states, "blocked_in")
                .iter()
                .filter_map(|wait| Some((wait[0].as_str()?.to_owned(), wait[1].as_u64()?)))
                .collect(),
        }),
    }
}

fn hit(value: &Value) -> Option<Hit> {
    let hit = &value["hit"];
    hit.is_object().then(|| Hit {
        place: place(hit),
        function: function(hit, "function"),
        mark: hit["depth"].is_null().then(|| text(hit, "text")),
        index: number(value, "index"),
        total: number(value, "total"),
    })
}

fn table(value: &Value) -> Table {
    let row = |row: &Value| Row {
        function: function(row, "function").unwrap_or(u32::MAX),
        numbers: COLUMNS.map(|(_, name)| row[name].as_u64()),
    };
    let rows: Vec<Row> = list(value, "rows").iter().map(row).collect();
    let has_more = |row: &Row| row.numbers[ALL_CALLS] > row.numbers[CALLS];
    let lacks = value["not_in_the_numbers"].as_object().into_iter().flatten();
    Table {
        calls: number(value, "calls"),
        has_more_calls: rows.iter().any(has_more),
        rows,
        lacks: lacks
            .filter_map(|(name, count)| {
                Some((name.replace('_', " "), count.as_u64().filter(|count| *count > 0)?))
            })
            .collect(),
    }
}

fn instance(value: &Value) -> Instance {
    Instance {
        place: place(value),
        own_ns: number(value, "own_ns"),
        is_uncertain: value["uncertain"] == true,
    }
}
