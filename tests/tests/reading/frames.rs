//! Frames by id, by the program's own journal: its calls, nested as they were, with their names,
//! however they ended; kept, dropped and counted as calls of machine code are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Call, Mode, Place, TraceView, everycall, successful, text};
use serde_json::Value;

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "-g", "frames.c"], &format!("frames-{}", mode.label()))
}

/// The program without a hook: its frames are all that is traced.
fn bare(place: &Place) -> PathBuf {
    let output = place.file("frames-bare");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/building/kit/include");
    let mut gcc = place.command("gcc");
    gcc.args(["-O1", "-I"]).arg(header).arg(everycall_tests::programs().join("frames.c"));
    successful(gcc.arg("-o").arg(&output));
    output
}

/// The program's own journal of the process that it calls so.
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

/// Without hooks, jumps and forgotten frames show only at the next event: calls and names are
/// right.
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

/// Also without `record`, in a forked child, and for a name that is stored after the first call; a
/// program that can't load anything has names beside its symbols, too.
#[test]
fn triggers_and_selections_know_frames_by_their_names() {
    let place = Place::new("frames-named");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "named_frames.c"], "named_frames");
    let kept_in = |file: &Path| {
        let info = place.command(everycall()).args(["info", "-f", "json"]).arg(file).output();
        let info: Value = serde_json::from_slice(&info.expect("it runs").stdout).expect("JSON");
        let kept = info["kept_calls"].as_array().expect("kept calls").clone();
        let name = |call: &Value| call["function"].as_str().expect("a name").to_owned();
        kept.iter().map(name).collect::<Vec<_>>()
    };
    let expected = ["work_late", "work_script", "work_script"];
    let options =
        ["--trigger", "bank.work_* > 200ms", "--trigger", "other > 1h", "--keep", "9", "--keep-every", "0s"];
    let recording = place.record(&options, &program, &[]);
    let mut kept = kept_in(&recording.file);
    kept.sort_unstable();
    assert_eq!(kept, expected, "{recording:?}");
    let set = place.file("set.ecs");
    let mut resolve = place.command(everycall());
    successful(resolve.arg("resolve").args(options).arg("-o").arg(&set).arg(&program));
    successful(place.command(&program).env("EVERYCALL_TRIGGERS", &set));
    let files = std::fs::read_dir(place.path()).expect("a folder").map(|file| file.expect("a file").path());
    let files = files.filter(|file| file.to_string_lossy().contains("-kept-"));
    let mut kept: Vec<String> = files.flat_map(|file| kept_in(&file)).collect();
    kept.sort_unstable();
    assert_eq!(kept, expected);
    let recording = place.record(&["--only", "bank.work_*", "--only", "run"], &program, &[]);
    let mut found = texts(&recording.trace());
    found.sort_unstable();
    // The child's, and what is named after its first call is recorded from then on.
    let both = ["run(work_script)", "run(work_script) run(work_script) run run run(work_late)"];
    assert_eq!(found, both, "{recording:?}");
    let mut follow = place.command(everycall());
    let followed = successful(follow.args(["follow", "bank.work_*", "--"]).arg(&program));
    // Which calls are shown isn't checked: a frame's first ones may be over before `follow` has
    // learned its name. None of other frames are.
    assert!(!followed.contains("run #"), "{followed}");
}

/// The example of the documentation: Lua's functions between the calls of the interpreter.
#[test]
fn functions_of_lua_are_counted_as_its_own_hook_counts_them() {
    let place = Place::new("frames-lua");
    let build = Build { workload: Workload::LUA_FRAMES, mode: Some(Mode::GCC_NOPS), flags: &["-O1"] };
    let program = place.file("lua");
    build.link(Linkage::Traced, &program);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/drivers/work.lua");
    let rounds = 3;
    let recording = place.record(
        &["--ring-size", "256M"],
        &program,
        &[script.to_str().expect("UTF-8"), &rounds.to_string()],
    );
    assert!(recording.output.status.success(), "{recording:?}");
    let printed = recording.stdout();
    let lines = printed.lines().filter_map(|line| line.strip_prefix("called "));
    let counted: BTreeMap<String, u64> = lines
        .map(|line| line.split_once(' ').expect("a number and a name"))
        .map(|(calls, name)| (name.to_owned(), calls.parse().expect("a number")))
        .collect();
    assert!(counted.len() > 5 && counted["tree:3"] == 127 * rounds, "{counted:?}");
    let trace = recording.trace();
    let tallies = trace.tallies();
    let found = |name: &String| (name.clone(), tallies[name].entries);
    assert_eq!(counted.keys().map(found).collect::<BTreeMap<_, _>>(), counted);
    // Each round's coroutine ends within the call that has resumed it.
    assert_eq!(trace.threads.iter().map(|thread| thread.orphans).sum::<u64>(), rounds);
    // A function that ends in a tail call has ended when the other one begins.
    let all = everycall_tests::all(&trace.threads[0].calls);
    let through: Vec<_> = all.into_iter().filter(|call| call.name.starts_with("through:")).collect();
    assert_eq!(through.len() as u64, rounds);
    let is_last = |call: &&Call| call.name.starts_with("last:");
    assert_eq!(through.iter().flat_map(|call| everycall_tests::all(&call.inside)).find(is_last), None);
    // A comparator of Lua's, called by a function of C's.
    let calls = &trace.threads[0].calls;
    let sorts = everycall_tests::all(calls).into_iter().filter(|call| call.name == "sort");
    let compared = sorts.flat_map(|call| everycall_tests::all(&call.inside)).map(|call| call.name.as_str());
    assert_eq!(compared.filter(|name| *name == "function:30").count() as u64, counted["function:30"]);
    chosen_by_name(&place, &program, &script, &counted);
}

/// Frames by id in triggers and selections.
fn chosen_by_name(place: &Place, program: &Path, script: &Path, counted: &BTreeMap<String, u64>) {
    let run = |options: &[&str]| {
        let recording = place.record(options, program, &[script.to_str().expect("UTF-8"), "3"]);
        assert!(recording.output.status.success(), "{recording:?}");
        recording
    };
    let keep = ["--keep", "1000", "--keep-every", "0s", "--ring-size", "256M"];
    let triggers = ["--trigger", "work.tree:* > 20us", "--trigger", "lessthanothers > 1h"];
    let recording = run(&[&triggers[..], &keep].concat());
    let info = place.command(everycall()).args(["info", "-f", "json"]).arg(&recording.file).output();
    let info: Value = serde_json::from_slice(&info.expect("it runs").stdout).expect("JSON");
    let csv =
        successful(place.command(everycall()).args(["export", "-f", "csv", "-o", "-"]).arg(&recording.file));
    let calls = everycall_tests::python::Calls::read(&csv);
    let took = |call: &BTreeMap<String, String>| call["duration_ns"].parse::<u64>().expect("a number");
    let slow = calls.of_kind("call").filter(|call| call["function"] == "tree:3" && took(call) > 20_000);
    let mut expected: Vec<u64> = slow.map(took).collect();
    let kept = info["kept_calls"].as_array().expect("kept calls").iter();
    let mut kept: Vec<u64> = kept.map(|call| call["took_ns"].as_u64().expect("a number")).collect();
    expected.sort_unstable();
    kept.sort_unstable();
    assert!(expected.len() > 3 && kept == expected, "{kept:?} {expected:?}");
    assert_eq!((&info["triggers"][1]["functions"], &info["triggers"][1]["calls"]), (&1.into(), &0.into()));
    // One of the interpreter's functions, and one of the script's.
    let recording = run(&["--only", "lua_callk", "--only", "work.tree:*", "--ring-size", "64M"]);
    let tallies = recording.trace().tallies();
    assert_eq!(tallies.keys().collect::<Vec<_>>(), ["lua_callk", "tree:3"]);
    assert_eq!(tallies["tree:3"].entries, counted["tree:3"]);
    let recording = run(&["--not", "tree:3", "--ring-size", "256M"]);
    let tallies = recording.trace().tallies();
    assert!(!tallies.contains_key("tree:3") && tallies["function:30"].entries == counted["function:30"]);
}
