//! The tables as users see them, and what they are made of in SQLite.

use std::fmt::Write as _;

/// A column: its name, its type, what it means.
pub(crate) type Column = (&'static str, &'static str, &'static str);

/// A table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableFacts {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) columns: &'static [Column],
    /// Where its rows come from.
    pub(crate) rows: From,
}

/// Where the rows of a table come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The timelines.
    Timeline,
    /// Rows of the table of events: what its columns are there, and which rows.
    Events(&'static str, &'static str),
    /// A small list.
    List,
}

const TRACE: Column = ("trace", "text", "the trace file, as it was named");
const PID: Column = ("pid", "integer", "process");
const TID: Column = ("tid", "integer", "thread; fibers have the numbers that `info` shows");
const START: Column = ("start_ns", "integer", "nanoseconds since the trace's beginning");
const DURATION: Column = ("duration_ns", "integer", "nanoseconds until its end");
const DURATION_LOW: Column =
    ("duration_low_ns", "integer", "of calls: what it took at least, where events had no times of their own");
const DURATION_HIGH: Column = ("duration_high_ns", "integer", "of calls: what it took at most");
const PARENT: Column = ("parent", "integer", "id of the call around it");
const ARGUMENTS: Column = ("arguments", "text", "the call's arguments, a JSON object, if they were recorded");
const RESULT: Column = ("result", "text", "what the call returned, as JSON, if that was recorded");
const REMARKS: Column = ("remarks", "text", "what is special about it, separated by `; `");
const FUNCTION: Column = ("function", "text", "its name");
const MODULE: Column = ("module", "text", "file name of its program or library");
const FILE: Column = ("file", "text", "its source file");
const LINE: Column = ("line", "integer", "line of its declaration");
const PROCESS: Column = ("process", "text", "the program's name");
const THREAD: Column = ("thread", "text", "the thread's name");

/// All rows of the timelines: the table of Parquet files, and the trace.
pub(crate) const EVENTS: TableFacts = TableFacts {
    name: "events",
    about: "everything on the timeline: the table that `export -f parquet` writes",
    rows: From::Timeline,
    columns: &[
        ("kind", "text", "`call`, or another kind: docs/reference/csv.md lists them"),
        PID,
        PROCESS,
        TID,
        THREAD,
        ("id", "integer", "of calls: its number"),
        PARENT,
        ("depth", "integer", "number of calls around it"),
        ("recursion", "integer", "of calls: number of open calls of the same function around it"),
        START,
        ("start_realtime_ns", "integer", "nanoseconds since 1970"),
        DURATION,
        ("own_ns", "integer", "of calls: without callees"),
        ("function", "text", "the function; for what isn't a call, the label, counter, exception or line"),
        MODULE,
        FILE,
        LINE,
        ("value", "integer", "count or value"),
        ("real_value", "real", "value of counters that aren't integers"),
        ("blocked_ns", "integer", "of `off cpu`: how long the thread waited"),
        ("runnable_ns", "integer", "of `off cpu`: how long it could have run"),
        ("other_tid", "integer", "the thread that woke it, or resumed its stack"),
        REMARKS,
        TRACE,
        DURATION_LOW,
        DURATION_HIGH,
        ARGUMENTS,
        RESULT,
    ],
};

/// All tables, in the order in which they are shown.
pub(crate) const TABLES: &[TableFacts] = &[
    TableFacts {
        name: "slices",
        about: "calls",
        rows: From::Events(
            "id, parent, pid, process, tid, thread, depth, recursion, start_ns, start_realtime_ns, duration_ns, own_ns, \
             function, module, file, line, remarks, trace, duration_low_ns, duration_high_ns, \
             arguments, result",
            "kind = 'call'",
        ),
        columns: &[
            ("id", "integer", "its number: by thread, in the order of begins"),
            ("parent", "integer", "id of its caller"),
            PID,
            PROCESS,
            TID,
            THREAD,
            ("depth", "integer", "number of calls around it"),
            (
                "recursion",
                "integer",
                "number of open calls of the same function around it: total times add up where it is 0",
            ),
            START,
            ("start_realtime_ns", "integer", "nanoseconds since 1970, if known"),
            DURATION,
            ("own_ns", "integer", "without callees, and without the time in which a fiber was suspended"),
            FUNCTION,
            MODULE,
            FILE,
            LINE,
            REMARKS,
            TRACE,
            DURATION_LOW,
            DURATION_HIGH,
            ARGUMENTS,
            RESULT,
        ],
    },
    TableFacts {
        name: "functions",
        about: "functions that were called, with the sums of `report`",
        rows: From::List,
        columns: &[
            FUNCTION,
            MODULE,
            FILE,
            LINE,
            ("calls", "integer", "number of its calls"),
            ("total_ns", "integer", "time in it and its callees; recursion counts once"),
            ("own_ns", "integer", "time in it without callees"),
            ("max_ns", "integer", "its longest call"),
            TRACE,
        ],
    },
    TableFacts {
        name: "threads",
        about: "threads, whatever the filters select of their events",
        rows: From::List,
        columns: &[
            PID,
            PROCESS,
            TID,
            THREAD,
            ("calls", "integer", "entries that were recorded"),
            ("first_ns", "integer", "when its first recorded event happened"),
            ("last_ns", "integer", "when its last recorded event happened"),
            ("lost", "integer", "events that are known to be missing"),
            TRACE,
        ],
    },
    TableFacts {
        name: "processes",
        about: "processes",
        rows: From::List,
        columns: &[
            PID,
            ("parent_pid", "integer", "the process that started it, if known"),
            PROCESS,
            ("command", "text", "words of its command line"),
            TRACE,
        ],
    },
    TableFacts {
        name: "samples",
        about: "sampled stacks (`record --samples`) of threads with calls, in the window of the filters",
        rows: From::List,
        columns: &[
            PID,
            TID,
            ("at_ns", "integer", "when it was taken, in nanoseconds since the trace's beginning"),
            ("depth", "integer", "calls that were open"),
            ("function", "text", "the function of the innermost of them"),
            ("place", "text", "what ran, as `report` names it in that call"),
            ("stack", "text", "all functions of the stack, innermost first, separated by `;`"),
            TRACE,
        ],
    },
    TableFacts {
        name: "states",
        about: "when threads were off the CPU in calls (`record --states`)",
        rows: From::Events(
            "pid, tid, parent, start_ns, duration_ns, blocked_ns, runnable_ns, other_tid as woken_by, remarks, trace",
            "kind = 'off cpu'",
        ),
        columns: &[
            PID,
            TID,
            PARENT,
            START,
            DURATION,
            ("blocked_ns", "integer", "how long it waited"),
            ("runnable_ns", "integer", "how long it could have run"),
            ("woken_by", "integer", "the thread that woke it"),
            ("remarks", "text", "the states: blocked, runnable, unknown"),
            TRACE,
        ],
    },
    TableFacts {
        name: "labels",
        about: "labels of calls (C API), and numbers of kept calls as `kept call`",
        rows: From::Events(
            "parent as id, pid, tid, start_ns, function as label, value, trace",
            "kind = 'label'",
        ),
        columns: &[
            ("id", "integer", "the call that has it"),
            PID,
            TID,
            START,
            ("label", "text", "its name"),
            ("value", "integer", "its value; of 2^63 and more, negative"),
            TRACE,
        ],
    },
    TableFacts {
        name: "marks",
        about: "instants, spans, wakes and steps of tasks (C API), C++ exceptions",
        rows: From::Events(
            "kind, parent, pid, tid, start_ns, duration_ns, function as name, value, remarks, trace",
            "kind in ('instant', 'span', 'orphan span end', 'wake', 'step', 'throw', 'catch')",
        ),
        columns: &[
            ("kind", "text", "instant, span, orphan span end, wake, step, throw, catch"),
            PARENT,
            PID,
            TID,
            START,
            DURATION,
            ("name", "text", "its name, or the exception's type"),
            ("value", "integer", "its value"),
            REMARKS,
            TRACE,
        ],
    },
    TableFacts {
        name: "counters",
        about: "values of time series",
        rows: From::Events(
            "pid, tid, start_ns, function as counter, coalesce(value, real_value) as value, trace",
            "kind = 'counter'",
        ),
        columns: &[
            PID,
            TID,
            START,
            ("counter", "text", "its name"),
            ("value", "numeric", "integer or real"),
            TRACE,
        ],
    },
    TableFacts {
        name: "lines",
        about: "log lines (C API), and lines that the program wrote (`record --with-output`, `--log`)",
        rows: From::Events(
            "kind, parent, pid, tid, start_ns, function as text, trace",
            "kind in ('log', 'stdout', 'stderr', 'file', 'other')",
        ),
        columns: &[
            ("kind", "text", "log, stdout, stderr, file, other"),
            PARENT,
            PID,
            TID,
            START,
            ("text", "text", "the line"),
            TRACE,
        ],
    },
    TableFacts {
        name: "losses",
        about: "events that are missing",
        rows: From::Events(
            "kind, pid, tid, start_ns, value as events, remarks, trace",
            "kind in ('lost', 'dropped', 'left out', 'orphan exit')",
        ),
        columns: &[
            ("kind", "text", "lost, dropped, left out, orphan exit"),
            PID,
            TID,
            START,
            ("events", "integer", "how many, if they were counted"),
            REMARKS,
            TRACE,
        ],
    },
    TableFacts {
        name: "gaps",
        about: "times in which nothing was recorded, a fiber was suspended, or untraced code ran",
        rows: From::Events(
            "kind, parent, pid, tid, start_ns, duration_ns, other_tid as resumed_by, remarks, trace",
            "kind in ('not recorded', 'suspended', 'untraced')",
        ),
        columns: &[
            ("kind", "text", "not recorded, suspended, untraced"),
            PARENT,
            PID,
            TID,
            START,
            DURATION,
            ("resumed_by", "integer", "the thread that resumed it"),
            REMARKS,
            TRACE,
        ],
    },
    TableFacts {
        name: "kept_calls",
        about: "calls that triggers kept, and snapshots",
        rows: From::List,
        columns: &[
            ("number", "integer", "what --kept takes"),
            PID,
            TID,
            THREAD,
            FUNCTION,
            START,
            DURATION,
            ("least_ns", "integer", "how long it took at least"),
            ("most_ns", "integer", "how long it took at most; null if it was kept before it ended"),
            ("threshold_ns", "integer", "the limit that it exceeded"),
            TRACE,
        ],
    },
    TableFacts {
        name: "modules",
        about: "programs and libraries",
        rows: From::List,
        columns: &[
            PID,
            ("module", "text", "file name"),
            ("path", "text", "path"),
            ("build_id", "text", "build id, hexadecimal"),
            ("start_address", "integer", "address of its first byte"),
            ("end_address", "integer", "address behind its last byte"),
            ("loaded_ns", "integer", "when it was registered"),
            ("unloaded_ns", "integer", "when it was unloaded"),
            TRACE,
        ],
    },
    TableFacts {
        name: "traces",
        about: "the trace files",
        rows: From::List,
        columns: &[
            TRACE,
            ("command", "text", "what was recorded"),
            ("host", "text", "where"),
            ("started_realtime_ns", "integer", "real time of its beginning, nanoseconds since 1970"),
            ("end_ns", "integer", "its end, nanoseconds since its beginning"),
            ("version", "text", "of the everycall that recorded it"),
        ],
    },
    EVENTS,
];

impl TableFacts {
    /// The name of the module that lists it, if it is a list.
    pub(crate) fn list(&self) -> String {
        format!("everycall_{}", self.name)
    }

    /// `create table`, as SQLite and users read it.
    pub(crate) fn declaration(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
        format!("create table {}({})", self.name, columns.join(", "))
    }

    /// The statement that makes the view of this name; `None` where there is none.
    ///
    /// Small tables are kept in a temporary table while a query runs: joins get an index of it.
    pub(crate) fn view(&self) -> Option<String> {
        let name = self.name;
        Some(match self.rows {
            From::Timeline => return None,
            From::Events(columns, which) if name == "slices" => {
                format!("create view {name} as select {columns} from events where {which}")
            }
            From::Events(columns, which) => format!(
                "create view {name} as with kept as materialized (select {columns} from events where {which}) select * from kept"
            ),
            From::List => format!(
                "create view {name} as with kept as materialized (select * from {}) select * from kept",
                self.list()
            ),
        })
    }
}

/// All tables with their columns, as statements with comments.
#[must_use]
pub fn schema() -> String {
    let mut text = String::new();
    for table in TABLES {
        let _ = writeln!(text, "-- {}\ncreate table {} (", table.about, table.name);
        let width = |of: fn(&Column) -> usize| table.columns.iter().map(of).max().unwrap_or(0);
        let (names, kinds) = (width(|column| column.0.len()), width(|column| column.1.len()));
        for (number, (name, kind, about)) in table.columns.iter().enumerate() {
            let comma = if number + 1 < table.columns.len() { "," } else { "" };
            let kind = format!("{kind}{comma}");
            let _ = writeln!(text, "  {name:<names$} {kind:<width$} -- {about}", width = kinds + 1);
        }
        text.push_str(");\n\n");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
