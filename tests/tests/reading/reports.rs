//! `report`: its numbers are those that the program counted itself, and those that are computed independently from every single call
//! that `replay --format json` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

fn include() -> String {
    format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include"))
}

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(
        mode,
        &["-O2", "-g", &include(), "reported.cpp", "-pthread"],
        &format!("reported-{}", mode.label()),
    )
}

/// A recorded run, with the program's own counts.
fn recorded(place: &Place, program: &Path, rounds: &str) -> (PathBuf, BTreeMap<String, u64>) {
    let recording = place.record(&["-q", "--ring-size", "64M"], program, &["2", rounds]);
    assert!(recording.output.status.success(), "{recording:?}");
    let text = recording.stdout();
    let counts = text.lines().filter_map(|line| line.split_once(' '));
    let counts = counts.map(|(name, count)| (name.to_owned(), count.parse().expect("a count")));
    (recording.file, counts.collect())
}

fn report(place: &Place, options: &[&str], files: &[&Path]) -> Value {
    let mut command = place.command(everycall());
    command.args(["report", "-f", "json"]).args(options).args(files);
    serde_json::from_str(&successful(&mut command)).expect("JSON")
}

fn text(place: &Place, options: &[&str], files: &[&Path]) -> Output {
    let mut command: Command = place.command(everycall());
    command.arg("report").args(options).args(files).output().expect("everycall runs")
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().expect("rows")
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// A call as `replay` printed it.
#[derive(Clone, Debug)]
struct Printed {
    name: String,
    thread: (u64, u64),
    start_ns: u64,
    dur_ns: u64,
    own_ns: u64,
    remarks: Vec<String>,
    jumped_from: Option<String>,
    /// The value of `request`.
    label: Option<u64>,
    inside: Vec<Printed>,
}

impl Printed {
    fn is_timed(&self) -> bool {
        let untimed = |remark: &String| {
            remark.starts_with("truncated")
                || remark.contains("unknown")
                || remark == "exit lost"
                || remark.contains("partly")
        };
        !self.remarks.iter().any(untimed)
    }

    fn all<'c>(&'c self, into: &mut Vec<&'c Printed>) {
        into.push(self);
        self.inside.iter().for_each(|call| call.all(into));
    }
}

/// The outermost calls that `replay` prints.
fn replayed(place: &Place, options: &[&str], file: &Path) -> Vec<Printed> {
    let mut command = place.command(everycall());
    let text = successful(command.args(["replay", "-f", "json"]).args(options).arg(file));
    // By thread and depth: the calls that ended and whose caller hasn't.
    let mut waiting: BTreeMap<((u64, u64), u64), Vec<Printed>> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let Some(dur_ns) = line["dur_ns"].as_u64().filter(|_| line["span"].is_null()) else { continue };
        let (thread, depth) = ((number(&line, "pid"), number(&line, "tid")), number(&line, "depth"));
        let inside = waiting.remove(&(thread, depth + 1)).unwrap_or_default();
        let inner: u64 = inside.iter().map(|call| call.dur_ns).sum();
        let remarks = line["remarks"].as_array().into_iter().flatten();
        waiting.entry((thread, depth)).or_default().push(Printed {
            name: line["name"].as_str().expect("a name").to_owned(),
            thread,
            start_ns: number(&line, "start_ns"),
            dur_ns,
            own_ns: dur_ns - inner,
            label: line["labels"]["request"].as_u64(),
            jumped_from: line["tail_call_of"].as_str().map(str::to_owned),
            remarks: remarks.map(|remark| remark.as_str().expect("a remark").to_owned()).collect(),
            inside,
        });
    }
    waiting.into_iter().filter(|((_, depth), _)| *depth == 0).flat_map(|(_, calls)| calls).collect()
}

/// Sums of some calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Computed {
    calls: u64,
    unwound: u64,
    total_ns: u64,
    own_ns: u64,
    /// Of the calls that were timed, sorted.
    durations: Vec<u64>,
}

impl Computed {
    fn of(calls: &[&Printed]) -> Computed {
        let mut computed = Computed { calls: calls.len() as u64, ..Computed::default() };
        // Calls of one thread nest or follow each other: what lies within an earlier one adds
        // nothing.
        let mut spans: Vec<_> = calls.iter().map(|call| (call.thread, call.start_ns, call.dur_ns)).collect();
        spans.sort_by_key(|(thread, start_ns, dur_ns)| (*thread, *start_ns, std::cmp::Reverse(*dur_ns)));
        let mut until = ((0, 0), 0);
        for (thread, start_ns, dur_ns) in spans {
            if until.0 != thread || start_ns + dur_ns > until.1 {
                computed.total_ns += dur_ns;
                until = (thread, start_ns + dur_ns);
            }
        }
        computed.own_ns = calls.iter().map(|call| call.own_ns).sum();
        computed.unwound = calls
            .iter()
            .filter(|call| call.remarks.iter().any(|remark| remark.starts_with("unwound")))
            .count() as u64;
        computed.durations = calls.iter().filter(|call| call.is_timed()).map(|call| call.dur_ns).collect();
        computed.durations.sort_unstable();
        computed
    }

    /// Nearest rank.
    fn percentile(&self, ten_thousandths: usize) -> u64 {
        self.durations[(self.durations.len() * ten_thousandths).div_ceil(10_000).max(1) - 1]
    }

    /// That a row has these numbers; its own time only where all calls are shown.
    fn is(&self, row: &Value, has_own: bool, what: &str) {
        assert_eq!(number(row, "calls"), self.calls, "{what}: {row}");
        assert_eq!(number(row, "unwound"), self.unwound, "{what}: {row}");
        assert_eq!(number(row, "total_ns"), self.total_ns, "{what}: {row}");
        assert_eq!(number(row, "timed_calls"), self.durations.len() as u64, "{what}: {row}");
        if has_own {
            assert_eq!(number(row, "own_ns"), self.own_ns, "{what}: {row}");
        }
        if self.durations.is_empty() {
            assert!(row["p50_ns"].is_null(), "{what}: {row}");
            return;
        }
        let sum: u64 = self.durations.iter().sum();
        assert_eq!(number(row, "average_ns"), sum / self.durations.len() as u64, "{what}");
        assert_eq!(number(row, "min_ns"), self.durations[0], "{what}");
        assert_eq!(Some(&number(row, "max_ns")), self.durations.last(), "{what}");
        for (name, of) in [("p50_ns", 5_000), ("p90_ns", 9_000), ("p99_ns", 9_900), ("p99_9_ns", 9_990)] {
            let (told, is) = (number(row, name), self.percentile(of));
            assert!(told.abs_diff(is) * 100 <= is, "{what}: {name} is {is}, told as {told}");
        }
        let histogram = row["histogram"].as_array().expect("a histogram");
        let counted: u64 = histogram.iter().map(|bar| number(bar, "calls")).sum();
        assert_eq!(counted, self.durations.len() as u64, "{what}");
    }
}

/// By function name, all calls.
fn by_name(calls: &[Printed]) -> BTreeMap<String, Vec<&Printed>> {
    let mut all = Vec::new();
    calls.iter().for_each(|call| call.all(&mut all));
    let mut by_name: BTreeMap<String, Vec<&Printed>> = BTreeMap::new();
    all.into_iter().for_each(|call| by_name.entry(call.name.clone()).or_default().push(call));
    by_name
}

fn row_of<'r>(report: &'r Value, name: &str) -> &'r Value {
    let found: Vec<_> = rows(report).iter().filter(|row| row["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

#[test]
fn calls_are_those_that_the_program_counted_in_every_mode() {
    let place = Place::new("report-counts");
    for mode in Mode::in_turn(0) {
        let (file, counts) = recorded(&place, &built(&place, mode), "300");
        let report = report(&place, &[], &[&file]);
        for (name, count) in counts.iter().filter(|(name, _)| *name != "throws") {
            assert_eq!(number(row_of(&report, name), "calls"), *count, "{} {name}", mode.label());
        }
        let unwound: u64 =
            ["thrower", "between"].map(|name| number(row_of(&report, name), "unwound")).iter().sum();
        assert_eq!(unwound, counts["throws"], "{}", mode.label());
        // `info` has the same numbers.
        let mut info = place.command(everycall());
        let info: Value =
            serde_json::from_str(&successful(info.args(["info", "-f", "json"]).arg(&file))).expect("JSON");
        assert_eq!(info["calls"], report["calls"]);
        assert_eq!(info["unwound_calls"], report["unwound_calls"]);
        assert_eq!(info["functions"].as_u64(), Some(rows(&report).len() as u64));
        for row in info["most_own_time"].as_array().expect("rows") {
            let of = row_of(&report, row["name"].as_str().expect("a name"));
            for number in ["calls", "own_ns", "total_ns", "module", "file", "line", "symbols"] {
                assert_eq!(row[number], of[number], "{number} of {row}");
            }
        }
    }
}

#[test]
fn times_and_percentiles_are_those_of_every_single_call() {
    let place = Place::new("report-times");
    let (file, counts) = recorded(&place, &built(&place, Mode::GCC_NOPS), "2000");
    let first = replayed(&place, &[], &file);
    let tid = first[first.len() - 1].thread.1.to_string();
    let middle = first.iter().map(|call| call.start_ns + call.dur_ns / 2).max().expect("a call");
    let middle = format!("{middle}ns");
    let filters: [&[&str]; 12] = [
        &[],
        &["--min-duration", "2us"],
        &["--depth", "3"],
        &["--function", "^(catcher|handle)$"],
        &["--function", "^round_of$", "--depth", "2"],
        &["--tid", &tid],
        &["--since", &middle],
        &["--until", &middle],
        &["--last", "500us"],
        &["--since", &middle, "--min-duration", "1us", "--function", "^countdown$"],
        &["--label", "request"],
        &["--label", "request=3", "--depth", "2"],
    ];
    for options in filters {
        let what = options.join(" ");
        let calls = replayed(&place, options, &file);
        let expected = by_name(&calls);
        let report = report(&place, options, &[&file]);
        assert_eq!(rows(&report).len(), expected.len(), "{what}");
        assert!(expected.len() > 1 || what.contains("countdown"), "{what}");
        for (name, calls) in &expected {
            Computed::of(calls).is(row_of(&report, name), options.is_empty(), &format!("{what}: {name}"));
        }
        let unwound: u64 = rows(&report).iter().map(|row| number(row, "unwound")).sum();
        assert_eq!(report["unwound_calls"].as_u64(), Some(unwound));
    }
    // Recursion is in there, and counts once.
    let report = report(&place, &[], &[&file]);
    assert!(number(row_of(&report, "countdown"), "total_ns") < number(row_of(&report, "run"), "total_ns"));
    assert!(counts["countdown"] > counts["run"] * 2000);
}

#[test]
fn own_time_does_not_depend_on_which_calls_are_shown() {
    let place = Place::new("report-own");
    let (file, _) = recorded(&place, &built(&place, Mode::CLANG19_XRAY), "500");
    let whole = report(&place, &[], &[&file]);
    let shallow = report(&place, &["--depth", "2"], &[&file]);
    for row in rows(&shallow) {
        let name = row["name"].as_str().expect("a name");
        if row["calls"] == row_of(&whole, name)["calls"] {
            assert_eq!(row["own_ns"], row_of(&whole, name)["own_ns"], "{name}");
        }
    }
}

/// Sums of calls by any key.
fn grouped<K: Ord>(calls: &[Printed], key: impl Fn(&[&Printed]) -> K) -> BTreeMap<K, u64> {
    fn visit<'c, K: Ord>(
        call: &'c Printed,
        path: &mut Vec<&'c Printed>,
        key: &impl Fn(&[&Printed]) -> K,
        into: &mut BTreeMap<K, u64>,
    ) {
        path.push(call);
        *into.entry(key(path)).or_default() += 1;
        call.inside.iter().for_each(|inner| visit(inner, path, key, into));
        path.pop();
    }
    let mut sums = BTreeMap::new();
    calls.iter().for_each(|call| visit(call, &mut Vec::new(), &key, &mut sums));
    sums
}

#[test]
fn threads_files_modules_labels_and_paths_have_their_calls() {
    let place = Place::new("report-groups");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "400");
    let calls = replayed(&place, &[], &file);
    let by = |what: &str| report(&place, &["--by", what], &[&file]);

    let threads = grouped(&calls, |path| path[0].thread.1);
    let told = by("thread");
    let told: BTreeMap<u64, u64> =
        rows(&told).iter().map(|row| (number(row, "tid"), number(row, "calls"))).collect();
    assert_eq!(told, threads);
    assert!(threads.len() >= 3);

    let sum: u64 = threads.values().sum();
    for what in ["process", "module"] {
        let told = by(what);
        assert_eq!(rows(&told).iter().map(|row| number(row, "calls")).sum::<u64>(), sum, "{what}");
    }
    let files = by("file");
    let names: BTreeSet<_> = rows(&files).iter().filter_map(|row| row["file"].as_str()).collect();
    assert!(names.iter().any(|name| name.ends_with("reported.cpp")), "{names:?}");

    // The path of a call: a function that is on it already ends it there.
    let paths = grouped(&calls, |path| {
        let mut names: Vec<String> = Vec::new();
        for call in path {
            match names.iter().position(|name| *name == call.name) {
                Some(known) => names.truncate(known + 1),
                None => names.push(call.name.clone()),
            }
        }
        names
    });
    let told = by("path");
    let told: BTreeMap<Vec<String>, u64> = rows(&told)
        .iter()
        .map(|row| {
            let path = row["path"].as_array().expect("a path").iter();
            (path.map(|name| name.as_str().expect("a name").to_owned()).collect(), number(row, "calls"))
        })
        .collect();
    assert_eq!(told, paths);

    // `handle` has the label, and is called in each round by each of two threads with x % 50.
    let labels = by("label:request");
    for value in 0..4_u64 {
        let rounds = (0..400_u64).filter(|x| x % 50 % 4 == value).count() as u64 * 2;
        let row = rows(&labels).iter().find(|row| row["value"].as_u64() == Some(value)).expect("a value");
        let inside = |path: &[&Printed]| path.iter().any(|call| call.name.starts_with("handle"));
        // handle, work and its two leaves; what it jumps to is no call in it.
        let in_handle: u64 = grouped(&calls, |path| inside(path)).get(&true).copied().unwrap_or(0);
        assert_eq!(in_handle % 800, 0);
        assert_eq!(number(row, "calls"), rounds * (in_handle / 800), "{row}");
    }
    let without = rows(&labels).iter().find(|row| row["has_label"] == false).expect("the other calls");
    assert!(number(without, "calls") > 0);
}

#[test]
fn several_files_add_up_and_the_table_fits() {
    let place = Place::new("report-files");
    let program = built(&place, Mode::GCC_NOPS);
    let (one, _) = recorded(&place, &program, "50");
    let (two, _) = recorded(&place, &program, "80");
    let sum = report(&place, &[], &[&one, &two]);
    let (first, second) = (report(&place, &[], &[&one]), report(&place, &[], &[&two]));
    for row in rows(&sum) {
        let name = row["name"].as_str().expect("a name");
        for column in ["calls", "total_ns", "own_ns", "unwound", "timed_calls"] {
            let parts = number(row_of(&first, name), column) + number(row_of(&second, name), column);
            assert_eq!(number(row, column), parts, "{name} {column}");
        }
    }
    for width in ["40", "60", "80", "100", "200"] {
        let output = text(&place, &["--width", width], &[&one]);
        assert!(output.status.success());
        let table = String::from_utf8(output.stdout).expect("UTF-8");
        let longest = table.lines().map(|line| line.chars().count()).max().expect("lines");
        assert!(longest <= width.parse().expect("a width"), "{width}: {longest}\n{table}");
        assert!(table.contains("calls") && table.contains("round_of"), "{table}");
    }
    let limited = text(&place, &["--limit", "2", "--sort", "calls"], &[&one]);
    let table = String::from_utf8(limited.stdout).expect("UTF-8");
    assert!(table.lines().nth(1).is_some_and(|line| line.ends_with("leaf")), "{table}");
    assert!(!table.contains("round_of"));
    assert!(String::from_utf8_lossy(&limited.stderr).contains("--limit 0"));

    let mut csv = place.command(everycall());
    let csv = successful(csv.args(["report", "-f", "csv"]).arg(&one));
    let names: Vec<&str> = csv.lines().next().expect("names").split(',').collect();
    assert_eq!(csv.lines().count(), rows(&first).len() + 1);
    let place_of = |name: &str| names.iter().position(|it| *it == name).expect("a column");
    for line in csv.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        // Names with commas are quoted; this program's C names have none.
        if cells.len() == names.len() {
            let row = row_of(&first, cells[0]);
            assert_eq!(cells[place_of("calls")], number(row, "calls").to_string());
            assert_eq!(cells[place_of("p99_ns")], number(row, "p99_ns").to_string());
        }
    }
}

/// All calls with what is around them, outermost first.
fn with_callers<'c>(
    calls: &'c [Printed],
    around: &mut Vec<&'c Printed>,
    visit: &mut impl FnMut(&[&'c Printed], &'c Printed),
) {
    for call in calls {
        visit(around, call);
        around.push(call);
        with_callers(&call.inside, around, visit);
        around.pop();
    }
}

#[test]
fn callers_and_callees_have_the_calls_between_them() {
    let place = Place::new("report-edges");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "300");
    let calls = replayed(&place, &[], &file);
    for name in ["leaf", "work", "countdown", "even", "round_of", "respond"] {
        let (mut callers, mut callees): (BTreeMap<_, u64>, BTreeMap<_, u64>) = Default::default();
        with_callers(&calls, &mut Vec::new(), &mut |around, call| {
            let jumped = call.jumped_from.as_deref();
            let caller = jumped.or(around.last().map(|caller| caller.name.as_str()));
            let is_jump = jumped.is_some();
            if call.name == name {
                *callers.entry((caller, is_jump)).or_default() += 1;
            }
            if caller == Some(name) {
                *callees.entry((Some(call.name.as_str()), is_jump)).or_default() += 1;
            }
        });
        for (option, expected, column) in [("--callers", callers, "caller"), ("--callees", callees, "callee")]
        {
            let told = report(&place, &[option, name], &[&file]);
            let told: BTreeMap<_, u64> = rows(&told)
                .iter()
                .map(|row| ((row[column].as_str(), row["tail_call"] == true), number(row, "calls")))
                .collect();
            assert_eq!(told, expected, "{option} {name}");
        }
        // A recursive function's calls from itself add nothing to its time.
        let told = report(&place, &["--callers", name], &[&file]);
        let total: u64 = rows(&told).iter().map(|row| number(row, "total_ns")).sum();
        assert_eq!(total, Computed::of(&by_name(&calls)[name]).total_ns, "{name}");
        assert_eq!(number(&told["of"], "total_ns"), total);
    }
}

#[test]
fn the_tree_has_every_path() {
    let place = Place::new("report-tree");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "200");
    let tree = report(&place, &["--tree"], &[&file]);
    let paths = report(&place, &["--by", "path"], &[&file]);
    let of_tree = rows(&tree);
    let by_id: BTreeMap<u64, &Value> = of_tree.iter().map(|row| (number(row, "id"), row)).collect();
    let path = |row: &Value| {
        let mut names = vec![row["name"].clone()];
        let mut at = row;
        while let Some(parent) = at["parent"].as_u64() {
            at = by_id[&parent];
            names.insert(0, at["name"].clone());
        }
        names
    };
    assert_eq!(of_tree.len(), rows(&paths).len());
    for row in of_tree {
        let path = path(row);
        assert_eq!(number(row, "depth") + 1, path.len() as u64);
        let same =
            rows(&paths).iter().find(|other| other["path"] == Value::Array(path.clone())).expect("a path");
        for column in ["calls", "total_ns", "own_ns", "p99_ns"] {
            assert_eq!(row[column], same[column], "{column} of {path:?}");
        }
    }
    let few = text(&place, &["--tree", "--limit", "3"], &[&file]);
    assert_eq!(String::from_utf8_lossy(&few.stdout).lines().count(), 4, "{few:?}");
}

#[test]
fn the_slowest_calls_are_those_and_are_found_in_the_trace() {
    let place = Place::new("report-slowest");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "500");
    let calls = replayed(&place, &[], &file);
    let by_name = by_name(&calls);
    let mut work: Vec<_> =
        by_name["work"].iter().map(|call| (call.dur_ns, call.start_ns, call.thread.1)).collect();
    work.sort_by_key(|(dur_ns, start_ns, _)| (std::cmp::Reverse(*dur_ns), *start_ns));
    let told = report(&place, &["--slowest", "work", "--limit", "5"], &[&file]);
    let slowest: Vec<_> = rows(&told)
        .iter()
        .map(|row| (number(row, "dur_ns"), number(row, "start_ns"), number(row, "tid")))
        .collect();
    assert_eq!(slowest, work[..5]);
    for row in rows(&told) {
        // The command that is told shows that call.
        let command = row["command"].as_str().expect("a command").replacen("everycall", "$EVERYCALL", 1);
        let command = format!("{command} --format json");
        let mut shell = place.command("sh");
        let lines = successful(shell.args(["-c", &command]).env("EVERYCALL", everycall()));
        let shown = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_it = |line: &Value| line["name"] == "work" && line["dur_ns"] == row["dur_ns"];
        assert_eq!(shown.filter(is_it).count(), 1, "{command}");
    }
}

#[test]
fn slow_calls_are_explained_by_what_they_did() {
    let place = Place::new("report-explain");
    place.write(
        "slow_child.c",
        "static volatile unsigned sink;
         __attribute__((noinline)) void quick(void) { sink += 1; }
         __attribute__((noinline)) void sometimes(void) { for (int i = 0; i < 2000000; i++) sink += i; }
         __attribute__((noinline)) void handle(int i) { quick(); if (i % 50 == 0) sometimes(); sink += i; }
         int main(void) { for (int i = 0; i < 2000; i++) handle(i); return 0; }
",
    );
    let program = place.build(Mode::GCC_NOPS, &["-O2", "slow_child.c"], "slow_child");
    let recording = place.record(&["-q"], &program, &[]);
    let told = report(&place, &["--explain", "handle"], &[&recording.file]);
    assert_eq!(told["timed_calls"], 2000);
    let first = &rows(&told)[0];
    assert_eq!(
        (&first["part"], &first["name"]),
        (&Value::from("call"), &Value::from("sometimes")),
        "{first}"
    );
    assert_eq!(first["median_calls_per_call"], 0.0);
    assert!(first["slow_calls_per_call"].as_f64().is_some_and(|calls| calls > 0.5), "{first}");
    let page = text(&place, &["--explain", "handle"], &[&recording.file]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("--explain 'sometimes'"), "{page}");
}

#[test]
fn functions_that_were_not_called_are_listed() {
    let place = Place::new("report-never");
    place.write(
        "parts.cpp",
        "#include <cstdlib>
         struct Part { Part(int x); virtual ~Part(); int x; };
         __attribute__((noipa)) Part::Part(int x) : x(x) {}
         __attribute__((noipa)) Part::~Part() {}
         namespace ns { __attribute__((noipa)) int used(int x) { return x + 1; }
                        __attribute__((noipa)) int unused(int x) { return x * 3; } }
         int main(int count, char **) {
             Part part(count);
             volatile int sink = ns::used(part.x);
             if (count > 5) sink = ns::unused(sink);
             return sink == 77;
         }
",
    );
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-g", "parts.cpp"], "parts");
    let recording = place.record(&["-q"], &program, &[]);
    let told = report(&place, &["--never"], &[&recording.file]);
    let names: Vec<_> = rows(&told).iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["ns::unused(int)"]);
    assert!(rows(&told)[0]["source"].as_str().is_some_and(|source| source.contains("parts.cpp:6")), "{told}");
}

#[test]
fn merged_runs_are_what_their_traces_are() {
    let place = Place::new("report-merge");
    let program = built(&place, Mode::GCC_NOPS);
    let (one, _) = recorded(&place, &program, "60");
    let (two, _) = recorded(&place, &program, "70");
    let whole = report(&place, &[], &[&one, &two]);
    for option in [None, Some("--sum")] {
        let merged = place.file("runs.ecp");
        let mut merge = place.command(everycall());
        successful(merge.args(["merge", "-q"]).args(option).arg("-o").arg(&merged).args([&one, &two]));
        let told = report(&place, &[], &[&merged]);
        assert_eq!(told["rows"], whole["rows"], "{option:?}");
        assert_eq!(told["not_in_the_numbers"], whole["not_in_the_numbers"]);
        let again = place.file("again.ecp");
        let mut merge = place.command(everycall());
        successful(merge.args(["merge", "-q"]).arg("-o").arg(&again).arg(&merged));
        assert_eq!(report(&place, &[], &[&again])["rows"], whole["rows"]);
        // Options that need calls are refused, and so are cut files.
        for options in [&["--tree"][..], &["--by", "thread"], &["--slowest", "work"], &["--depth", "2"]] {
            let refused = text(&place, options, &[&merged]);
            assert_eq!(refused.status.code(), Some(1), "{options:?}");
            assert!(
                String::from_utf8_lossy(&refused.stderr).contains("contains sums of functions"),
                "{refused:?}"
            );
        }
        let bytes = std::fs::read(&merged).expect("the file");
        std::fs::write(&merged, &bytes[..bytes.len() / 2]).expect("written");
        let refused = text(&place, &[], &[&merged]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("cut or damaged"), "{refused:?}");
        std::fs::write(&merged, b"{\"everycall_profile\":99,\"runs\":[]}").expect("written");
        let refused = text(&place, &[], &[&merged]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("newer everycall"), "{refused:?}");
    }
}

#[test]
fn a_planted_difference_is_found_between_real_runs_and_fails_a_check() {
    let place = Place::new("report-diff");
    place.write(
        "planted.c",
        "static volatile unsigned sink;
         #define F(n) __attribute__((noinline)) void f##n(void) { for (int i = 0; i < 400 + 20 * n; i++) sink += i; }
         F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
         __attribute__((noinline)) void slower(void) { for (int i = 0; i < STEPS; i++) sink += i; }
         int main(void) {
             for (int i = 0; i < 1000; i++) {
                 f0(); f1(); f2(); f3(); f4(); f5(); f6(); f7(); f8(); f9();
                 slower();
                 if (i % 100 == 0 && MORE) f3();
             }
             return 0;
         }
",
    );
    let build = |name: &str, options: [&str; 2]| {
        place.build(Mode::GCC_NOPS, &["-O2", options[0], options[1], "planted.c"], name)
    };
    let before = build("before", ["-DSTEPS=400", "-DMORE=0"]);
    // Ten times as slow, so that a loaded machine can't hide it; 1 % more often, exactly. All take
    // many times the clock's resolution: rounding would look like differences between runs.
    let after = build("after", ["-DSTEPS=4000", "-DMORE=1"]);
    // Alternately, so that a machine that becomes busier meanwhile does so for both.
    let run = |program| place.record(&["-q"], program, &[]).file;
    let (old, new): (Vec<PathBuf>, Vec<PathBuf>) = (0..5).map(|_| (run(&before), run(&after))).unzip();
    let mut diff = place.command(everycall());
    diff.args(["report", "-f", "json", "--diff"]).args(&old).arg("--against").args(&new);
    let told: Value = serde_json::from_str(&successful(&mut diff)).expect("JSON");
    // The program has another name by now.
    assert_eq!(told["common_functions"], 12);
    let row = |name: &str| row_of(&told, name);
    assert_eq!(
        (&row("slower")["is_found"], &row("slower")["own_is_found"]),
        (&Value::from(true), &Value::from(true))
    );
    assert!(row("slower")["own_change"].as_f64().is_some_and(|change| change > 2.0), "{}", row("slower"));
    // It says how fine the comparison is.
    assert!(told["smallest_found"].as_f64().is_some_and(|smallest| smallest > 0.0), "{told}");
    assert_eq!(row("f3")["calls_is_found"], true);
    assert!(row("f3")["calls_change"].as_f64().is_some_and(|change| (change - 0.01).abs() < 1e-9));
    for name in ["f0", "f5", "main"] {
        assert_eq!(row(name)["calls_is_found"], false, "{name}");
    }
    assert_eq!(rows(&told)[0]["is_found"], true);

    let check_runs = |condition: &str, count: usize| {
        let mut command = place.command(everycall());
        command.args(["report", "--fail-if", condition, "--diff"]).args(&old[..count]);
        command.arg("--against").args(&new[..count]).output().expect("everycall runs")
    };
    let check = |condition: &str| check_runs(condition, 5);
    for (condition, code) in [
        // Preemption can take longer than all calls together, but not in every second call.
        ("p50(slower) > +50%", 3),
        ("calls(f3) > +0%", 3),
        ("calls(f3) > +2%", 0),
        ("calls(f0) > +0%", 0),
        ("calls(f*) > +5", 3),
        ("max(slower) > 10s", 0),
        ("avg(slowr) > +1%", 1),
        ("avg slower", 2),
    ] {
        let output = check(condition);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{condition}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // One run on each side decides what runs repeat exactly, but no change of a time.
    assert_eq!(check_runs("calls(f3) > +0%", 1).status.code(), Some(3));
    let undecided = check_runs("p50(slower) > +50%", 1);
    assert_eq!(undecided.status.code(), Some(4), "{undecided:?}");
    let said = String::from_utf8_lossy(&undecided.stderr);
    assert!(said.contains("can't be decided") && said.contains("one run on each side"), "{said}");
    let near = check("avg(slowr) > +1%");
    assert!(String::from_utf8_lossy(&near.stderr).contains("there is slower"), "{near:?}");
    // Without a comparison, a number itself.
    assert_eq!(text(&place, &["--fail-if", "calls(slower) > 999"], &[&old[0]]).status.code(), Some(3));
    assert_eq!(text(&place, &["--fail-if", "calls(slower) > 1000"], &[&old[0]]).status.code(), Some(0));
}

/// One side of a function in `--diff`: calls, own time, total time, and the longest call.
fn side(row: &Value, side: &str) -> [u64; 4] {
    ["calls", "own_ns", "total_ns", "max_ns"].map(|name| row[format!("{side}_{name}")].as_u64().unwrap_or(0))
}

/// Number, own time, total time and the longest of these calls.
fn computed(calls: &[&Printed]) -> [u64; 4] {
    let of = Computed::of(calls);
    [of.calls, of.own_ns, of.total_ns, of.durations.last().copied().unwrap_or(0)]
}

#[test]
fn ranges_and_labels_of_one_file_are_compared() {
    let place = Place::new("report-parts");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "200");
    let printed = replayed(&place, &[], &file);
    let mut all = Vec::new();
    printed.iter().for_each(|call| call.all(&mut all));
    let begin =
        all.iter().filter(|call| call.name == "round_of").map(|call| call.start_ns).min().unwrap_or(0);
    let end = all.iter().map(|call| call.start_ns + call.dur_ns).max().unwrap_or(0);
    let middle = begin + (end - begin) / 3;
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let diff = |old: &[String], new: &[String], options: &[&str]| {
        let mut command = place.command(everycall());
        command
            .args(["report", "-f", "json"])
            .args(options)
            .arg("--diff")
            .args(old)
            .arg("--against")
            .args(new);
        serde_json::from_str::<Value>(&successful(&mut command)).expect("JSON")
    };
    let check = |told: &Value, is_in: &dyn Fn(&Printed, &str) -> bool| {
        let mut seen = 0;
        for (function, _) in by_name(&printed) {
            let of = |which: &str| -> Vec<&Printed> {
                all.iter().copied().filter(|call| call.name == function && is_in(call, which)).collect()
            };
            let (old, new) = (of("old"), of("new"));
            if old.is_empty() && new.is_empty() {
                continue;
            }
            let row = row_of(told, &function);
            assert_eq!((side(row, "old"), side(row, "new")), (computed(&old), computed(&new)), "{function}");
            seen += 1;
        }
        assert_eq!(seen, rows(told).len());
    };
    // Times: a call is in a range if a moment of it is.
    let range = |from: u64, to: u64| format!("{name}@{from}ns..{to}ns");
    let overlaps =
        |call: &Printed, from: u64, to: u64| call.start_ns <= to && call.start_ns + call.dur_ns >= from;
    let told = diff(&[range(begin, middle)], &[format!("{name}@{middle}ns..")], &[]);
    check(&told, &|call, which| match which {
        "old" => overlaps(call, begin, middle),
        _ => overlaps(call, middle, u64::MAX),
    });
    assert_eq!(told["old_files"][0]["part"], format!("{begin}ns..{middle}ns"));
    // Labels: `handle` has it, and what it calls is in it.
    fn labelled(call: &Printed, value: u64, is_within: bool, into: &mut Vec<*const Printed>) {
        let is_within = is_within || call.label == Some(value);
        if is_within {
            into.push(call);
        }
        call.inside.iter().for_each(|call| labelled(call, value, is_within, into));
    }
    let with = |value: u64| {
        let mut found = Vec::new();
        printed.iter().for_each(|call| labelled(call, value, false, &mut found));
        found
    };
    let (first, second) = (with(1), with(2));
    assert!(first.len() > 100 && second.len() > 100);
    let told = diff(&[format!("{name}@request=1")], &[format!("{name}@request=2")], &[]);
    check(&told, &|call, which| {
        if which == "old" { &first } else { &second }.contains(&std::ptr::from_ref(call))
    });
    // Both together.
    let told = diff(&[format!("{name}@request=1@..{middle}ns")], &[format!("{name}@request=2")], &[]);
    check(&told, &|call, which| match which {
        "old" => first.contains(&std::ptr::from_ref(call)) && overlaps(call, 0, middle),
        _ => second.contains(&std::ptr::from_ref(call)),
    });
    // Several parts on a side are runs: there is an interval between them.
    let mut starts: Vec<u64> =
        all.iter().filter(|call| call.name == "leaf").map(|call| call.start_ns).collect();
    starts.sort_unstable();
    // Each with calls, however the machine has run the threads.
    let quarter =
        |number: usize| range(starts[starts.len() * number / 4], starts[starts.len() * (number + 1) / 4 - 1]);
    let told = diff(&[quarter(0), quarter(1)], &[quarter(2), quarter(3)], &[]);
    assert_eq!((&told["old_runs"], &told["new_runs"]), (&Value::from(2), &Value::from(2)));
    assert!(row_of(&told, "leaf")["own_p"].is_number(), "{}", row_of(&told, "leaf"));

    let refused = |old: &str, options: &[&str], code: i32| {
        let output = text(&place, &[options, &["--diff", old, name]].concat(), &[]);
        assert_eq!(output.status.code(), Some(code), "{old}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let part = |text: &str| format!("{name}@{text}");
    assert!(refused(&part("3ms..2ms"), &[], 2).contains("ends before it begins"));
    assert!(refused(&part("2ms"), &[], 2).contains("one moment"));
    assert!(refused(&part("soon..2ms"), &[], 2).contains("`soon`: not a time"));
    assert!(refused(&part("request=x"), &[], 2).contains("whole number"));
    assert!(refused(&part("1ms..2ms"), &["--since", "1ms"], 2).contains("given twice"));
    assert!(refused(&part("request=1@request=2"), &[], 2).contains("given twice"));
    assert!(refused("none.ect@1ms..2ms", &[], 1).contains("can't be read"));
    assert!(refused(&part("9h..10h"), &[], 0).contains("the trace lasts"));
    assert!(refused(&part("request=77"), &[], 0).contains("--by label:request"));
    assert!(refused(&part("reqest=1"), &[], 0).contains("no label"));
    assert!(refused(&part("1ms..2ms"), &[], 0).contains("with one part on each side"));
    // A file whose own name has an @.
    std::fs::copy(&file, place.file("odd@1s..2s")).expect("a copy");
    assert!(!refused("odd@1s..2s", &[], 0).contains("part"));
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new("report-wrong");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "30");
    let stderr = |options: &[&str], code: i32| {
        let output = text(&place, options, &[&file]);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(stderr(&["--callers", "cuntdown"], 1).contains("countdown"));
    assert!(stderr(&["--slowest", "/[/"], 2).contains("`/[/`"));
    assert!(stderr(&["--function", "nothing_like_it"], 0).contains("matches --function `nothing_like_it`"));
    assert!(stderr(&["--since", "1h"], 0).contains("matches the filter options"));
    assert!(stderr(&["--label", "nothing"], 0).contains("no label"));
    assert!(stderr(&["--sort", "speed"], 2).contains("p99.9"));
    assert!(stderr(&["--by", "colour"], 2).contains("label:NAME"));
    assert!(stderr(&["--tree", "--never"], 2).contains("cannot be used"));
    // A function in the place of a file, as other tools take it; and one call that there is nothing to compare with.
    assert!(stderr(&["--tree", "handle"], 2).contains("--tree --function '^handle$'"));
    assert!(stderr(&["--explain", "main"], 1).contains("--callees 'main'"));
    // Long names and paths fit in.
    let narrow = text(&place, &["--never", "--width", "60"], &[&file]);
    let narrow = String::from_utf8_lossy(&narrow.stdout).into_owned();
    assert!(narrow.lines().count() > 1 && narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    // A ring that was too small: what is counted isn't all, and that is said.
    let program = built(&place, Mode::GCC_NOPS);
    let small = place.record(&["-q", "--ring-size", "64K"], &program, &["2", "3000"]);
    let output = text(&place, &[], &[&small.file]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("was overwritten") && said.contains("truncated"), "{said}");
    // A file that is cut in the middle.
    let bytes = std::fs::read(&file).expect("the trace");
    let cut = place.file("cut.ect");
    std::fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).expect("written");
    let output = text(&place, &[], &[&cut]);
    assert!(!String::from_utf8_lossy(&output.stderr).is_empty(), "{output:?}");
}

#[test]
fn with_tails_calls_go_on_until_what_they_jumped_to_has_ended() {
    let place = Place::new("report-tails");
    let (file, _) = recorded(&place, &built(&place, Mode::GCC_NOPS), "300");
    // Independently: a call that a jump made is the rest of the call that jumped, and what is
    // jumped to without being traced is the rest, too.
    let mut command = place.command(everycall());
    let text = successful(command.args(["replay", "-f", "json"]).arg(&file));
    let mut durations: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    // By thread and depth: calls that jumped, until what follows ends.
    let mut jumped: BTreeMap<(u64, u64), Vec<(String, u64)>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let tid = number(&line, "tid");
        if let Some(at_most) = line["untraced_at_most_ns"].as_u64() {
            let end = number(&line, "at_ns") + at_most;
            for (name, start) in jumped.remove(&(tid, last[&tid])).into_iter().flatten() {
                durations.entry(name).or_default().push(end - start);
            }
            continue;
        }
        let Some(dur_ns) = line["dur_ns"].as_u64() else { continue };
        let (depth, start) = (number(&line, "depth"), number(&line, "start_ns"));
        last.insert(tid, depth);
        let name = line["name"].as_str().expect("a name").to_owned();
        let is_tail = !line["tail_call_of"].is_null() || !line["possible_tail_call_of"].is_null();
        let mut waiting = jumped.remove(&(tid, depth)).unwrap_or_default();
        assert!(waiting.is_empty() || is_tail, "{line}");
        waiting.push((name, start));
        if line["remarks"]
            .as_array()
            .is_some_and(|remarks| remarks.iter().any(|it| it == "ends in a tail call"))
        {
            jumped.insert((tid, depth), waiting);
            continue;
        }
        for (name, from) in waiting {
            durations.entry(name).or_default().push(start + dur_ns - from);
        }
    }
    let told = report(&place, &["--tails"], &[&file]);
    let plain = report(&place, &[], &[&file]);
    for (name, durations) in &mut durations {
        durations.sort_unstable();
        let row = row_of(&told, name);
        assert_eq!(number(row, "calls"), durations.len() as u64, "{name}");
        assert_eq!(row["own_ns"], row_of(&plain, name)["own_ns"], "{name}");
        assert_eq!(Some(&number(row, "max_ns")), durations.last(), "{name}");
        assert_eq!(
            number(row, "average_ns"),
            durations.iter().sum::<u64>() / durations.len() as u64,
            "{name}"
        );
    }
    // `handle` jumps to `respond`.
    let (handle, respond) = (row_of(&told, "handle"), row_of(&told, "respond"));
    assert!(
        number(handle, "total_ns")
            >= number(row_of(&plain, "handle"), "total_ns") + number(respond, "total_ns")
    );
}

#[test]
fn corrected_times_are_measured_ones_without_what_hooks_cost() {
    let place = Place::new("corrected");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT] {
        let name = format!("corrected-{}", mode.label());
        let program = place.build(mode, &["-O2", "corrected.c"], &name);
        let recording = place.record(&["-q"], &program, &[]);
        assert!(recording.output.status.success(), "{recording:?}");
        let mut info = place.command(everycall());
        let info: Value =
            serde_json::from_str(&successful(info.args(["info", "-f", "json"]).arg(&recording.file)))
                .expect("JSON");
        let processes = info["hooks"].as_array().expect("what hooks cost");
        assert_eq!(processes.len(), 2, "the program and its child: {processes:?}");
        assert!(number(&processes[0], "cpu_ns") > 0);
        // Of one event; a call has two.
        let kind = if mode == Mode::GCC_NOPS { "sites" } else { "bodies" };
        let price = |part: &str, end: &str| 2.0 * processes[0][kind][part][end].as_f64().expect("a price");
        for part in ["inside_ns", "outside_ns"] {
            let [low, value, high] = ["low", "value", "high"].map(|end| price(part, end));
            assert!(0.0 < low && low <= value && value <= high, "{processes:?}");
        }

        let report = report(&place, &["--corrected"], &[&recording.file]);
        for row in rows(&report) {
            for time in ["total", "own"] {
                let of = |end: &str| number(row, &format!("corrected_{time}{end}_ns"));
                assert!(of("_low") <= of("") && of("") <= of("_high"), "{row}");
                assert!(of("_high") < number(row, &format!("{time}_ns")), "{row}");
            }
        }
        let row = |name: &str| {
            rows(&report)
                .iter()
                .find(|row| row["name"].as_str().expect("a name").starts_with(name))
                .expect(name)
        };
        let is = |row: &Value, time: &str, end: &str, hooks: f64| {
            let left = number(row, &format!("{time}_ns")) as f64 - hooks;
            let corrected = number(row, &format!("corrected_{time}_ns")) as f64;
            assert!((corrected - left.max(0.0)).abs() < 100.0 + hooks / 1e3, "{time} {end}: {left}, {row}");
        };
        let (inside, outside) = (price("inside_ns", "value"), price("outside_ns", "value"));
        is(row("leaf"), "own", "", 10_001.0 * inside);
        is(row("leaf"), "total", "", 10_001.0 * inside);
        is(row("middle"), "own", "", 1_000.0 * inside + 10_000.0 * outside);
        is(row("middle"), "total", "", 1_000.0 * inside + 10_000.0 * (inside + outside));

        // `replay` shows the same of each call.
        let mut replay = place.command(everycall());
        let calls = successful(replay.args(["replay", "-f", "json", "--corrected"]).arg(&recording.file));
        let calls: Vec<Value> = calls.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        // The child is forked after all calls of the program.
        let of_program = |call: &&Value| call["pid"] == calls[0]["pid"];
        for (name, hooks) in [("leaf", inside), ("middle", 11.0 * inside + 10.0 * outside)] {
            let is_named = |call: &&Value| call["name"].as_str().is_some_and(|of| of.starts_with(name));
            let mut count = 0;
            for call in calls.iter().filter(of_program).filter(is_named) {
                let of = |end: &str| number(call, &format!("corrected{end}_ns"));
                assert!(of("_low") <= of("") && of("") <= of("_high"), "{call}");
                assert!(of("_high") <= number(call, "dur_ns"), "{call}");
                // None is below 0.
                let left = (number(call, "dur_ns") as f64 - hooks).max(0.0);
                assert!((of("") as f64 - left).abs() < 3.0 + hooks / 1e3, "{name}: {left}, {call}");
                count += 1;
            }
            assert_eq!(count, if name == "leaf" { 10_000 } else { 1_000 });
        }

        // The program's CPU time without tracing is only known of one process.
        let refused = text(&place, &["--corrected", "--untraced", "1ms"], &[&recording.file]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("one process"), "{refused:?}");
    }
}

#[test]
fn times_are_not_corrected_where_nobody_knows_what_hooks_cost() {
    let place = Place::new("uncorrected");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/reading/timeline/tests/golden");
    let old = kept.join("v2.10-calls.ect");
    let advice = [(&old, "record the program anew"), (&kept.join("v2.14-stamps.ect"), "--clock exact")];
    for (file, advice) in advice {
        let refused = text(&place, &["--corrected"], &[file]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(advice), "{said}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
        let refused =
            place.command(everycall()).args(["replay", "--corrected"]).arg(file).output().expect("replay");
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(advice), "{refused:?}");
    }
    let unsorted = text(&place, &["--corrected", "--sort", "p99"], &[&old]);
    assert_eq!(unsorted.status.code(), Some(2), "{unsorted:?}");
}
