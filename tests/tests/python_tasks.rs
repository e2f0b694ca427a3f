//! Tasks of asyncio: each is a track, on which the calls that wait are open until they go on.

use everycall_tests::python::{Python, script};
use everycall_tests::{everycall, successful};

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
