//! `record --counters`: what the kernel counts of a process, against what it said to the program
//! itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

const MEBIBYTE: i64 = 1 << 20;
const NAMES: [&str; 6] = [
    "RSS (bytes)",
    "minor page faults",
    "major page faults",
    "voluntary switches",
    "involuntary switches",
    "CPU time (ns)",
];

/// The kernel's counts of a process: minor and major faults, voluntary and involuntary switches,
/// CPU time.
#[derive(Debug)]
struct Said {
    pid: i64,
    counts: [i64; 5],
}

fn said(text: &str, who: &str) -> Said {
    let line =
        text.lines().find_map(|line| line.strip_prefix(who)).unwrap_or_else(|| panic!("{who}: {text}"));
    let numbers: Vec<i64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    Said { pid: numbers[0], counts: numbers[1..].try_into().unwrap() }
}

fn program(place: &Place) -> PathBuf {
    place.build(Mode::GCC_NOPS, &["-O1", "uses.c"], "uses")
}

fn record(place: &Place, options: &[&str], arguments: &[&str]) -> (PathBuf, Output) {
    let program = program(place);
    let file = place.path().join("uses.ect");
    let mut command = Command::new(everycall());
    command.args(["record", "-q"]).args(options).arg("-o").arg(&file).arg("--").arg(&program).args(arguments);
    let output = command.output().unwrap();
    (file, output)
}

fn lines(file: &Path) -> Vec<Value> {
    let text = successful(Command::new(everycall()).args(["replay", "-f", "json"]).arg(file));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Times and values of a counter.
fn curve(lines: &[Value], pid: i64, name: &str) -> Vec<(u64, i64)> {
    let of = lines.iter().filter(|line| line["pid"] == pid && line["counter"] == name);
    of.map(|line| (line["at_ns"].as_u64().unwrap(), line["value"].as_i64().unwrap())).collect()
}

fn call(lines: &[Value], name: &str) -> (u64, u64) {
    let line = lines
        .iter()
        .find(|line| line["name"].as_str().is_some_and(|text| text.starts_with(name)))
        .unwrap_or_else(|| panic!("{name}"));
    let start = line["start_ns"].as_u64().unwrap();
    (start, start + line["dur_ns"].as_u64().unwrap())
}

/// `is_whole`: the recorder saw the very end of the process.
fn check_process(lines: &[Value], said: &Said, is_whole: bool) {
    for (name, count) in NAMES[1..].iter().zip(said.counts) {
        let curve = curve(lines, said.pid, name);
        assert!(curve.is_sorted_by_key(|(at, _)| *at), "{name}: {curve:?}");
        assert!(curve.is_sorted_by_key(|(_, value)| *value), "{name}: it never falls: {curve:?}");
        let last = curve.last().unwrap_or_else(|| panic!("{name}")).1;
        assert!(!is_whole || last >= count, "{name}: {last} {said:?}");
        if !name.starts_with("CPU") && !name.starts_with("involuntary") {
            // Its end itself.
            assert!(last <= count + 500, "{name}: {last} {said:?}");
        }
    }
}

#[test]
fn counters_are_those_of_the_process() {
    let place = Place::new("counters");
    let (file, output) = record(&place, &["--counters"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let (parent, child) = (said(&text, "parent"), said(&text, "child"));
    let lines = lines(&file);
    check_process(&lines, &parent, true);
    check_process(&lines, &child, false);
    // The child has counters of its own.
    assert!(curve(&lines, child.pid, NAMES[3]).last().unwrap().1 >= 100);

    // Memory is there between the calls that take it and give it back, on the same time axis.
    let rss = curve(&lines, parent.pid, NAMES[0]);
    let (grows, shrinks) = (call(&lines, "grows"), call(&lines, "shrinks"));
    let at = |from: u64, until: u64| {
        rss.iter().rfind(|(at, _)| (from..until).contains(at)).map(|(_, value)| *value)
    };
    // Only changes are stored: memory may have been read while it was given back.
    let (before, within, after) = (at(0, grows.0), at(grows.0, shrinks.0), at(shrinks.0, u64::MAX));
    let (before, within, after) = (before.unwrap(), within.unwrap(), after.unwrap());
    assert!(within - before >= 60 * MEBIBYTE && within - after >= 60 * MEBIBYTE, "{before} {within} {after}");

    // The sums of `info`.
    let info = successful(Command::new(everycall()).args(["info", "-f", "json"]).arg(&file));
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["threads"].as_array().unwrap().len(), 2, "it is no thread: {}", info["threads"]);
    assert!(info["marks"]["names"] == 0, "and not said by the program");
    let of_parent = info["counters"].as_array().unwrap().iter().find(|one| one["pid"] == parent.pid).unwrap();
    for (counter, name) in of_parent["counters"].as_array().unwrap().iter().zip(NAMES) {
        assert_eq!(counter["name"], name);
        let curve = curve(&lines, parent.pid, name);
        assert_eq!(counter["last"], curve.last().unwrap().1);
        assert_eq!(counter["highest"], curve.iter().map(|(_, value)| *value).max().unwrap());
    }
    let page = successful(Command::new(everycall()).arg("info").arg(&file));
    assert!(page.contains("Counters of processes"), "{page}");
    let replay = successful(Command::new(everycall()).arg("replay").arg(&file));
    assert!(replay.contains(&format!("counters of process {}", parent.pid)), "{replay}");

    // Viewers draw curves of the process, and no thread for them.
    let out = place.path().join("uses.json");
    successful(Command::new(everycall()).args(["export", "-f", "chrome", "-o"]).arg(&out).arg(&file));
    let chrome: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    for name in NAMES {
        let drawn = events.iter().filter(|event| event["ph"] == "C" && event["name"] == name);
        let drawn = drawn.filter(|event| event["pid"] == parent.pid).count();
        assert_eq!(drawn, curve(&lines, parent.pid, name).len(), "{name}");
    }
    assert!(!events.iter().any(|event| event["args"]["name"] == "counters"));
    let csv = successful(Command::new(everycall()).args(["export", "-f", "csv", "-o", "-"]).arg(&file));
    assert!(csv.lines().any(|line| line.starts_with("counter,") && line.contains("RSS (bytes)")), "{csv}");
}

#[test]
fn streams_and_killed_programs_have_them() {
    let place = Place::new("counters_streamed");
    let (file, output) = record(&place, &["--counters=2ms", "--stream"], &["killed"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    let parent = said(&text, "parent");
    let all = lines(&file);
    check_process(&all, &parent, true);
    assert!(curve(&all, parent.pid, NAMES[3]).len() > 20);
    let info = successful(Command::new(everycall()).args(["info", "-f", "json"]).arg(&file));
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["warnings"].as_array().unwrap().len(), 0, "{}", info["warnings"]);
    assert!(info["threads"].as_array().unwrap().iter().all(|thread| thread["lost_events"] == 0));
}

#[test]
fn what_is_not_there_is_refused() {
    let place = Place::new("counters_refused");
    let (file, output) = record(&place, &["--counters=cycles"], &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("the CPU's own counters, such as cycles") && text.contains("--counters"), "{text}");
    assert!(!file.exists());
}
