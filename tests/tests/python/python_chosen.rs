//! Python's functions by their names: triggers, selections, sessions; and calls that were open when
//! recording began.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use everycall_tests::python::{Calls, Python, SYSTEM, script};
use everycall_tests::{Place, everycall, successful, wait};
use serde_json::Value;

/// Everything that meets a condition is kept.
const KEEP_ALL: [&str; 4] = ["--keep", "1000", "--keep-every", "0s"];

/// `everycall info` of a file.
fn info(place: &Place, file: &str) -> Value {
    let text = successful(place.command(everycall()).args(["info", "-f", "json", file]));
    serde_json::from_str(&text).expect("JSON")
}

/// Function and duration of each kept call of a trigger, in nanoseconds.
fn kept(info: &Value, trigger: u64) -> BTreeSet<(String, u64)> {
    let calls = info["kept_calls"].as_array().expect("kept calls");
    let of = calls.iter().filter(|call| call["trigger"] == trigger);
    let facts = |call: &Value| {
        (call["function"].as_str().expect("a name").to_owned(), call["took_ns"].as_u64().expect("a number"))
    };
    of.map(facts).collect()
}

/// Function and duration of all calls in a trace that took longer, in nanoseconds.
fn longer(calls: &Calls, functions: &[&str], than_ns: u64) -> BTreeSet<(String, u64)> {
    let of = calls.of_kind("call").filter(|call| functions.contains(&call["function"].as_str()));
    let facts =
        |call: &BTreeMap<String, String>| (call["function"].clone(), call["duration_ns"].parse().unwrap());
    of.map(facts).filter(|(_, took)| *took > than_ns).collect()
}

#[test]
fn exactly_the_calls_over_a_threshold_are_kept() {
    for python in Python::all() {
        let file = script("slow.py").display().to_string();
        let triggers = [
            ["--trigger", "slow.handle > 20ms"],
            ["--trigger", "Server.* > 20ms"],
            ["--trigger", "late > 20ms"],
            ["--trigger", "slow.quick entered"],
            ["--trigger", "threw ValueError"],
            ["--trigger", "slow.Server.fails > 1us"],
        ];
        let options = [&triggers.concat()[..], &KEEP_ALL, &["--ring-size", "16M", &file]].concat();
        let (output, calls) = python.record(&options);
        assert!(output.status.success(), "{output:?}");
        let info = info(&python.place, "t.ect");
        for (trigger, functions) in [(0, ["handle"]), (1, ["Server.handle"]), (2, ["late"])] {
            let expected = longer(&calls, &functions, 20_000_000);
            assert!(expected.len() >= 2, "{functions:?} {expected:?}");
            assert_eq!(kept(&info, trigger), expected, "{}", python.version());
        }
        let counts = |trigger: usize| {
            let of = &info["triggers"][trigger];
            (of["functions"].as_u64().unwrap(), of["calls"].as_u64().unwrap(), of["missed"].as_u64().unwrap())
        };
        // Three processes and threads, each four times and once; and no function of that name.
        assert_eq!((counts(3).1, counts(3).2), (12, 0), "{}", python.version());
        assert_eq!(counts(4), (0, 3, 0), "{}", python.version());
        assert_eq!(counts(5), (0, 0, 0), "{}", python.version());
        assert_eq!((counts(0).0, counts(1).0, counts(2).0), (1, 1, 1));
    }
}

#[test]
fn chosen_functions_are_recorded_and_counted() {
    for python in Python::all() {
        let file = script("slow.py").display().to_string();
        let chosen = ["--only", "slow.*", "--not", "quick", "--not", "!file:*/python/slow.py & handle"];
        let (output, calls) = python.record(&[&chosen[..], &[&file]].concat());
        assert!(output.status.success(), "{output:?}");
        let all: BTreeSet<&str> = calls.of_kind("call").map(|call| call["function"].as_str()).collect();
        let expected = ["<module>", "Server", "Server.handle", "fails", "handle", "work"];
        assert_eq!(all, BTreeSet::from(expected), "{}", python.version());
        assert_eq!((calls.count("handle"), calls.count("fails")), (18, 3), "{}", python.version());
        // The others are as they were.
        let (_, calls) = python.record(&["--not", "quick", &file]);
        assert_eq!((calls.count("quick"), calls.count("handle"), calls.count("late")), (0, 18, 3));
        assert!(calls.of_kind("call").any(|call| call["file"].ends_with("threading.py")));
        // A pattern without matches is named at the end, and nothing is recorded.
        let output = python.recorded(&["--only", "nothing.*", &file]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("`nothing.*` matched no function") && said.contains("0 events"), "{said}");
        for time in [&[][..], &["--time"]] {
            let mut command = python.place.command(everycall());
            command.env("PATH", python.environment.search_path()).env("EVERYCALL_PYTHON", "1");
            command.args(["count", "--preload", "-o", "c.ect"]).args(time).args(&chosen[..4]);
            successful(command.arg("--").arg(python.environment.bin.join("python")).arg(&file));
            let report = python.place.command(everycall()).args(["report", "-f", "json", "c.ect"]).output();
            let report: Value = serde_json::from_slice(&report.unwrap().stdout).expect("JSON");
            let rows = report["rows"].as_array().expect("rows").iter();
            let rows: BTreeMap<&str, u64> = rows
                .map(|row| (row["name"].as_str().expect("a name"), row["calls"].as_u64().expect("calls")))
                .collect();
            assert_eq!((rows.get("handle"), rows.get("quick")), (Some(&18), None), "{rows:?}");
            assert_eq!(rows.len(), expected.len(), "{rows:?}");
        }
    }
}

/// A program that runs until it is dropped, and its id.
struct Running {
    record: Child,
    pid: String,
}

impl Running {
    fn new(python: &Python) -> Running {
        let script = script("slow.py").display().to_string();
        let mut command = python.command(&["-m", "everycall", "-o", "t.ect"]);
        command.args([&script, "loop"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // `record` has started it.
        let record = child.id();
        let children = std::fs::read_to_string(format!("/proc/{record}/task/{record}/children")).unwrap();
        Running { record: child, pid: children.trim().to_owned() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.pid).status();
        let _ = self.record.wait();
    }
}

#[test]
fn a_running_program_gets_triggers_and_sessions() {
    let python = Python::new(Path::new(SYSTEM));
    let running = Running::new(&python);
    let pid = running.pid.as_str();
    let run = |arguments: &[&str]| {
        let output = python.place.command(everycall()).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?} {said}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let arguments =
        ["trigger", pid, "slow.handle > 20ms", "--limit", "3", "--keep-every", "0s", "-o", "k.ect"];
    let (_, said) = run(&arguments);
    assert!(said.contains("names 1 function"), "{said}");
    let calls = kept(&info(&python.place, "k.ect"), 0);
    assert!(
        calls.len() == 3 && calls.iter().all(|(name, took)| name == "handle" && *took > 20_000_000),
        "{calls:?}"
    );
    let (listed, _) = run(&["functions", pid, "slow.*"]);
    assert!(
        listed.lines().any(|line| line.starts_with("on") && line.ends_with("slow.py:20  Server")),
        "{listed}"
    );
    run(&["trace", pid, "slow.quick", "--max-events", "60", "--for", "60s", "-o", "s.ect"]);
    let calls = python.calls("s.ect");
    let names: BTreeSet<&str> = calls.of_kind("call").map(|call| call["function"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["quick"]));
    let (followed, _) = run(&["follow", pid, "slow.quick", "--max-events", "60", "--for", "60s"]);
    let names: BTreeSet<&str> =
        followed.lines().filter_map(|line| line.split_whitespace().find(|word| *word == "quick")).collect();
    assert_eq!(names, BTreeSet::from(["quick"]), "{followed}");
    let (_, said) = run(&["disable", pid, "quick"]);
    assert!(said.contains("`quick` matches 1 function"), "{said}");
    assert!(run(&["functions", pid, "quick"]).0.lines().nth(1).unwrap().starts_with("off"));
    // The program goes on, and would call it each time.
    wait::until("calls of other functions alone are made", || {
        run(&["snapshot", pid, "-o", "off.ect"]);
        let calls = python.calls("off.ect");
        let start = |call: &BTreeMap<String, String>| call["start_ns"].parse::<u64>().unwrap();
        let of_it = calls.of_kind("call").filter(|call| call["function"] == "quick");
        let newest = of_it.map(start).max().unwrap_or(0);
        let others = calls.of_kind("call").filter(|call| call["function"] == "handle");
        others.filter(|call| start(call) > newest).count() > 10
    });
}

#[test]
fn calls_that_began_before_recording_leave_no_exits() {
    for python in Python::all() {
        let file = script("begun.py").display().to_string();
        let mut record = python.place.command(everycall());
        record.env("PATH", python.environment.search_path());
        record.args(["record", "-q", "--preload", "-o", "b.ect", "--"]);
        successful(record.arg(python.environment.bin.join("python")).arg(&file));
        let facts = info(&python.place, "b.ect");
        let threads = facts["threads"].as_array().expect("threads");
        let orphans: u64 = threads.iter().map(|thread| thread["orphan_exits"].as_u64().unwrap()).sum();
        assert_eq!((orphans, python.calls("b.ect").count("f")), (0, 3), "{}", python.version());
        // From the interpreter's start on.
        let _ = python.recorded(&["-c", "print(1)"]);
        let facts = info(&python.place, "t.ect");
        assert_eq!(facts["orphan_exits"], 0, "{}", python.version());
        assert_eq!(facts["threads"][0]["orphan_exits"], 0, "{}", python.version());
    }
}

/// The calls of `picked.py`, by thread: the lines of a `replay` without times.
fn lines_of(python: &Python) -> Vec<String> {
    let replay = successful(python.place.command(everycall()).args(["replay", "t.ect"]));
    replay.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn arguments_belong_to_recorded_calls() {
    for python in Python::all() {
        let file = script("picked.py").display().to_string();
        let plain = python.run(&[&file]);
        let options = ["--arguments", "--only", "picked.around", "--only", "picked.picked"];
        let (output, calls) = python.record(&[&options[..], &[&file]].concat());
        assert_eq!((&output.stdout, output.status.code()), (&plain.stdout, Some(0)), "{output:?}");
        assert_eq!(calls.tree(&file, "around"), "around(picked)", "{}", python.version());
        let lines = lines_of(&python);
        let said: Vec<&str> =
            lines.iter().filter_map(|line| line.split_once("> ")).map(|(_, said)| said).collect();
        let own: Vec<&str> =
            said.into_iter().filter(|said| said.starts_with('(') || said.starts_with("returned")).collect();
        assert_eq!(own, ["()", "(text='two')", "returned 'twotwo'", "returned None"], "{lines:?}");
        // A label is the innermost recorded call's.
        let label = calls.of_kind("label").find(|line| line["function"] == "said").expect("a label");
        let around = calls.of_kind("call").find(|line| line["function"] == "around").expect("a call");
        assert_eq!(label["depth"].parse::<u64>().unwrap(), around["depth"].parse::<u64>().unwrap() + 1);
        assert!(lines.iter().any(|line| line.contains("# half = 0.5")), "{lines:?}");
    }
}

#[test]
fn calls_in_tasks_stay_whole_where_the_coroutines_are_not_recorded() {
    for python in Python::all() {
        let file = script("picked.py").display().to_string();
        for (options, tree) in [(["--only", "picked.leaf"], "leaf leaf"), (["--only", "waits"], "waits")] {
            let (_, calls) = python.record(&[&options[..], &[&file]].concat());
            let trees = calls.trees(&file);
            assert_eq!(trees["waits (Task-1)"], tree, "{}", python.version());
            let cut = calls.of_kind("call").filter(|line| line["remarks"].contains("truncated"));
            assert_eq!(cut.count(), 0, "{}", python.version());
        }
    }
}

#[test]
fn decorators_and_depth_choose_calls() {
    for python in Python::all() {
        let file = script("picked.py").display().to_string();
        let plain = python.run(&[&file]);
        let tree = |options: &[&str]| {
            let (output, calls) = python.record(&[options, &[&file]].concat());
            assert_eq!((&output.stdout, output.status.code()), (&plain.stdout, Some(0)), "{output:?}");
            assert_eq!(calls.of_kind("orphan exit").count(), 0, "{options:?} {}", python.version());
            calls.trees(&file)
        };
        let nested = "nested(nested(nested(nested(nested leaf) leaf) leaf) leaf)";
        let main = format!(
            "main(around(unpicked picked(leaf)) leaf leaf leaf Holder.held(leaf) Holder.of_class(leaf) {nested} leaf)"
        );
        let thread = |trees: &BTreeMap<String, String>| {
            trees.values().find(|tree| tree.contains("main") || tree.contains("picked")).cloned().unwrap()
        };
        let all = tree(&[]);
        assert_eq!(thread(&all), format!("<module>(Holder {main})"), "{}", python.version());
        let selected = tree(&["--selected"]);
        assert_eq!(thread(&selected), "picked Holder.held Holder.of_class", "{}", python.version());
        assert_eq!(selected["waits (Task-1)"], "waits");
        // The module and `main` are two of them.
        let shallow = tree(&["--max-depth", "4"]);
        let main = "main(around(unpicked picked) leaf leaf leaf Holder.held(leaf) Holder.of_class(leaf) nested(nested leaf) leaf)";
        assert_eq!(thread(&shallow), format!("<module>(Holder {main})"), "{}", python.version());
        let refused = python.run(&["-m", "everycall", "--max-depth", "0", &file]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}
