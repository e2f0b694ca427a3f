//! `report`: its numbers are those that the program counted itself, and those that are computed independently from every single call
//! that `replay --format json` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

fn include() -> String {
    format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/kit/include"))
}

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "-g", &include(), "reported.cpp", "-pthread"], &format!("reported-{}", mode.label()))
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
    inside: Vec<Printed>,
}

impl Printed {
    fn is_timed(&self) -> bool {
        let untimed = |remark: &String| {
            remark.starts_with("truncated") || remark.contains("unknown") || remark == "exit lost" || remark.contains("partly")
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
            remarks: remarks.map(|remark| remark.as_str().expect("a remark").to_owned()).collect(),
            inside,
        });
    }
    waiting.into_iter().filter(|((_, depth), _)| *depth == 0).flat_map(|(_, calls)| calls).collect()
}

/// What is computed of some calls.
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
        // Calls of one thread nest or follow each other: what lies within an earlier one adds nothing.
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
        computed.unwound =
            calls.iter().filter(|call| call.remarks.iter().any(|remark| remark.starts_with("unwound"))).count() as u64;
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
fn by_name<'c>(calls: &'c [Printed]) -> BTreeMap<String, Vec<&'c Printed>> {
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
    for mode in Mode::ALL {
        let (file, counts) = recorded(&place, &built(&place, mode), "300");
        let report = report(&place, &[], &[&file]);
        for (name, count) in counts.iter().filter(|(name, _)| *name != "throws") {
            assert_eq!(number(row_of(&report, name), "calls"), *count, "{} {name}", mode.label());
        }
        let unwound: u64 = ["thrower", "between"].map(|name| number(row_of(&report, name), "unwound")).iter().sum();
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
    let told: BTreeMap<u64, u64> = rows(&told).iter().map(|row| (number(row, "tid"), number(row, "calls"))).collect();
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
