//! `record --min-duration`: short calls are dropped and counted. Recorded and dropped calls
//! together are all calls that the program made, by its own counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Call, Mode, Place, Standing, TraceView, everycall, successful, wait};
use serde_json::Value;

/// By function.
type Counts = BTreeMap<String, u64>;

/// The program's own counts of its calls.
fn made(stdout: &str) -> Counts {
    let counts = stdout.lines().filter_map(|line| line.split_once(' '));
    counts.map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))).collect()
}

fn include() -> String {
    format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include"))
}

/// The program of these tests.
fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "-g", &include(), "short_calls.c", "-pthread"], &mode.label())
}

/// `info` of a trace.
fn info(place: &Place, file: &Path) -> Value {
    let text = successful(place.command(everycall()).args(["info", "-f", "json"]).arg(file));
    serde_json::from_str(&text).expect("JSON")
}

/// The calls that were dropped, and that sum.
fn dropped(info: &Value) -> (Counts, u64) {
    let dropped = &info["dropped_calls"];
    let functions = dropped["functions"].as_array().expect("functions");
    let count = |function: &Value| {
        (function["name"].as_str().expect("a name").to_owned(), function["calls"].as_u64().expect("a count"))
    };
    (functions.iter().map(count).collect(), dropped["calls"].as_u64().expect("a sum"))
}

/// The calls in a trace.
fn kept(trace: &TraceView) -> Counts {
    assert_eq!(trace.losses(), 0);
    trace.tallies().into_iter().map(|(name, tally)| (name, tally.entries)).collect()
}

/// Every call is in the trace or was counted.
fn adds_up(what: &str, made: &Counts, kept: &Counts, dropped: &Counts) {
    for (name, made) in made {
        let of = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
        assert_eq!(
            of(kept) + of(dropped),
            *made,
            "{what}: {name}: {} kept, {} dropped",
            of(kept),
            of(dropped)
        );
    }
}

#[test]
fn kept_and_dropped_calls_are_all_calls_in_every_mode() {
    let place = Place::new("min-duration");
    for mode in Mode::in_turn(0) {
        for options in [&["--ring-size", "64M"][..], &["--stream", "--stall"]] {
            let label = format!("{} {options:?}", mode.label());
            let program = built(&place, mode);
            let options = [&["--min-duration", "5us"], options].concat();
            // A stream has the end of each thread while the program runs.
            let recording = place.record(&options, &program, &["3", "400", "lingers"]);
            assert!(recording.output.status.success(), "{label}: {recording:?}");
            let made = made(&recording.stdout());
            let (kept, info) = (kept(&recording.tallies()), info(&place, &recording.file));
            let (dropped, sum) = dropped(&info);
            adds_up(&label, &made, &kept, &dropped);
            assert_eq!(dropped.values().sum::<u64>(), sum, "{label}");
            assert_eq!(info["dropped_calls"]["min_duration_ns"], 5000, "{label}");
            assert_eq!(info["dropped_calls"]["calls_in_covered_time"], sum, "{label}");
            assert_eq!(info["orphan_exits"], 0, "{label}");
            // All long calls, and all that contain one, are recorded; so are those that were left
            // by a jump.
            for name in ["slow", "outer", "run", "main", "jumped"] {
                assert_eq!(dropped.get(name), None, "{label}: {name}");
            }
            // Nearly all short ones are gone.
            for name in ["leaf_a", "leaf_b", "leaf_c", "middle"] {
                let kept = kept.get(name).copied().unwrap_or(0);
                assert!(kept * 20 < made[name], "{label}: {kept} of {} {name}", made[name]);
            }
        }
    }
}

/// The functions that call each one.
fn callers(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "leaf_a" => &["middle", "jumped", "main"],
        "leaf_b" => &["middle"],
        "leaf_c" => &["outer", "round_of", "recurse"],
        "middle" => &["round_of", "outer"],
        "recurse" => &["recurse", "round_of"],
        "slow" => &["outer"],
        "outer" | "jumper" => &["round_of"],
        "jumped" => &["jumper"],
        "in_handler" => &["on_signal"],
        "round_of" => &["run"],
        "run" | "main" => &[],
        // The signal may come anywhere.
        _ => return None,
    })
}

/// Calls are within their callers. Returns their number.
fn is_nested(what: &str, around: Option<&str>, calls: &[Call]) -> u64 {
    let one = |call: &Call| {
        // The signal's handler may interrupt a hook: its calls are then beside the call of that
        // hook.
        let allowed = callers(&call.name)
            .is_none_or(|callers| around.map_or(callers.is_empty(), |around| callers.contains(&around)));
        // Calls that began before the events have lost the calls around them that ended within
        // these. Those that a jump left have no exit there: what they called has an uncertain
        // caller.
        assert!(
            allowed || call.caller_unsure || around.is_none() && call.start_cut,
            "{what}: {} within {around:?}",
            call.text()
        );
        1 + is_nested(what, Some(&call.name), &call.inside)
    };
    calls.iter().map(one).sum()
}

/// Checks a snapshot of a program that ran on. Returns the number of its calls.
fn is_whole(what: &str, trace: &TraceView) -> u64 {
    let mut calls = 0;
    for thread in &trace.threads {
        assert_eq!((thread.losses, thread.orphans), (0, 0), "{what}: {:?}", thread.info);
        calls += is_nested(what, None, &thread.calls);
    }
    calls
}

#[test]
fn snapshots_of_running_threads_show_what_was_there_at_once() {
    let place = Place::new("min-duration-live");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT] {
        let program = built(&place, mode);
        let file = place.file("recorded.ect");
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--stream", "--stall", "--min-duration", "5us", "-o"]);
        command.arg(&file).arg("--").arg(&program).args(["3", "1000000000", "endless"]);
        let standing = Standing::start(&mut command).find_traced();
        let mut calls = 0;
        for number in 0..15 {
            let what = format!("{} {number}", mode.label());
            let snapshot = place.file("snapshot.ect");
            let mut command = place.command(everycall());
            command.args(["snapshot", "-q", "-o"]).arg(&snapshot).arg(standing.pid.to_string());
            successful(&mut command);
            calls += is_whole(&what, &TraceView::open(&snapshot));
            let (functions, sum) = dropped(&info(&place, &snapshot));
            assert!(sum > 0 && functions.contains_key("leaf_a"), "{what}");
        }
        assert!(calls > 400, "{}: {calls}", mode.label());
        let (status, printed) = standing.end();
        assert!(status.success());
        let (made, kept) = (made(&printed), kept(&TraceView::tallies_only(&file)));
        adds_up(&mode.label(), &made, &kept, &dropped(&info(&place, &file)).0);
    }
}

#[test]
fn a_program_takes_snapshots_of_itself_without_record() {
    let place = Place::new("min-duration-own");
    let program = built(&place, Mode::GCC_NOPS);
    let mut command = Command::new(&program);
    command.args(["3", "1000000000", "endless"]).current_dir(place.path());
    command.envs([("EVERYCALL_MIN_DURATION", "5us"), ("EVERYCALL_SNAPSHOT_SIGNAL", "USR2")]);
    let standing = Standing::start(&mut command);
    let files = || {
        let all = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|ending| ending == "ect")).collect::<Vec<_>>()
    };
    // A signal that comes before the last snapshot's thread has ended is counted, and writes none.
    wait::until("20 snapshots are there", || {
        successful(place.command("kill").args(["-USR2", &standing.pid.to_string()]));
        files().len() >= 20
    });
    let number =
        |file: &PathBuf| -> Option<u32> { file.file_stem()?.to_str()?.rsplit('-').next()?.parse().ok() };
    let mut in_order = files();
    in_order.sort_by_key(number);
    let (mut calls, mut has_begun) = (0, false);
    for file in in_order {
        let what = file.display().to_string();
        calls += is_whole(&what, &TraceView::open(&file));
        let (functions, sum) = dropped(&info(&place, &file));
        // The first ones may come before the program's first short call.
        has_begun |= functions.contains_key("leaf_a");
        assert!(!has_begun || sum > 0 && functions.contains_key("leaf_a"), "{what}");
    }
    assert!(has_begun);
    assert!(calls > 500, "{calls}");
}

#[test]
fn a_killed_program_leaves_what_it_kept_and_counted() {
    let place = Place::new("min-duration-killed");
    let program = built(&place, Mode::GCC_NOPS);
    for number in 0..10 {
        let mut command = place.command(everycall());
        command.args([
            "record",
            "-q",
            "--ring-size",
            "64M",
            "--min-duration",
            "5us",
            "-o",
            "killed.ect",
            "--",
        ]);
        command.arg(&program).args(["3", "1000000000", "endless"]);
        let standing = Standing::start(&mut command).find_traced();
        wait::until_worked(standing.pid, std::time::Duration::from_millis(20 + 7 * number));
        successful(place.command("kill").args(["-KILL", &standing.pid.to_string()]));
        let (status, _) = standing.end();
        assert!(!status.success());
        let file = place.file("killed.ect");
        let what = format!("kill {number}");
        let trace = TraceView::open(&file);
        for thread in &trace.threads {
            // A hook that was interrupted for a handler may be in the middle of its words.
            assert!(thread.losses <= 2 && thread.orphans == 0, "{what}: {:?}", thread.info);
            is_nested(&what, None, &thread.calls);
        }
        assert!(dropped(&info(&place, &file)).1 > 0, "{what}");
    }
}

#[test]
fn the_program_switches_it_on_and_off() {
    let place = Place::new("min-duration-switched");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let program = built(&place, mode);
        let recording = place.record(&["--stream", "--stall"], &program, &["3", "1000000000", "switched"]);
        assert!(recording.output.status.success(), "{recording:?}");
        let output = recording.stdout();
        let (results, counts) = output.split_once('\n').unwrap();
        assert_eq!(results, "0 -2 0", "{}", mode.label());
        let (made, kept) = (made(counts), kept(&recording.tallies()));
        let info = info(&place, &recording.file);
        let (dropped, _) = dropped(&info);
        adds_up(&mode.label(), &made, &kept, &dropped);
        assert!(dropped["leaf_a"] > 1000 && kept["leaf_a"] > 1000, "{}: {dropped:?} {kept:?}", mode.label());
        let facts = &info["dropped_calls"];
        assert_eq!((&facts["min_duration_ns"], &facts["highest_min_duration_ns"]), (&0.into(), &5000.into()));
    }
}

#[test]
fn invalid_durations_are_refused_with_advice() {
    let place = Place::new("min-duration-refused");
    let program = built(&place, Mode::GCC_NOPS);
    for (options, said) in [
        (&["--min-duration", "500"][..], "such as 500ns"),
        (&["--min-duration", "101ms"], "longer than 100ms"),
        (&["--min-duration", "fast"], "everycall record --min-duration 500ns ./app"),
        (&["--min-duration", "500ns", "--trigger", "leaf_a entered"], "--min-duration drops short calls"),
        (&["--min-duration", "500ns", "--trigger", "slow > p99"], "as in: 'handle_request > 20ms'"),
    ] {
        let output = place.command(everycall()).arg("record").args(options).arg(&program).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{options:?}: {error}");
    }
    // A variable with an invalid value causes a message, and has no effect.
    let output =
        Command::new(&program).args(["1", "1"]).env("EVERYCALL_MIN_DURATION", "soon").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("EVERYCALL_MIN_DURATION=soon isn't understood") && error.contains("500ns"),
        "{error}"
    );
    assert!(output.status.success());
    // Triggers with a time go together with it, and come first.
    let options = ["--min-duration", "5us", "--trigger", "slow > 30us", "--keep-every", "0"];
    let recording = place.record(&options, &program, &["1", "40"]);
    let info = info(&place, &recording.file);
    assert_eq!(info["triggers"][0]["calls"], made(&recording.stdout())["slow"]);
    assert!(info["dropped_calls"]["calls"].as_u64().unwrap() > 1000);
}
