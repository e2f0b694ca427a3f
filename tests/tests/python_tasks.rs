//! Tasks of asyncio: each is a track, on which the calls that wait are open until they go on.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use everycall_tests::python::{Python, SYSTEM, script};
use everycall_tests::{everycall, is_full, successful};
use serde_json::Value;

/// What the tasks of `tasks.py` call, by their coroutine and name.
const TASKS: [(&str, &str); 12] = [
    ("fetch (grouped)", "fetch(read(leaf) read(leaf) read(leaf))"),
    ("iterating (iterating)", "iterating(numbers(bare) numbers(leaf bare) numbers(leaf))"),
    ("recursive (recursive)", "recursive(recursive(recursive(recursive(leaf))))"),
    ("renamed (another name)", "renamed"),
    ("patient (cancelled)", "patient!(recursive!(recursive!(recursive!)) leaf)"),
    ("persistent (persistent)", "persistent(read! leaf read(leaf))"),
    ("failing (failing)", "failing!(read(leaf))"),
    ("fetch (in a thread 0)", "fetch(read(leaf))"),
    ("fetch (in a thread 1)", "fetch(read(leaf))"),
    ("around (around)", "around(nested leaf)"),
    ("fetch (nested)", "fetch(read(leaf))"),
    ("fetch (Task-3)", "fetch(read(leaf) read(leaf))"),
];

#[test]
fn each_task_is_a_track_on_which_its_calls_wait() {
    for python in Python::all() {
        let file = script("tasks.py").display().to_string();
        let plain = python.run(&[&file]);
        let (output, calls) = python.record(&["--ring-size", "8M", &file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, plain.stdout);
        let trees = calls.trees(&file);
        for (name, tree) in TASKS {
            if name == "fetch (nested)" && python.version() == "3.14" {
                continue;
            }
            let found = trees.get(name).unwrap_or_else(|| panic!("{name}: {trees:?}"));
            assert_eq!(found, tree, "{name}, {}", python.version());
        }
        // Each waits as often as it does: `sleep` in each `read`.
        let waits = |name: &str| calls.of_kind("suspended").filter(|line| line["thread"] == name).count();
        assert_eq!(
            (waits("fetch (grouped)"), waits("fetch (Task-3)"), waits("renamed (another name)")),
            (3, 2, 1)
        );
        // `read` lasts while it waits.
        let reads = calls
            .of_kind("call")
            .filter(|line| line["function"] == "read" && line["thread"] == "fetch (grouped)");
        let durations: Vec<u64> = reads.map(|line| line["duration_ns"].parse().unwrap()).collect();
        assert!(durations.len() == 3 && durations.iter().all(|ns| *ns >= 900_000), "{durations:?}");
        // Nothing of a task is on the track of a thread.
        let strays =
            calls.of_kind("call").filter(|line| line["thread"] == "python" && line["function"] == "leaf");
        assert_eq!(strays.count(), 0);
        let orphans = calls.of_kind("orphan exit").filter(|line| line["thread"].contains('('));
        assert_eq!(orphans.count(), 0);

        let shown = |arguments: &[&str]| successful(python.place.command(everycall()).args(arguments));
        let replay = shown(&["replay", "t.ect"]);
        assert!(replay.lines().any(|line| line.starts_with("== task ") && line.contains(" fetch (grouped)")));
        assert!(
            shown(&["report", "--by", "thread", "--limit", "0", "t.ect"]).contains("recursive (recursive)")
        );
        let info = shown(&["info", "t.ect"]);
        assert!(info.lines().any(|line| line.starts_with("tasks ")), "{info}");
        let _ = shown(&["export", "-f", "chrome", "-o", "t.json", "t.ect"]);
        let json = std::fs::read_to_string(python.place.file("t.json")).unwrap();
        assert!(json.contains("persistent (persistent)"));
    }
}

/// The tasks of `wakes.py`, which it has of each kind, and how many steps they take.
const STEPS: [(&str, u64); 5] = [("receiver", 5), ("pauser", 6), ("putter", 4), ("taker", 4), ("stopped", 2)];

/// What the tasks of `reused.py` call, of which it has 30 each.
const REUSED: [(&str, &str, &str); 6] = [
    ("ends", "ends", "ends(leaf)"),
    ("yields", "yields", "yields(leaf leaf leaf)"),
    ("dropped", "dropped", "dropped(leaf)"),
    ("fails", "fails", "fails!(leaf)"),
    ("again", "yields", "yields(leaf leaf leaf)"),
    ("too", "ends", "ends(leaf)"),
];

#[test]
fn tasks_at_the_same_address_have_tracks_of_their_own() {
    for python in Python::all() {
        let file = script("reused.py").display().to_string();
        let (output, calls) = python.record(&["--ring-size", "32M", &file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let trees = calls.trees(&file);
        for (name, coroutine, tree) in REUSED {
            for number in 0..30 {
                let track = format!("{coroutine} ({name} {number})");
                let found = trees.get(&track).unwrap_or_else(|| panic!("{track}, {}", python.version()));
                assert_eq!(found, tree, "{track}, {}", python.version());
            }
        }
        for number in [0, 10, 20] {
            assert_eq!(trees[&format!("dropped (left {number})")], "dropped(leaf)");
        }
        // An exception is thrown into it before it begins: an entry in some versions.
        let mut never = trees.iter().filter(|(track, _)| track.contains("never"));
        assert!(never.all(|(_, tree)| tree == "never!"), "{trees:?}");
        assert_steps_are_woken(&python);
    }
}

/// Each step of a task has its wake before it.
fn assert_steps_are_woken(python: &Python) {
    let replay = successful(python.place.command(everycall()).args(["replay", "-f", "json", "t.ect"]));
    let lines: Vec<Value> = replay.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let place = |line: &Value| (line["pid"].as_u64(), line["task"].as_u64(), line["number"].as_u64());
    let of = |kind: &str| lines.iter().filter(|line| !line[kind].is_null()).collect::<Vec<_>>();
    let wakes: BTreeMap<_, _> = of("wake").into_iter().map(|wake| (place(wake), wake)).collect();
    let steps = of("step");
    assert!(steps.len() > 300, "{}", steps.len());
    for step in steps {
        let wake = wakes.get(&place(step)).unwrap_or_else(|| panic!("{step}"));
        assert!(wake["at_ns"].as_u64() <= step["at_ns"].as_u64(), "{wake} {step}");
    }
}

fn assert_arrows_lead(python: &Python, arguments: &[&str]) {
    let file = script("wakes.py").display().to_string();
    let output = python.recorded(&[&["--ring-size", "8M", &file], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let replay = ["replay", "-f", "json", "t.ect"];
    let lines = successful(python.place.command(everycall()).args(replay));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = |kind: &str| -> Vec<&Value> { lines.iter().filter(|line| !line[kind].is_null()).collect() };
    let (wakes, steps) = (end("wake"), end("step"));
    let place = |line: &Value| (line["pid"].as_u64(), line["task"].as_u64(), line["number"].as_u64());
    let by_place: BTreeMap<_, &&Value> = wakes.iter().map(|wake| (place(wake), wake)).collect();
    assert_eq!(by_place.len(), wakes.len(), "one wake for each step");
    for kind in ["C", "Python"] {
        for (name, count) in STEPS {
            let title = format!("({name} {kind})");
            let own: Vec<_> =
                steps.iter().filter(|step| step["step"].as_str().unwrap().ends_with(&title)).collect();
            assert_eq!(own.len() as u64, count, "{title}, {}", python.version());
            for step in own {
                let wake = by_place.get(&place(step)).unwrap_or_else(|| panic!("{step}"));
                assert!(wake["at_ns"].as_u64() <= step["at_ns"].as_u64(), "{wake} {step}");
            }
        }
    }
    // No task is woken for a step that it doesn't take.
    let taken: BTreeSet<_> = steps.iter().map(|step| place(step)).collect();
    let idle: Vec<_> = wakes.iter().filter(|wake| !taken.contains(&place(wake))).collect();
    assert!(idle.is_empty(), "{idle:?}");
    let _ = successful(
        python.place.command(everycall()).args(["export", "-f", "chrome", "-o", "t.json", "t.ect"]),
    );
    let json = std::fs::read_to_string(python.place.file("t.json")).unwrap();
    assert_eq!(json.matches("\"flow_out\":true").count(), wakes.len());
}

#[test]
fn arrows_lead_from_what_wakes_a_task_to_its_step() {
    for python in Python::all() {
        assert_arrows_lead(&python, &[]);
    }
}

/// uvloop of the package registry, with `EVERYCALL_FULL`.
#[test]
fn arrows_lead_to_steps_in_uvloop_too() {
    if !is_full() {
        println!("skipped: uvloop isn't installed; EVERYCALL_FULL=1 does it");
        return;
    }
    for python in Python::all() {
        let mut pip = Command::new(SYSTEM);
        pip.args(["-m", "pip", "install", "-q", "--only-binary=:all:", "--python-version", python.version()]);
        pip.arg("--target").arg(&python.environment.packages).arg("uvloop");
        let installed = pip.output().unwrap();
        if installed.status.success() {
            assert_arrows_lead(&python, &["uvloop"]);
        } else {
            println!("skipped: Python {} gets no uvloop: {installed:?}", python.version());
        }
    }
}
