//! A tokio program that knows nothing of everycall, under `cargo everycall`: each task is a track,
//! with as many polls as the program counts, and arrows lead from what wakes a task to its poll.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Output;

use everycall_tests::rust::{cargo_everycall, command, copied, lock, said};
use everycall_tests::{Place, Tally, TraceView, everycall, successful};
use serde_json::Value;

/// Titles of the program's tasks, by the program's own names for them.
const TITLES: [(&str, &[&str]); 10] = [
    ("blocking", &["app::in_all::{closure#1}::{closure}"]),
    ("boxed", &["Pin<Box<dyn Future<Output=u32> + Send>>"]),
    ("compute", &["app::Counted<app::compute>"]),
    ("is_aborted", &["app::Counted<app::is_aborted>"]),
    ("local", &["app::Counted<app::local>"]),
    ("panics", &["app::Counted<app::panics>"]),
    (
        "receive",
        &["app::Counted<app::receive<0>>", "app::Counted<app::receive<1>>", "app::Counted<app::receive<2>>"],
    ),
    ("serves", &["app::Counted<app::serves>"]),
    ("short", &["app::Counted<app::short>"]),
    ("waits_forever", &["app::Counted<app::waits_forever>"]),
];

/// The polls of the tasks of each name, as the program counts them.
fn own_polls(output: &Output) -> BTreeMap<&'static str, Vec<u64>> {
    let mut polls: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let Some((name, count)) = line.strip_prefix("polls of ").and_then(|rest| rest.split_once(" = "))
        else {
            continue;
        };
        let count = count.parse::<u64>().unwrap();
        let (name, _) = TITLES.iter().find(|(known, _)| *known == name).unwrap();
        // The poll in which it is cancelled isn't the future's.
        let cancels = u64::from(*name == "is_aborted");
        polls.entry(name).or_default().push(count + cancels);
    }
    polls.values_mut().for_each(|polls| polls.sort_unstable());
    polls
}

fn own_count(output: &Output, name: &str) -> u64 {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).unwrap().parse().unwrap()
}

/// Task and number of a wake or step.
fn step_of(line: &Value) -> (u64, u64) {
    (line["task"].as_u64().unwrap(), line["number"].as_u64().unwrap())
}

/// Compares the trace's tasks with what the program has counted.
fn compare(folder: &Path, output: &Output) {
    let shown = |words: &[&str]| successful(command(everycall(), folder).args(words));
    let lines = shown(&["replay", "--format", "json", "app.ect"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut steps, mut wakes) = (BTreeMap::new(), BTreeMap::new());
    for line in &lines {
        if !line["step"].is_null() {
            assert!(steps.insert(step_of(line), line).is_none(), "{line}");
        } else if !line["wake"].is_null() {
            assert!(wakes.insert(step_of(line), line).is_none(), "{line}");
        }
    }
    // One poll after the other, on a track that has the task's name.
    let mut polls: BTreeMap<u64, (&str, u64, u64)> = BTreeMap::new();
    for ((task, number), line) in &steps {
        let (name, last, last_ns) = polls.entry(*task).or_insert((line["thread"].as_str().unwrap(), 0, 0));
        let at_ns = line["at_ns"].as_u64().unwrap();
        assert!(line["thread"] == *name && *number == *last + 1 && at_ns >= *last_ns, "{line}");
        assert_eq!(line["step"], format!("step {name}"));
        (*last, *last_ns) = (*number, at_ns);
    }
    let mut by_name: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (title, count, _) in polls.into_values() {
        let (name, _) = TITLES.iter().find(|(_, titles)| titles.contains(&title)).unwrap();
        by_name.entry(name).or_default().push(count);
    }
    by_name.values_mut().for_each(|counts| counts.sort_unstable());
    assert_eq!(by_name, own_polls(output));

    // Every poll but that of a cancelled task was woken, the first one by who spawned it. If two
    // threads wake a task at the same time, the arrow may begin later than it ends.
    let is_led = |(step, line): &(&(u64, u64), &&Value)| {
        wakes.get(step).is_some_and(|wake| wake["at_ns"].as_u64() <= line["at_ns"].as_u64())
    };
    let led = steps.iter().filter(is_led).count();
    assert!(10 * led > 9 * steps.len(), "{led} of {}", steps.len());
    for number in 0..3 {
        let title = format!("wake app::Counted<app::receive<{number}>>");
        let of_its_task = wakes.iter().filter(|(_, wake)| wake["wake"] == title);
        let by: Vec<(u64, &str)> =
            of_its_task.map(|((_, step), wake)| (*step, wake["thread"].as_str().unwrap())).collect();
        assert_eq!(by, [(1, "app"), (2, &*format!("teller {number}"))]);
    }

    let _ = shown(&["export", "-f", "chrome", "-o", "app.json", "app.ect"]);
    let json: Value = serde_json::from_str(&fs::read_to_string(folder.join("app.json")).unwrap()).unwrap();
    let arrows = |end: &str| -> BTreeSet<&str> {
        let events = json["traceEvents"].as_array().unwrap();
        let with = events.iter().filter(|event| event["cat"] == "task" && event[end] == true);
        with.map(|event| event["bind_id"].as_str().unwrap()).collect()
    };
    assert_eq!((arrows("flow_out").len(), arrows("flow_in").len()), (wakes.len(), steps.len()));
}

/// Builds and runs the program; `prefix` compiles its C code.
fn run(folder: &Path, words: &[&str], prefix: &str) -> Output {
    let output = cargo_everycall(folder, words).env("APP_PREFIX", prefix).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("panicked true\naborted true\nserved 280 7\n"), "{printed}");
    assert!(printed.ends_with("walked true\nlocal (5, 6015)\n"), "{printed}");
    output
}

#[test]
fn tasks_of_a_tokio_program_are_tracks_without_a_change_to_it() {
    let place = Place::new("rust-tokio");
    let folder = copied(&place, "rust-tokio", "Cargo.toml");
    lock(&folder);
    // C code whose functions call the same hook, with arguments in registers and on the stack.
    let prefix = format!("{} cc --mode fentry --", everycall().display());
    let words = ["-q", "--ring-size", "8M", "-o", "app.ect", "run", "-q", "--offline"];
    let output = run(&folder, &words, &prefix);
    compare(&folder, &output);
    let trace = TraceView::tallies_only(&folder.join("app.ect"));
    assert_eq!(trace.losses(), 0);
    let calls = own_count(&output, "in_c");
    assert_eq!(trace.tallies().get("in_c"), Some(&Tally { entries: calls, exits: calls }));

    // The functions that make tasks, poll them and drop them are inlined where nothing hinders it.
    let output = run(&folder, &[&words[..], &["--release"]].concat(), "");
    compare(&folder, &output);

    // Without a recorder, and with one that leaves tokio's functions out.
    let program = folder.join("target/everycall/release/app");
    let alone = command(&program, &folder).output().unwrap();
    assert!(alone.status.success() && own_count(&alone, "in_c") == calls, "{}", said(&alone));
    let output = command(everycall(), &folder)
        .args(["record", "-q", "--not", "tokio::*", "-o", "app.ect", "--"])
        .arg(&program)
        .output()
        .unwrap();
    compare(&folder, &output);
}
