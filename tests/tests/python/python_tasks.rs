//! Tasks of asyncio: each is a track, on which the calls that wait are open until they go on.

use std::collections::{BTreeMap, BTreeSet};

use everycall_tests::python::{Python, script};
use everycall_tests::{everycall, is_full, successful};
use serde_json::Value;

/// Calls of the tasks of `tasks.py`, by their coroutine and name.
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

/// Calls of the tasks of `reused.py`, which has 30 of each.
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
        if python.installs("uvloop") {
            assert_arrows_lead(&python, &["uvloop"]);
        }
    }
}

/// The calls of the greenlets of `greenlets.py`, by their function; those of one function are
/// sorted.
const GREENLETS: [(&str, &[&str]); 11] = [
    (
        "plain",
        &[
            "plain(outer(pauses(leaf leaf leaf) leaf))",
            "plain(outer(pauses(leaf leaf) leaf))",
            "plain(outer(pauses(leaf) leaf))",
            "plain(outer(pauses(leaf) leaf))",
            "plain(outer(pauses(leaf) leaf))",
        ],
    ),
    ("catches", &["catches(pauses!(leaf) leaf leaf)"]),
    ("passes", &["passes!(pauses!(leaf))"]),
    // One of them is in a cycle, and greenlets that are left in a call aren't garbage.
    (
        "collected",
        &[
            "collected!(pauses!(leaf))",
            "collected!(pauses!(leaf))",
            "collected!(pauses!(leaf))",
            "collected(pauses(leaf))",
        ],
    ),
    ("Own.run", &["Own.run(pauses(leaf))", "Own.run(pauses(leaf))", "Own.run(pauses(leaf))"]),
    ("passing_on", &["passing_on(leaf leaf)", "passing_on(leaf leaf)", "passing_on(leaf leaf)"]),
    ("generates", &["generates(values(leaf) leaf values(leaf) leaf values)"]),
    ("looping (Task", &["looping(step(leaf leaf))"]),
    ("spawning (Task", &["spawning(leaf)"]),
    ("awaits", &["awaits(leaf leaf)"]),
    ("in_thread.<locals>.turns", &["in_thread.<locals>.turns(leaf leaf)"]),
];

#[test]
fn each_greenlet_is_a_track_on_which_its_calls_wait() {
    for python in Python::all() {
        if !python.installs("greenlet") {
            continue;
        }
        let file = script("greenlets.py").display().to_string();
        let plain = python.run(&[&file]);
        assert_eq!(plain.status.code(), Some(0), "{plain:?}");
        for options in [&[][..], &["--c-functions"]] {
            let (output, calls) = python.record(&[options, &["--ring-size", "8M", &file]].concat());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert_eq!(output.stdout, plain.stdout);
            assert!(!String::from_utf8_lossy(&output.stderr).contains("calls ended where"), "{output:?}");
            let trees = calls.trees(&file);
            for (function, expected) in GREENLETS {
                let mut found: Vec<&str> = trees
                    .iter()
                    .filter(|(track, _)| {
                        track.strip_prefix(function).is_some_and(|rest| {
                            rest.starts_with(" (greenlet ")
                                || function.ends_with("(Task") && rest.starts_with('-')
                        })
                    })
                    .map(|(_, tree)| tree.as_str())
                    .collect();
                found.sort_unstable();
                assert_eq!(found, expected, "{function}, {}, {options:?}", python.version());
            }
            // The main greenlet's calls are on the thread's track, in the functions that make them.
            let callers = "select caller.function, count(*) from slices callee join slices caller \
                           on caller.id = callee.parent where callee.function = 'leaf' and callee.thread \
                           not like '% (greenlet %' and callee.thread not like '% (Task-%' group by 1 order by 1";
            let callers =
                successful(python.place.command(everycall()).args(["sql", "-f", "csv", "t.ect", callers]));
            let expected = ["<module>,1", "dropped,6", "in_thread,1", "in_turns,9", "raised,1"];
            assert!(callers.lines().skip(1).eq(expected), "{callers}, {}", python.version());
        }
    }
}

#[test]
fn recording_starts_while_greenlets_are_left_in_calls() {
    for python in Python::all() {
        if !python.installs("greenlet") {
            continue;
        }
        let file = script("midway.py").display().to_string();
        let mut record = python.place.command(everycall());
        record.args(["record", "--preload", "-o", "t.ect", "--"]).arg(python.environment.bin.join("python"));
        assert_eq!(successful(record.arg(&file)), "0\n", "{}", python.version());
        let calls = python.calls("t.ect");
        assert_eq!(calls.of_kind("orphan exit").count(), 0, "{}", python.version());
        let trees: Vec<String> = calls.trees(&file).into_values().collect();
        let mut trees: Vec<&str> = trees.iter().map(String::as_str).collect();
        trees.sort_unstable();
        let expected =
            ["leaf", "leaf leaf", "leaf leaf", "leaf leaf leaf leaf leaf", "plain(pauses(leaf) leaf)"];
        assert_eq!(trees, expected, "{}", python.version());
    }
}

/// Calls of the functions of `gevents.py`, by function.
const OF_GEVENT: [(&str, usize, &str); 5] = [
    ("works", 12, "works(leaf leaf)"),
    ("putter", 1, "putter"),
    ("taker", 1, "taker(leaf leaf leaf)"),
    ("answers", 1, "answers(leaf)"),
    ("asks", 1, "asks(leaf)"),
];

#[test]
fn greenlets_of_gevent_are_tracks() {
    for python in Python::all() {
        if !python.installs("gevent") {
            continue;
        }
        let file = script("gevents.py").display().to_string();
        let (output, calls) = python.record(&["--ring-size", "32M", &file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let trees = calls.trees(&file);
        for (function, count, tree) in OF_GEVENT {
            let title = format!("{function} (greenlet ");
            let own: Vec<_> =
                trees.iter().filter(|(_, found)| found.split(['(', ' ']).next() == Some(function)).collect();
            let all = own.iter().map(|(_, tree)| tree.as_str()).collect::<Vec<_>>().join(" ");
            assert_eq!(all, vec![tree; count].join(" "), "{own:?}, {}", python.version());
            assert!(own.iter().all(|(track, _)| !track.starts_with("python")), "{title}: {own:?}");
        }
        let strays =
            calls.of_kind("call").filter(|line| line["thread"] == "python" && line["function"] == "leaf");
        assert_eq!(strays.count(), 0);
    }
}
