//! Formats of sums: what other tools read out of `export` is what `report` says of each function.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::workloads::target_folder;
use everycall_tests::{Mode, Place, everycall, is_full, successful};
use flate2::read::GzDecoder;
use prost::Message;
use serde_json::Value;

/// A format's numbers of a function; `None` for those that it doesn't have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers {
    calls: Option<u64>,
    total_ns: u64,
    own_ns: u64,
}

type Functions = BTreeMap<String, Numbers>;

fn recorded(place: &Place, mode: Mode, arguments: &[&str]) -> PathBuf {
    let program = place.build(mode, &["-O2", "-g", "exported.cpp", "-pthread"], "exported");
    let recording = place.record(&["-q", "--ring-size", "64M"], &program, arguments);
    assert!(recording.output.status.success(), "{recording:?}");
    recording.file
}

fn export(place: &Place, format: &str, options: &[&str], file: &Path) -> Vec<u8> {
    let mut command = place.command(everycall());
    let output = command.args(["export", "-f", format, "-o", "-"]).args(options).arg(file).output();
    let output = output.expect("everycall runs");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn reported(place: &Place, options: &[&str], file: &Path) -> Functions {
    let mut command = place.command(everycall());
    command.args(["report", "-f", "json"]).args(options).arg(file);
    let report: Value = serde_json::from_str(&successful(&mut command)).expect("JSON");
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} in {row}"));
        let calls = Some(number("calls"));
        let numbers = Numbers { calls, total_ns: number("total_ns"), own_ns: number("own_ns") };
        (row["name"].as_str().expect("a name").to_owned(), numbers)
    })
    .collect()
}

/// Adds a stack, the outermost frame first, to its functions.
fn add(functions: &mut Functions, stack: &[&str], calls: Option<u64>, own_ns: u64) {
    for name in stack.iter().copied().collect::<BTreeSet<_>>() {
        functions.entry(name.to_owned()).or_default().total_ns += own_ns;
    }
    if let Some(name) = stack.last() {
        let innermost = functions.entry((*name).to_owned()).or_default();
        innermost.own_ns += own_ns;
        if let Some(calls) = calls {
            *innermost.calls.get_or_insert_default() += calls;
        }
    }
}

fn folded(text: &str) -> Functions {
    let mut functions = Functions::new();
    for line in text.lines() {
        let (stack, ns) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        // The first is the thread.
        let stack: Vec<&str> = stack.split(';').skip(1).collect();
        add(&mut functions, &stack, None, ns.parse().unwrap_or_else(|_| panic!("{line}")));
    }
    functions
}

#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

fn pprof(bytes: &[u8]) -> Functions {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked).expect("gzip");
    let profile = Profile::decode(&*unpacked).expect("a profile");
    let text = |number: i64| profile.string_table[usize::try_from(number).expect("a number")].as_str();
    assert_eq!(text(0), "");
    let types: Vec<_> = profile.sample_type.iter().map(|kind| (text(kind.kind), text(kind.unit))).collect();
    assert_eq!(types, [("calls", "count"), ("wall", "nanoseconds")]);
    assert_eq!(text(profile.default_sample_type), "wall");
    let names: BTreeMap<u64, &str> =
        profile.function.iter().map(|function| (function.id, text(function.name))).collect();
    let places: BTreeMap<u64, &str> =
        profile.location.iter().map(|location| (location.id, names[&location.line[0].function_id])).collect();
    let mut functions = Functions::new();
    for sample in &profile.sample {
        let stack: Vec<&str> = sample.location_id.iter().rev().skip(1).map(|id| places[id]).collect();
        let [calls, ns] = sample.value[..] else { panic!("{sample:?}") };
        add(&mut functions, &stack, u64::try_from(calls).ok(), u64::try_from(ns).expect("a time"));
    }
    let place = profile.function.iter().find(|function| text(function.name) == "deep(int)").expect("deep");
    assert!(text(place.filename).ends_with("exported.cpp") && place.start_line > 0, "{place:?}");
    functions
}

/// Replays the events as speedscope does, which refuses a file in which an event closes another
/// frame than the innermost one, or in which time goes back.
fn speedscope(bytes: &[u8]) -> (Functions, usize) {
    let file: Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().expect("frames");
    let mut functions = Functions::new();
    let profiles = file["profiles"].as_array().expect("profiles");
    for profile in profiles {
        assert_eq!((&profile["type"], &profile["unit"]), (&"evented".into(), &"nanoseconds".into()));
        let mut open: Vec<(&str, u64, u64)> = Vec::new();
        let mut now = profile["startValue"].as_u64().expect("a time");
        for event in profile["events"].as_array().expect("events") {
            let at = event["at"].as_u64().expect("a time");
            assert!(at >= now, "{event}");
            now = at;
            let frame =
                &frames[usize::try_from(event["frame"].as_u64().expect("a frame")).expect("a number")];
            let name = frame["name"].as_str().expect("a name");
            if event["type"] == "O" {
                open.push((name, at, 0));
                continue;
            }
            assert_eq!(event["type"], "C");
            let (opened, since, inner) = open.pop().expect("an open frame");
            assert_eq!(opened, name);
            let is_outermost = open.iter().all(|(outer, ..)| *outer != name);
            let numbers = functions.entry(name.to_owned()).or_default();
            *numbers.calls.get_or_insert_default() += 1;
            numbers.own_ns += at - since - inner;
            numbers.total_ns += if is_outermost { at - since } else { 0 };
            if let Some((_, _, inner)) = open.last_mut() {
                *inner += at - since;
            }
        }
        assert!(open.is_empty());
        assert!(now <= profile["endValue"].as_u64().expect("a time"));
    }
    (functions, profiles.len())
}

/// Adds up the samples of a Firefox profile, after checking its tables as the profiler relies on
/// them.
fn firefox(bytes: &[u8]) -> (Functions, usize) {
    let file: Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(file["meta"]["preprocessedProfileVersion"], 70);
    let shared = &file["shared"];
    for name in ["stackTable", "frameTable", "funcTable", "resourceTable", "sources", "sourceLocationTable"] {
        columns_are_even(&shared[name], name);
    }
    let index = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("an index");
    let name_of = |stack: usize| {
        let function = index(&shared["frameTable"]["func"][index(&shared["stackTable"]["frame"][stack])]);
        shared["stringArray"][index(&shared["funcTable"]["name"][function])].as_str().expect("a name")
    };
    let categories = file["meta"]["categories"].as_array().expect("categories");
    assert!(categories.iter().any(|category| category["color"] == "grey"), "{categories:?}");
    let mut functions = Functions::new();
    let threads = file["threads"].as_array().expect("threads");
    for thread in threads {
        let samples = &thread["samples"];
        columns_are_even(samples, "samples");
        columns_are_even(&thread["markers"], "markers");
        assert_eq!(samples["weightType"], "tracing-ms");
        let mut now = 0.0;
        for (sample, stack) in samples["stack"].as_array().expect("stacks").iter().enumerate() {
            let at = samples["time"][sample].as_f64().expect("a time");
            assert!(at >= now, "{at} after {now}");
            let weight = samples["weight"][sample].as_f64().expect("a weight");
            now = at + weight - 1e-7;
            let mut frames = Vec::new();
            let mut stack = stack.as_u64().map(|stack| usize::try_from(stack).expect("an index"));
            while let Some(at) = stack {
                frames.push(name_of(at));
                let offset = index(&shared["stackTable"]["prefixOffset"][at]);
                stack = (offset > 0).then(|| at - offset);
            }
            frames.reverse();
            add(&mut functions, &frames, None, (weight * 1e6).round() as u64);
        }
    }
    (functions, threads.len())
}

/// All columns of a table have as many items as it says.
fn columns_are_even(table: &Value, name: &str) {
    let length = table["length"].as_u64().unwrap_or_else(|| panic!("{name}: {table}"));
    for (column, items) in table.as_object().expect("a table") {
        if let Some(items) = items.as_array() {
            assert_eq!(items.len() as u64, length, "{name}.{column}");
        }
    }
}

/// The calls among JSON lines: how many, and their own time.
fn json_lines(text: &str) -> Functions {
    let mut functions = Functions::new();
    // By thread and depth, as callers come after their callees: the time of callees.
    let mut inner: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for line in text.lines() {
        let call: Value = serde_json::from_str(line).expect("a line of JSON");
        let (Some(ns), Some(name)) = (call["dur_ns"].as_u64(), call["name"].as_str()) else { continue };
        let (tid, depth) =
            (call["tid"].as_u64().expect("a thread"), call["depth"].as_u64().expect("a depth"));
        let callees = inner.remove(&(tid, depth + 1)).unwrap_or(0);
        *inner.entry((tid, depth)).or_default() += ns;
        let numbers = functions.entry(name.to_owned()).or_default();
        *numbers.calls.get_or_insert_default() += 1;
        numbers.own_ns += ns - callees;
    }
    functions
}

/// The times in the boxes of a flame graph, by name.
fn boxes_of_svg(svg: &str) -> BTreeMap<String, Vec<u64>> {
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for title in svg.split("<title>").skip(1) {
        let title = title.split("</title>").next().expect("a title");
        let (name, rest) = title.rsplit_once(" (").unwrap_or_else(|| panic!("{title}"));
        let ns = rest.split(" ns").next().expect("a time").replace(',', "");
        let name = name.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        times.entry(name).or_default().push(ns.parse().unwrap_or_else(|_| panic!("{title}")));
    }
    times
}

/// Python with DuckDB in the target folder; `None`, with a word about it, where pip can't install
/// it.
fn python() -> Option<PathBuf> {
    let wanted = include_str!("../../parquet/requirements.txt");
    let folder = target_folder().join("parquet");
    let (python, complete) = (folder.join("venv/bin/python"), folder.join(".complete"));
    if std::fs::read_to_string(&complete).is_ok_and(|known| known == wanted) {
        return Some(python);
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder in the target folder");
    let list = folder.join("requirements.txt");
    std::fs::write(&list, wanted).expect("a file in the target folder");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&list);
    let mut steps = [Command::new("python3"), pip];
    steps[0].args(["-m", "venv"]).arg(folder.join("venv"));
    for step in &mut steps {
        match step.output() {
            Ok(output) if output.status.success() => {}
            failed => {
                println!("Parquet isn't read by DuckDB here, because it can't be installed: {failed:?}");
                return None;
            }
        }
    }
    std::fs::write(complete, wanted).expect("a file in the target folder");
    Some(python)
}

/// DuckDB's sums, by the views and queries of `docs/reference/parquet.md`.
fn parquet(python: &Path, file: &Path) -> Functions {
    let script = "import duckdb, json, re, sys
file, document = sys.argv[1:]
blocks = re.findall('```sql\\n(.*?)```', open(document).read(), re.S)
assert len(blocks) == 3
for block in blocks:
    duckdb.execute(block.replace('app.parquet', file))
columns = re.findall('^\\\\| (`.*?) \\\\|', open(document).read(), re.M)
columns = [name for row in columns for name in re.findall('`(.*?)`', row)]
# Those of traces with bounds of durations.
for name in ['duration_low_ns', 'duration_high_ns']: columns.remove(name)
# The program throws, so its calls have results.
columns += ['arguments', 'result']
assert sorted(columns) == sorted(duckdb.sql(f\"select * from '{file}'\").columns), columns
print(json.dumps(duckdb.sql('select function, sum(calls)::bigint, sum(total_ns)::bigint, sum(own_ns)::bigint from functions group by function').fetchall()))
# Each caller is open when its callee begins.
lone = duckdb.sql('''select count(*) from slices callee left join slices caller on callee.parent = caller.id
and caller.tid = callee.tid and caller.depth + 1 = callee.depth and caller.start_ns <= callee.start_ns
where callee.depth > 0 and caller.id is null''').fetchall()
assert lone == [(0,)], lone";
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/parquet.md");
    let printed = successful(Command::new(python).args(["-c", script]).arg(file).arg(document));
    let rows: Vec<(String, u64, u64, u64)> = serde_json::from_str(&printed).expect("rows");
    let numbers = |calls, total_ns, own_ns| Numbers { calls: Some(calls), total_ns, own_ns };
    rows.into_iter().map(|(name, calls, total, own)| (name, numbers(calls, total, own))).collect()
}

/// The rows of a query, as lists of values.
fn sql(place: &Place, options: &[&str], files: &[&Path], query: &str) -> Vec<Vec<Value>> {
    let mut command = place.command(everycall());
    let output = command.args(["sql", "-f", "json"]).args(options).args(files).arg(query).output();
    let output = output.expect("everycall runs");
    assert!(output.status.success(), "{query}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    // Objects are in the order of names: so are the columns of the queries here.
    lines.map(|line| line.as_object().expect("an object").values().cloned().collect()).collect()
}

/// Functions by a query whose columns are calls, function, own and total time.
fn functions_by_sql(place: &Place, options: &[&str], file: &Path, query: &str) -> Functions {
    let mut functions = Functions::new();
    for row in sql(place, options, &[file], query) {
        let number = |place: usize| row[place].as_u64().unwrap_or_else(|| panic!("{row:?}"));
        let (name, calls) = (row[1].as_str().expect("a name").to_owned(), number(0));
        let numbers = functions.entry(name).or_default();
        *numbers.calls.get_or_insert_default() += calls;
        numbers.own_ns += number(2);
        numbers.total_ns += number(3);
    }
    functions
}

/// Each table says what `report`, Parquet files read by DuckDB, and other ways to the same say.
fn queries_agree(
    place: &Place,
    options: &[&str],
    file: &Path,
    expected: &Functions,
    parquet: Option<(&Path, &Path)>,
) {
    let listed = "select calls, function, own_ns, total_ns from functions";
    assert_eq!(&functions_by_sql(place, options, file, listed), expected, "{options:?}");
    let grouped = "select count(*) as calls, function, sum(own_ns) as own_ns, sum(iif(recursion = 0, duration_ns, 0)) as total_ns from slices group by function";
    assert_eq!(&functions_by_sql(place, options, file, grouped), expected, "{options:?}");
    if let Some((python, table)) = parquet {
        let script = "import duckdb, json, sys
table = duckdb.sql(f\"select * from '{sys.argv[1]}' order by all\")
columns = sorted(table.columns)
print(json.dumps([dict(zip(table.columns, row))[name] for row in table.fetchall() for name in columns]))";
        let printed = successful(Command::new(python).args(["-c", script]).arg(table));
        let theirs: Vec<Value> = serde_json::from_str(&printed).expect("values");
        // Parquet has real time with --clock wall only.
        let columns = "arguments, blocked_ns, depth, duration_ns, file, function, id, kind, line, module, other_tid, own_ns, parent, pid, process, \
                       real_value, recursion, remarks, result, runnable_ns, start_ns, null as start_realtime_ns, thread, tid, value";
        let order = "kind, pid, process, tid, thread, id nulls last, parent nulls last, depth, recursion nulls last, start_ns, duration_ns nulls last, own_ns nulls last, function nulls last, value nulls last";
        let ours = sql(place, options, &[file], &format!("select {columns} from events order by {order}"));
        assert!(ours.len() > 1000 || !options.is_empty(), "{}", ours.len());
        assert!(ours.concat() == theirs, "{options:?}");
        // And a result as Parquet is the same again.
        let columns = "kind, pid, process, tid, thread, id, parent, depth, recursion, start_ns, duration_ns, own_ns, function, module, file, line";
        let mut command = place.command(everycall());
        command.args(["sql", "-f", "parquet", "-o", "result.parquet"]).args(options).arg(file);
        successful(command.arg(format!("select {columns} from events")));
        let script = "import duckdb, sys
both = [f\"(select {sys.argv[3]} from '{file}')\" for file in sys.argv[1:3]]
print([duckdb.sql(f'select count(*) from ({a} except all {b})').fetchall()[0][0] for a, b in (both, both[::-1])])";
        let result = place.file("result.parquet");
        let compared =
            successful(Command::new(python).args(["-c", script]).args([table, &result]).arg(columns));
        assert_eq!(compared.trim(), "[0, 0]", "{options:?}");
    }
    // Conditions decided before SQLite sees a row, and lookups by number, change nothing.
    let middle = &sql(place, options, &[file], "select median(start_ns) from slices")[0][0];
    let (fast, slow) = (
        format!(
            "kind = 'call' and tid in (select tid from threads order by tid limit 2) and function in ('work(int)', 'deep(int)') and start_ns >= {middle} and duration_ns > 100.5"
        ),
        format!(
            "+kind = 'call' and +tid in (select tid from threads order by tid limit 2) and +function in ('work(int)', 'deep(int)') and +start_ns >= {middle} and +duration_ns > 100.5"
        ),
    );
    let [fast, slow] = [fast, slow].map(|which| {
        sql(
            place,
            options,
            &[file],
            &format!("select depth, duration_ns, id, parent, start_ns from events where {which} order by id"),
        )
    });
    assert!(!fast.is_empty() && fast == slow, "{options:?}: {} and {} rows", fast.len(), slow.len());
    let early = format!("select count(*) from slices where start_ns < {middle}");
    assert_eq!(
        sql(place, options, &[file], &early),
        sql(place, options, &[file], &early.replace("start_ns <", "+start_ns <"))
    );
    for order in ["function, module, line", "function desc, line", "line desc, function"] {
        let query = format!(
            "select count(*) as a, function as b, sum(id) as c, max(remarks) as d, sum(depth + recursion) as e from slices \
             group by function, module, line order by {order}"
        );
        // A column that is computed can't be grouped by anything but SQLite.
        let sorted = query
            .replace("function, module, line order", "function || '', module || '', line + 0 order")
            .replace("order by function desc, line", "order by function || '' desc, line + 0")
            .replace("order by function, module, line", "order by function || '', module || '', line + 0")
            .replace("order by line desc, function", "order by line + 0 desc, function || ''");
        let grouped = sql(place, options, &[file], &query);
        assert!(grouped.len() > 2 && grouped == sql(place, options, &[file], &sorted), "{query}");
    }
    let pairs = |first: &str, join: &str| {
        let query = format!(
            "{first} select caller.function as a, callee.function as b, count(*) as c, sum(callee.duration_ns) as d from {join} group by a, b order by a, b"
        );
        sql(place, options, &[file], &query)
    };
    let known = pairs(
        "with s as materialized (select id, parent, function, duration_ns from slices)",
        "s caller join s callee on callee.parent = caller.id",
    );
    assert!(!known.is_empty());
    assert_eq!(
        pairs("", "slices callee cross join slices caller on callee.parent = caller.id"),
        known,
        "by id"
    );
    assert_eq!(
        pairs("", "slices caller cross join slices callee on callee.parent = caller.id"),
        known,
        "by parent"
    );
}

/// One column of callgrind_annotate: by function.
fn annotated(place: &Place, file: &Path, is_inclusive: bool) -> BTreeMap<String, u64> {
    let mut command = place.command("callgrind_annotate");
    command.args(["--threshold=100", "--auto=no", "--show-percs=no"]);
    command.arg(format!("--inclusive={}", if is_inclusive { "yes" } else { "no" })).arg(file);
    let printed = successful(&mut command);
    let rows = printed.lines().skip_while(|line| !line.contains("file:function")).skip(2);
    let mut functions = BTreeMap::new();
    for line in rows.take_while(|line| !line.is_empty()) {
        let (ns, place) = line.trim().split_once("  ").unwrap_or_else(|| panic!("{line}"));
        let place = place.rsplit_once(" [").map_or(place, |(place, _)| place);
        let (_, name) = place.split_once(':').unwrap_or_else(|| panic!("{line}"));
        functions.insert(name.to_owned(), ns.replace(',', "").parse().unwrap_or_else(|_| panic!("{line}")));
    }
    functions
}

/// The numbers of `report` as a format without numbers of calls has them.
fn without_calls(functions: &Functions) -> Functions {
    let mut functions = functions.clone();
    for numbers in functions.values_mut() {
        numbers.calls = None;
    }
    // Formats of sums have no line for what took no time.
    functions.retain(|_, numbers| numbers.total_ns > 0);
    functions
}

/// Names and numbers of calls in the boxes of a graph, whose lines `separator` separates.
fn boxes(graph: &str, separator: &str) -> Vec<(String, u64)> {
    let labels = graph.lines().filter(|line| line.contains(&format!("{separator}total ")));
    let boxes = labels.map(|line| {
        let label = line.split('"').nth(1).unwrap_or_else(|| panic!("{line}"));
        let parts: Vec<&str> = label.split(separator).collect();
        let [name, _, _, calls] = parts[..] else { panic!("{line}") };
        let calls = calls.split(' ').next().expect("a number").replace(',', "");
        (name.to_owned(), calls.parse().unwrap_or_else(|_| panic!("{line}")))
    });
    boxes.collect()
}

#[test]
fn each_format_has_the_times_of_report() {
    let python = python();
    // Readers treat a file alike, whichever mode wrote it.
    let modes = [Mode::GCC_NOPS, Mode::CLANG19_XRAY];
    for mode in modes.into_iter().take(if is_full() { 2 } else { 1 }) {
        let place = Place::new(&format!("exports-{}", mode.label()));
        let file = recorded(&place, mode, &["400"]);
        for options in [&[][..], &["--function", "^work"]] {
            let expected = reported(&place, options, &file);
            assert!(expected.len() >= 7 && expected.contains_key("deep(int)"), "{expected:?}");
            let text = String::from_utf8(export(&place, "folded", options, &file)).expect("UTF-8");
            assert_eq!(folded(&text), without_calls(&expected), "{options:?}");
            assert_eq!(pprof(&export(&place, "pprof", options, &file)), expected, "{options:?}");
            let (functions, threads) = speedscope(&export(&place, "speedscope", options, &file));
            assert_eq!((functions, threads), (expected.clone(), 3), "{options:?}");
            let (functions, threads) = firefox(&export(&place, "firefox", options, &file));
            assert_eq!((functions, threads), (without_calls(&expected), 3), "{options:?}");
            let lines = String::from_utf8(export(&place, "jsonl", options, &file)).expect("UTF-8");
            for (name, numbers) in json_lines(&lines) {
                let Numbers { calls, own_ns, .. } = expected[&name];
                assert_eq!((numbers.calls, numbers.own_ns), (calls, own_ns), "{name} {options:?}");
            }
            let table = place.file("table.parquet");
            if let Some(python) = &python {
                std::fs::write(&table, export(&place, "parquet", options, &file)).expect("a file");
                assert_eq!(parquet(python, &table), expected, "{options:?}");
            }
            let python = python.as_deref().map(|python| (python, table.as_path()));
            queries_agree(&place, options, &file, &expected, python);
            let profile = place.file("callgrind.out");
            std::fs::write(&profile, export(&place, "callgrind", options, &file)).expect("a file");
            let (own, total) = (annotated(&place, &profile, false), annotated(&place, &profile, true));
            for (name, numbers) in without_calls(&expected) {
                assert_eq!(own.get(&name).copied().unwrap_or(0), numbers.own_ns, "{name} {options:?}");
                assert_eq!(total.get(&name).copied().unwrap_or(0), numbers.total_ns, "{name} {options:?}");
            }
            // Functions with half a percent of all time.
            let all: u64 = expected.values().map(|numbers| numbers.own_ns).sum();
            let large = expected.iter().filter(|(_, numbers)| numbers.total_ns >= all / 200);
            let large: BTreeMap<String, u64> =
                large.map(|(name, numbers)| (name.clone(), numbers.calls.expect("calls"))).collect();
            let dot = String::from_utf8(export(&place, "dot", options, &file)).expect("UTF-8");
            assert_eq!(boxes(&dot, "\\n").into_iter().collect::<BTreeMap<_, _>>(), large, "{dot}");
            assert!(dot.contains(" -> "), "{dot}");
            let mermaid = String::from_utf8(export(&place, "mermaid", options, &file)).expect("UTF-8");
            assert_eq!(boxes(&mermaid, "<br/>").len(), large.len(), "{mermaid}");
        }
    }
}

/// Of several traces, each table has the rows of all, and calls have numbers of their own.
#[test]
fn queries_over_several_traces() {
    let place = Place::new("exports-several");
    let file = recorded(&place, Mode::GCC_NOPS, &["20"]);
    let other = place.file("other.ect");
    std::fs::copy(&file, &other).expect("a file");
    let count = |files: &[&Path], what: &str| {
        let rows = sql(&place, &[], files, &format!("select {what} from slices"));
        rows[0][0].as_u64().expect("a number")
    };
    let both = [file.as_path(), other.as_path()];
    assert_eq!(count(&both, "count(distinct id)"), 2 * count(&both[..1], "count(*)"));
    assert_eq!(count(&both, "max(id)"), 2 * count(&both[..1], "max(id)"));
    let traces = "select trace from functions group by trace";
    assert_eq!(sql(&place, &[], &both, traces).len(), 2);
    // Callers are found in the same trace.
    let strangers = "select count(*) from slices callee join slices caller on callee.parent = caller.id where caller.trace <> callee.trace";
    assert_eq!(sql(&place, &[], &both, strangers), [[Value::from(0)]]);
    let callers = "select count(*) from slices callee join slices caller on callee.parent = caller.id";
    assert_eq!(sql(&place, &[], &both, callers)[0][0].as_u64(), Some(2 * count(&both[..1], "count(parent)")));
}

#[test]
fn deep_recursion_is_merged_and_said_and_no_time_is_lost() {
    let place = Place::new("exports-deep");
    let file = recorded(&place, Mode::GCC_NOPS, &["3000"]);
    let expected = reported(&place, &[], &file);
    let all: u64 = expected.values().map(|numbers| numbers.own_ns).sum();
    for format in ["folded", "pprof", "speedscope", "firefox"] {
        let bytes = export(&place, format, &[], &file);
        let functions = match format {
            "folded" => folded(&String::from_utf8(bytes).expect("UTF-8")),
            "pprof" => pprof(&bytes),
            "firefox" => firefox(&bytes).0,
            _ => speedscope(&bytes).0,
        };
        assert_eq!(functions.values().map(|numbers| numbers.own_ns).sum::<u64>(), all, "{format}");
        assert!(functions["... deeper calls not shown"].total_ns > 0, "{format}");
        // Whole calls have their whole time.
        assert_eq!(functions["work(int)"].total_ns, expected["work(int)"].total_ns, "{format}");
        let output =
            place.command(everycall()).args(["export", "-f", format, "-o", "deep.out"]).arg(&file).output();
        let said = String::from_utf8(output.expect("everycall runs").stderr).expect("UTF-8");
        assert!(said.contains("deeper calls not shown"), "{said}");
    }
    // Functions and pairs have no depth.
    let profile = place.file("callgrind.out");
    std::fs::write(&profile, export(&place, "callgrind", &[], &file)).expect("a file");
    assert_eq!(annotated(&place, &profile, false)["deep(int)"], expected["deep(int)"].own_ns);
    assert_eq!(annotated(&place, &profile, true)["deep(int)"], expected["deep(int)"].total_ns);
}

#[test]
fn flame_graphs_have_the_times_and_show_what_changed() {
    let place = Place::new("exports-flamegraph");
    let (old, new) = (recorded(&place, Mode::GCC_NOPS, &["3"]), place.file("new.ect"));
    std::fs::rename(&old, &new).expect("a file");
    let old = recorded(&place, Mode::GCC_NOPS, &["400"]);
    let expected = reported(&place, &[], &new);
    let svg = String::from_utf8(export(&place, "flamegraph", &[], &new)).expect("UTF-8");
    let boxes = boxes_of_svg(&svg);
    for name in ["main", "work(int)", "thread(void*)", "may_throw(int)"] {
        assert_eq!(boxes[name].iter().sum::<u64>(), expected[name].total_ns, "{name}: {boxes:?}");
    }
    // It needs nothing else, and shows nothing that isn't text as text.
    assert!(!svg.contains("src=\"http") && !svg.contains("<link") && !svg.contains("@import"));
    let old = old.to_str().expect("UTF-8");
    let svg = String::from_utf8(export(&place, "flamegraph", &["--against", old], &new)).expect("UTF-8");
    assert_eq!(boxes_of_svg(&svg)["work(int)"].iter().sum::<u64>(), expected["work(int)"].total_ns);
    let recursion = |sign: &str| svg.matches(sign).count();
    assert!(recursion("%; -") > 0, "{svg}");
    let mut command = place.command(everycall());
    let output = command.args(["export", "-f", "folded", "--against", old]).arg(&new).output();
    let said = String::from_utf8(output.expect("everycall runs").stderr).expect("UTF-8");
    assert!(said.contains("--against needs `-f flamegraph`"), "{said}");
}

fn imported(place: &Place, source: &Path, options: &[&str]) -> PathBuf {
    let file = source.with_extension("imported.ect");
    let mut command = place.command(everycall());
    successful(command.args(["import", "-q", "-o"]).arg(&file).args(options).arg(source));
    file
}

/// A trace exported as Chrome JSON and imported again has the same calls and times, to the
/// nanosecond.
#[test]
fn chrome_json_comes_back() {
    let place = Place::new("exports_imported");
    let file = recorded(&place, Mode::GCC_NOPS, &["30"]);
    let json = place.write("app.json", "");
    std::fs::write(&json, export(&place, "chrome", &["--full-names"], &file)).expect("a file");
    let back = reported(&place, &[], &imported(&place, &json, &[]));
    let wanted = reported(&place, &["--full-names"], &file);
    // Names have the place in the source behind them; of instances of a template, several are one.
    let mut found = Functions::new();
    for (name, numbers) in back {
        let name = name.rsplit_once(" (").filter(|(_, place)| place.ends_with(')') && place.contains(':'));
        let Some((name, _)) = name else { continue };
        *found.entry(name.to_owned()).or_default() = numbers;
    }
    // Times become ticks and times again: each may be a nanosecond off, and own time by those of
    // callees.
    let calls: u64 = wanted.values().filter_map(|numbers| numbers.calls).sum();
    let is_same = |of: &Numbers, wanted: &Numbers| {
        let most = 2 * wanted.calls.unwrap_or(0);
        of.calls == wanted.calls
            && of.total_ns.abs_diff(wanted.total_ns) <= most
            && of.own_ns.abs_diff(wanted.own_ns) <= most + calls
    };
    let compared = wanted
        .iter()
        .filter(|(name, numbers)| found.get(*name).is_some_and(|found| is_same(found, numbers)))
        .count();
    assert!(
        compared > 5 && compared * 10 >= wanted.len() * 9,
        "{compared} of {}: {wanted:#?} {found:#?}",
        wanted.len()
    );
}

/// A program whose calls depend on its argument alone.
const COUNTED: &str = "
#include <cstdlib>
#include <thread>
__attribute__((noinline)) int leaf(int x) { asm volatile(\"\" : \"+r\"(x)); return x + 1; }
__attribute__((noinline)) int fib(int n) { if (n < 2) return leaf(n) + 1; int a = fib(n - 1); int b = fib(n - 2); asm volatile(\"\" ::: \"memory\"); return a + b; }
namespace app { struct Work { __attribute__((noinline)) int run(int n) { int s = 0; for (int i = 0; i < n; i++) s += leaf(i); return s; } }; }
__attribute__((noinline)) int thread_main(int n) { app::Work w; int r = w.run(n) + fib(6); asm volatile(\"\" : \"+r\"(r)); return r; }
int main() {
  volatile int sum = fib(9);
  std::thread a([] { thread_main(30); });
  a.join();
  std::thread b([] { thread_main(40); });
  b.join();
  return sum == 0;
}
";

/// The calls of the program's own functions.
fn counted(functions: &Functions) -> BTreeMap<&str, Option<u64>> {
    let names = ["leaf(int)", "fib(int)", "app::Work::run(int)", "thread_main(int)", "main"];
    names.into_iter().map(|name| (name, functions.get(name).and_then(|numbers| numbers.calls))).collect()
}

/// One program traced by uftrace, by XRay and by everycall has the same numbers of calls.
#[test]
fn other_tools_traces_have_the_same_calls() {
    let place = Place::new("exports_other_tools");
    place.write("counted.cpp", COUNTED);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "counted.cpp", "-pthread"], "counted");
    let own = reported(&place, &[], &place.record(&["-q"], &program, &[]).file);
    let wanted = counted(&own);
    assert!(wanted.values().all(Option::is_some), "{wanted:?}");
    let shell = |line: &str| place.command("bash").args(["-c", line]).output().expect("bash runs");
    if shell("command -v uftrace").status.success() {
        successful(place.command("bash").args([
            "-c",
            "g++ -O1 -g -pg -pthread counted.cpp -o counted-pg && uftrace record --no-libcall -d folder ./counted-pg",
        ]));
        let functions = reported(&place, &[], &imported(&place, &place.file("folder"), &[]));
        assert_eq!(counted(&functions), wanted, "uftrace");
    }
    for clang in ["clang++-19", "clang++-22"] {
        let build = format!(
            "{clang} -O1 -g -pthread -fxray-instrument -fxray-instruction-threshold=1 counted.cpp -o counted-{clang}"
        );
        // Without XRay's runtime, it can't be linked.
        if !shell(&build).status.success() {
            continue;
        }
        successful(place.command("bash").args([
            "-c",
            &format!(
                "XRAY_OPTIONS='patch_premain=true xray_mode=xray-basic xray_logfile_base=log-{clang}.' \
                 XRAY_BASIC_OPTIONS=func_duration_threshold_us=0 ./counted-{clang} 2>&1 && mv log-{clang}.* {clang}.log"
            ),
        ]));
        let program = format!("counted-{clang}");
        let log = place.file(&format!("{clang}.log"));
        let binary = place.file(&program).display().to_string();
        let functions = reported(&place, &[], &imported(&place, &log, &["--binary", &binary]));
        assert_eq!(counted(&functions), wanted, "{clang}");
    }
}
