//! A tokio server under `cargo everycall`: it answers as ever, each task is a track, whichever
//! threads poll it, and arrows lead from what wakes a task to its poll.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Output;

use everycall_tests::rust::{cargo_everycall, command, copied, lock, said};
use everycall_tests::{Place, Tally, TraceView, everycall, successful};
use serde_json::Value;

/// Numbers of `key = number` lines, by key; of a task, one for each.
fn own_counts(output: &Output) -> BTreeMap<String, Vec<u64>> {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        if let Some((key, count)) = line.split_once(" = ") {
            counts.entry(key.to_owned()).or_default().push(count.parse().unwrap());
        }
    }
    counts.values_mut().for_each(|counts| counts.sort_unstable());
    counts
}

fn expected_answers() -> String {
    let answers: String = (0..6).map(|client| format!("REQUEST 39 OF CLIENT {client}\n")).collect();
    let value = (0..50).fold(1_u32, |value, _| value.wrapping_mul(31).wrapping_add(7));
    answers + &format!("computed {value}\n").repeat(4) + "told 7\n"
}

/// Task and number of a wake or step.
fn step_of(line: &Value) -> (u64, u64) {
    (line["task"].as_u64().unwrap(), line["number"].as_u64().unwrap())
}

#[test]
fn a_tokio_servers_tasks_are_tracks_with_arrows_to_their_polls() {
    let place = Place::new("rust-tasks");
    let folder = copied(&place, "rust-tasks", "Cargo.toml");
    lock(&folder);
    let words = ["-q", "--ring-size", "4M", "-o", "tasks.ect", "run", "-q", "--offline"];
    let output = cargo_everycall(&folder, &words).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected_answers());

    let counts = own_counts(&output);
    let trace = TraceView::tallies_only(&folder.join("tasks.ect"));
    assert_eq!(trace.losses(), 0);
    for name in ["tasks::answer", "tasks::mix"] {
        let calls = counts[name][0];
        assert_eq!(trace.tallies().get(name), Some(&Tally { entries: calls, exits: calls }), "{name}");
    }

    let shown = |words: &[&str]| successful(command(everycall(), &folder).args(words));
    let lines = shown(&["replay", "--format", "json", "tasks.ect"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut steps, mut wakes) = (BTreeMap::new(), BTreeMap::new());
    let mut mixed_on = BTreeSet::new();
    for line in &lines {
        if !line["step"].is_null() {
            assert!(steps.insert(step_of(line), line).is_none(), "{line}");
        } else if !line["wake"].is_null() {
            assert!(wakes.insert(step_of(line), line).is_none(), "{line}");
        } else if line["name"] == "tasks::mix" {
            mixed_on.insert(line["thread"].as_str().unwrap());
        }
    }
    assert_eq!(mixed_on, BTreeSet::from(["tasks::compute"]));

    // As often as the program says that each task was polled, one poll after the other.
    let mut polls: BTreeMap<u64, (&str, u64, u64)> = BTreeMap::new();
    for ((task, number), line) in &steps {
        let (name, last, last_ns) = polls.entry(*task).or_insert((line["thread"].as_str().unwrap(), 0, 0));
        let at_ns = line["at_ns"].as_u64().unwrap();
        assert!(line["thread"] == *name && *number == *last + 1 && at_ns >= *last_ns, "{line}");
        (*last, *last_ns) = (*number, at_ns);
    }
    let mut by_name: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (name, count, _) in polls.into_values() {
        by_name.entry(name.replace("tasks::", "polls of ")).or_default().push(count);
    }
    by_name.values_mut().for_each(|counts| counts.sort_unstable());
    let counted: BTreeMap<_, _> =
        counts.into_iter().filter(|(name, _)| name.starts_with("polls of ")).collect();
    assert_eq!(by_name, counted);
    assert_eq!(counted.values().map(Vec::len).sum::<usize>(), 6 + 1 + 4 + 1);

    // Wakes come before what they lead to, unless two threads wake a task at the same time.
    let led = |step: &(u64, u64), line: &Value| {
        wakes.get(step).is_some_and(|wake| wake["at_ns"].as_u64() <= line["at_ns"].as_u64())
    };
    let led = steps.iter().filter(|(step, line)| led(step, line)).count();
    assert!(10 * led > 9 * steps.len(), "{led} of {}", steps.len());
    let last_wake = wakes.values().rfind(|wake| wake["wake"] == "wake tasks::receive").unwrap();
    assert_eq!(last_wake["thread"], "teller");

    // A title is what chooses its track.
    let tree = shown(&["replay", "tasks.ect"]);
    let task = tree.lines().find_map(|line| line.strip_prefix("== task ")?.split(' ').next()).unwrap();
    for id in [format!("task {task}"), format!("task:{task}")] {
        let tree = shown(&["replay", "--tid", &id, "tasks.ect"]);
        let titles: Vec<_> = tree.lines().filter(|line| line.starts_with("== ")).collect();
        assert!(titles.len() == 1 && titles[0].starts_with(&format!("== task {task} ")), "{titles:?}");
    }

    let _ = shown(&["export", "-f", "chrome", "-o", "tasks.json", "tasks.ect"]);
    let json: Value = serde_json::from_str(&fs::read_to_string(folder.join("tasks.json")).unwrap()).unwrap();
    let arrows = |end: &str| -> BTreeSet<&str> {
        let events = json["traceEvents"].as_array().unwrap();
        let with = events.iter().filter(|event| event["cat"] == "task" && event[end] == true);
        with.map(|event| event["bind_id"].as_str().unwrap()).collect()
    };
    let (leave, arrive) = (arrows("flow_out"), arrows("flow_in"));
    assert_eq!((leave.len(), arrive.len()), (wakes.len(), steps.len()));
    assert_eq!(
        leave.intersection(&arrive).count(),
        steps.keys().filter(|step| wakes.contains_key(step)).count()
    );
}
