//! Frames by id, by the program's own journal: its calls, nested as they were, with their names, however
//! they ended; kept, dropped and counted as calls of machine code are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Mode, Place, TraceView, everycall, successful, text};
use serde_json::Value;

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "-g", "frames.c"], &format!("frames-{}", mode.label()))
}

/// The program without a hook: its frames are all that is traced.
fn bare(place: &Place) -> PathBuf {
    let output = place.file("frames-bare");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/kit/include");
    let mut gcc = place.command("gcc");
    gcc.args(["-O1", "-I"]).arg(header).arg(everycall_tests::programs().join("frames.c"));
    successful(gcc.arg("-o").arg(&output));
    output
}

/// What the program says of the process that it calls so.
fn journal<'a>(printed: &'a str, whose: &str) -> &'a str {
    let line = printed.lines().find_map(|line| line.strip_prefix(whose));
    line.expect("the process prints its journal").trim()
}

/// The calls of the first thread of each process that has one, as text.
fn texts(trace: &TraceView) -> Vec<String> {
    assert_eq!(trace.warnings, [""; 0]);
    let of = |thread: &everycall_tests::ThreadTrace| {
        assert_eq!((thread.losses, thread.orphans), (0, 0), "{:?}", thread.info);
        text(&thread.calls)
    };
    trace.threads.iter().map(of).collect()
}

/// The texts are the same. If not, says where they begin to differ.
fn same(found: &[String], expected: &[&str], label: &str) {
    assert_eq!(found.len(), expected.len(), "{label}");
    for (found, expected) in found.iter().zip(expected) {
        let at = found.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
        let part =
            |text: &str| text.get(at.saturating_sub(200)..(at + 100).min(text.len())).map(str::to_owned);
        assert!(found == expected, "{label}, at {at}:\n{:?}\nexpected:\n{:?}", part(found), part(expected));
    }
}

/// The names in such a text, with the number of calls.
fn tally(text: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    // One name has a space, and one has brackets that aren't round.
    let names = text.replace("a b", "a_b").replace(['(', ')', '!'], " ");
    for name in names.split_whitespace().map(|name| name.replace("a_b", "a b")) {
        // "frame 77" is two words.
        let name = if name == "frame" { "frame 77".to_owned() } else { name };
        if name != "77" && wanted(&name) {
            *all.entry(name).or_default() += 1;
        }
    }
    all
}

#[test]
fn frames_are_nested_between_the_calls_of_machine_code() {
    let place = Place::new("frames");
    for mode in Mode::in_turn(1) {
        let program = built(&place, mode);
        for (seed, options) in
            [("1", &["--ring-size", "64M"][..]), ("2", &["--stream", "--stall"]), ("3", &["--stream"])]
        {
            let label = format!("{} {seed}", mode.label());
            let recording = place.record(options, &program, &[seed]);
            assert!(recording.output.status.success(), "{label}: {recording:?}");
            let printed = recording.stdout();
            assert!(printed.len() > 2000, "{label}: {printed}");
            let found = texts(&recording.trace());
            same(&found, &[journal(&printed, "parent")], &label);
        }
    }
}

/// Without hooks, jumps and forgotten frames show only at the next event: calls and names are right.
#[test]
fn a_program_without_hooks_has_frames_alone() {
    let place = Place::new("frames-bare");
    let program = bare(&place);
    let recording = place.record(&["--preload", "--ring-size", "64M"], &program, &["5"]);
    assert!(recording.output.status.success(), "{recording:?}");
    let machine = ["leaf", "native", "jumper", "catcher", "forgetful", "work"];
    let expected = tally(journal(&recording.stdout(), "parent"), |name| !machine.contains(&name));
    let found: BTreeMap<String, u64> =
        recording.trace().tallies().into_iter().map(|(name, tally)| (name, tally.entries)).collect();
    assert_eq!(found, expected);
    // Without the runtime, they do nothing.
    assert!(successful(Command::new(&program).arg("5")).starts_with("parent "));
}

#[test]
fn a_forked_child_has_the_names() {
    let place = Place::new("frames-fork");
    let program = built(&place, Mode::GCC_NOPS);
    let recording = place.record(&["--ring-size", "64M"], &program, &["7", "fork"]);
    let printed = recording.stdout();
    let trace = recording.trace();
    assert_eq!(trace.processes.len(), 2, "{recording:?}");
    let mut expected = [journal(&printed, "parent"), journal(&printed, "child")];
    let mut found = texts(&trace);
    expected.sort_unstable();
    found.sort_unstable();
    same(&found, &expected, "fork");
}

#[test]
fn frames_are_counted_timed_and_dropped_as_calls() {
    let place = Place::new("frames-counted");
    let program = built(&place, Mode::GCC_FENTRY);
    let rows = |options: &[&str]| {
        let file = place.file("counts.ect");
        let mut command = place.command(everycall());
        command.args(options).arg("-o").arg(&file).arg("--").arg(&program).arg("9");
        let printed = successful(&mut command);
        let report = place.command(everycall()).args(["report", "--format", "json"]).arg(&file).output();
        let report: Value = serde_json::from_slice(&report.expect("it runs").stdout).expect("JSON");
        let row = |row: &Value| {
            let name = row["function"].as_str().or(row["name"].as_str()).expect("a name").to_owned();
            (name, row["calls"].as_u64().expect("a number"))
        };
        let rows = report["rows"].as_array().or(report.as_array()).expect("rows");
        let all: BTreeMap<String, u64> = rows.iter().map(row).collect();
        (all, tally(journal(&printed, "parent"), |_| true))
    };
    for options in [&["count"][..], &["count", "--time"], &["record", "-q", "--ring-size", "64M"]] {
        let (found, expected) = rows(options);
        assert_eq!(found, expected, "{options:?}");
    }
}
