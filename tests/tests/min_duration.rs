//! `record --min-duration`: short calls are dropped and counted. What is kept and what was dropped is every call that the program
//! made, by its own counts.

use std::collections::BTreeMap;
use std::path::Path;

use everycall_tests::{Mode, Place, Recording, everycall, successful};
use serde_json::Value;

/// By function.
type Counts = BTreeMap<String, u64>;

/// The program's own counts of its calls.
fn made(stdout: &str) -> Counts {
    let counts = stdout.lines().filter_map(|line| line.split_once(' '));
    counts.map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))).collect()
}

/// What `info` says of a trace.
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
fn kept(recording: &Recording) -> Counts {
    let trace = recording.tallies();
    assert_eq!(trace.losses(), 0, "{recording:?}");
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
    for mode in Mode::ALL {
        for options in [&["--ring-size", "64M"][..], &["--stream", "--stall"]] {
            let label = format!("{} {options:?}", mode.label());
            let program = place.build(mode, &["-O2", "-g", "short_calls.c", "-pthread"], &mode.label());
            let options = [&["--min-duration", "5us"], options].concat();
            let recording = place.record(&options, &program, &["3", "400"]);
            assert!(recording.output.status.success(), "{label}: {recording:?}");
            let made = made(&recording.stdout());
            let (kept, info) = (kept(&recording), info(&place, &recording.file));
            let (dropped, sum) = dropped(&info);
            adds_up(&label, &made, &kept, &dropped);
            assert_eq!(dropped.values().sum::<u64>(), sum, "{label}");
            assert_eq!(info["dropped_calls"]["min_duration_ns"], 5000, "{label}");
            assert_eq!(info["dropped_calls"]["calls_in_covered_time"], sum, "{label}");
            assert_eq!(info["orphan_exits"], 0, "{label}");
            // Long calls, and those that called one, are all there; so are those that were left by a jump.
            for name in ["slow", "outer", "run", "main", "jumped"] {
                assert_eq!(dropped.get(name), None, "{label}: {name}");
            }
            // Nearly all short ones are gone.
            for name in ["leaf_a", "leaf_b", "leaf_c", "middle"] {
                assert!(kept[name] * 20 < made[name], "{label}: {} of {} {name}", kept[name], made[name]);
            }
        }
    }
}
