//! Sums that are made here have the values that SQLite gives for each call by itself.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use everycall_analysis::{NameOptions, SymbolNames, TraceView};
use everycall_export::Filter;
use everycall_reader::TraceFile;
use everycall_timeline::Trace;
use rusqlite::types::ValueRef;

use super::plan;
use crate::{Database, Limits, OpenTrace, Output};

/// Two processes, calls with remarks, events without times of their own, values.
const TRACES: [&str; 4] = [
    "crates/reading/timeline/tests/golden/v2.0-family.ect",
    "crates/reading/timeline/tests/golden/v2.5-unsure.ect",
    "crates/reading/timeline/tests/golden/v2.14-stamps.ect",
    "crates/showing/why/tests/data/requests.ect",
];

fn opened(path: &'static str) -> OpenTrace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("the workspace");
    let file = TraceFile::open(File::open(root.join(path)).expect("a kept trace")).expect("a trace");
    let file: &'static TraceFile<'static> = Box::leak(Box::new(file));
    let trace: &'static Trace<'static> = Box::leak(Box::new(Trace::open(file).expect("a timeline")));
    let names = Box::leak(Box::new(SymbolNames::new(file, trace, NameOptions::default())));
    let view = Box::leak(Box::new(TraceView::new(trace, names)));
    OpenTrace { name: path, view, filter: Box::leak(Box::new(Filter::default())) }
}

/// Of these traces: one that adds up here, and one that leaves it to SQLite.
fn databases(traces: &[&'static str]) -> (Database, Database) {
    let open = || Database::open(traces.iter().map(|path| opened(path)).collect()).expect("a database");
    (open(), open().without_plans())
}

/// A result as text, and how exact it is: numbers that aren't integers by their bits.
#[derive(Default)]
struct Text(String);

impl Output for Text {
    fn columns(&mut self, names: &[String]) -> std::io::Result<()> {
        let _ = writeln!(self.0, "{names:?}");
        Ok(())
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> std::io::Result<()> {
        let _ = writeln!(self.0, "{values:?}");
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn result(database: &mut Database, query: &str) -> String {
    let mut text = Text::default();
    match database.query(query, Limits::default(), &mut text) {
        Ok(()) => text.0,
        Err(error) => format!("{error}"),
    }
}

#[track_caller]
fn same(databases: &mut (Database, Database), query: &str) {
    let (here, by_sqlite) = (result(&mut databases.0, query), result(&mut databases.1, query));
    assert!(here == by_sqlite, "{query}\n{here}\nby SQLite:\n{by_sqlite}");
}

/// Queries as people write them; the documents have some of these.
const QUERIES: [&str; 22] = [
    "select count(*), sum(duration_ns), min(start_ns), max(duration_ns), avg(own_ns) from slices",
    "select count(*), sum(duration_ns), max(function) from slices where depth > 1000",
    "select function, count(*) as calls, sum(own_ns) as ns from slices group by function order by ns desc, 1 limit 5",
    "select thread, start_ns / 1000000 as second, count(*) as calls from slices group by tid, thread, second",
    "select function, median(duration_ns) as p50, percentile(duration_ns, 99) as p99 from slices where function regexp '^l' group by function",
    "select s.function as f, total(s.duration_ns) / 1e6 as ms from slices s where s.tid > 0 group by s.function having ms > 0.001 order by -ms",
    "select module, file, line, count(distinct function) from slices group by module, file, line",
    "select trace, pid, count(*) filter (where recursion = 0) from slices group by trace, pid order by trace desc",
    "SELECT Function AS \"a name\", COUNT(*) FROM \"slices\" WHERE function LIKE '%A%' OR file IS NULL GROUP BY 1 ORDER BY 2 DESC, \"a name\"",
    "select case when duration_ns > 1e3 then 'slow' else 'fast' end as kind, count(*) from slices group by kind",
    "select coalesce(remarks, 'none') as remark, count(*) from slices group by remark order by remark",
    "select parent, count(*) from slices group by parent order by 2 desc, 1 limit 10",
    "select id % 7 as rest, sum(id) from slices group by id % 7 having sum(id) > 10 and rest in (1, 2, 3) order by rest",
    "select function from slices group by function",
    "select function || '!' from slices group by function order by length(function), function",
    "select sum(duration_ns) * 100.0 / count(*) as mean, round(avg(duration_ns), 1) from slices where not function = 'x'",
    "select tid, max(duration_ns) - min(duration_ns) from slices where start_ns between 10 and 1000000000 group by tid",
    "select sum(duration_high_ns - duration_low_ns) as unsure from slices",
    "select depth, count(*) from slices where module is not null and recursion is not 1 group by depth order by 1",
    "select count(*) from slices where tid = '7'",
    "select function, start_ns, max(duration_ns) from slices group by function",
    "select sum(duration_ns * 9223372036854775807) from slices",
];

#[test]
fn queries_of_people_have_the_results_of_sqlite() {
    let mut databases = databases(&TRACES);
    for query in QUERIES {
        same(&mut databases, query);
    }
    // The last three need SQLite: a number in a text, a value of no group, an overflow.
    let planned: Vec<bool> = QUERIES.iter().map(|query| plan(query, "groups").is_some()).collect();
    assert_eq!(planned[..19], [true; 19]);
    assert_eq!(planned[19..], [false, false, true]);
}

#[test]
fn other_queries_are_left_to_sqlite() {
    for query in [
        "select * from slices",
        "select function from slices",
        "select distinct function from slices group by function",
        "select count(*) from functions",
        "select count(*) from slices join threads using (tid)",
        "select count(*) from (select * from slices)",
        "with s as (select * from slices) select count(*) from s",
        "select count(*) from slices union all select 1",
        "select count(*) over () from slices",
        "select group_concat(function) from slices",
        "select count(*) from slices where arguments is not null",
        "select count(*) from slices where function glob 'a*'",
        "select count(*) as n from slices having n in (select 1)",
        "select count(*) from slices where start_ns in (select start_ns from labels)",
        "select function, count(*) from slices group by function limit 2, 3",
        "select function, count(*) from slices group by function collate nocase",
        "explain select count(*) from slices",
        "select count(*) from main.slices",
    ] {
        assert!(plan(query, "groups").is_none(), "{query}");
    }
}

/// A random choice.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn integer(&mut self, depth: usize) -> String {
        const COLUMNS: [&str; 13] = [
            "pid",
            "tid",
            "line",
            "id",
            "parent",
            "depth",
            "recursion",
            "start_ns",
            "duration_ns",
            "own_ns",
            "duration_low_ns",
            "slices.duration_high_ns",
            "\"depth\"",
        ];
        match if depth == 0 { self.below(4) } else { self.below(9) } {
            0..3 => self.of(&COLUMNS).to_owned(),
            3 => self.of(&["0", "1", "2", "-3", "1000", "9223372036854775807", "50000"]).to_owned(),
            4..6 => {
                let operator = self.of(&["+", "-", "*", "/", "%"]);
                format!("({} {operator} {})", self.integer(depth - 1), self.integer(depth - 1))
            }
            6 => format!("coalesce({}, {})", self.integer(depth - 1), self.integer(depth - 1)),
            7 => format!("-{}", self.integer(0)),
            _ => format!(
                "case when {} then {} else {} end",
                self.condition(depth - 1),
                self.integer(depth - 1),
                self.integer(depth - 1)
            ),
        }
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 8] =
            ["process", "thread", "trace", "function", "module", "file", "remarks", "'main'"];
        self.of(&TEXTS).to_owned()
    }

    fn condition(&mut self, depth: usize) -> String {
        match if depth == 0 { self.below(7) } else { self.below(11) } {
            0..2 => {
                let operator = self.of(&["=", "==", "<>", "!=", "<", "<=", ">", ">=", "is", "is not"]);
                format!("{} {operator} {}", self.integer(depth), self.integer(depth))
            }
            2 => {
                let operator = self.of(&["=", "<>", "<", ">=", "is not"]);
                format!("{} {operator} {}", self.text(), self.text())
            }
            3 => {
                let not = self.of(&["", "not "]);
                let pattern = self.of(&["'%A%'", "'m_in'", "'%(%'", "''", "'LEAF%'"]);
                format!("{} {not}like {pattern}", self.text())
            }
            4 => format!("{} {} 1000.5", self.integer(0), self.of(&["<", "<=", ">", ">="])),
            5 => format!("{} in ({}, 3, 17)", self.integer(0), self.of(&["1", "2", "0"])),
            6 => format!(
                "{} is {}null",
                self.of(&["line", "file", "parent", "remarks"]),
                self.of(&["", "not "])
            ),
            7..9 => {
                let operator = self.of(&["and", "or"]);
                format!("({} {operator} {})", self.condition(depth - 1), self.condition(depth - 1))
            }
            9 => format!("not ({})", self.condition(depth - 1)),
            _ => format!("{} between {} and {}", self.integer(0), self.integer(0), self.integer(depth - 1)),
        }
    }

    fn sum(&mut self) -> String {
        let sum = match self.below(6) {
            0 => "count(*)".to_owned(),
            1 => format!("count({}{})", self.of(&["", "distinct "]), self.text()),
            2 => format!("{}({})", self.of(&["min", "max"]), self.text()),
            3 => format!("{}(duration_ns)", self.of(&["median", "avg", "total"])),
            _ => format!("{}({})", self.of(&["sum", "min", "max", "avg", "total", "count"]), self.integer(1)),
        };
        if self.below(6) == 0 { format!("{sum} filter (where {})", self.condition(0)) } else { sum }
    }

    fn query(&mut self) -> String {
        let keys: Vec<String> = (0..self.below(4))
            .map(|_| if self.below(2) == 0 { self.text() } else { self.integer(1) })
            .filter(|key| {
                !key.starts_with(|first: char| first == '\'' || first == '-' || first.is_ascii_digit())
            })
            .collect();
        let sums: Vec<String> = (0..=self.below(3)).map(|_| self.sum()).collect();
        let mut query = format!("select {} from slices", [keys.clone(), sums.clone()].concat().join(", "));
        if self.below(3) > 0 {
            let _ = write!(query, " where {}", self.condition(2));
        }
        if !keys.is_empty() {
            let _ = write!(query, " group by {}", keys.join(", "));
            if self.below(3) == 0 {
                let _ = write!(query, " having {} > {}", sums[0], self.of(&["1", "100", "'a'"]));
            }
            if self.below(3) == 0 {
                let order = self.of(&["", " desc", " nulls last"]);
                let _ = write!(query, " order by {}{order}, {}", sums[0], keys.join(", "));
            }
        }
        query
    }
}

/// `EVERYCALL_QUERIES=100000` for more.
#[test]
fn random_queries_have_the_results_of_sqlite() {
    let queries = std::env::var("EVERYCALL_QUERIES").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    // The small ones.
    let mut databases = databases(&TRACES[..3]);
    let mut random = Random(20_261_129);
    let mut planned = 0;
    for _ in 0..queries {
        let query = random.query();
        planned += usize::from(plan(&query, "groups").is_some());
        same(&mut databases, &query);
    }
    // SQLite sees no call whose times aren't among these.
    same(&mut databases, "select count(*) from slices where start_ns in (15, 19, 1695)");
    assert!(planned * 10 > queries * 7, "{planned} of {queries} were planned");
}
