//! Which test binaries run, in which order, and which of them alone.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::binaries::{Binary, Job};

/// Tests that measure time and need a quiet machine: the binary, and a part of the test's name. They run one by one, after all others.
const ALONE: &[(&str, &str)] = &[];

/// The longest ones first, when no run before has left its times: what begins last should be short.
const LONG: [&str; 14] = [
    "everycall-tests/documented",
    "everycall-tests/workloads",
    "everycall-tests/streaming",
    "everycall-tests/walks",
    "everycall-tests/kills",
    "everycall-tests/c_api_snapshots",
    "everycall-tests/site_sets",
    "everycall-runtime/lib",
    "everycall-tests/hooks_unwinding",
    "everycall-tests/triggers",
    "everycall-build/behaviour",
    "everycall-tests/trees",
    "everycall-tests/large_files",
    "everycall-tests/families",
];

/// What `--quick` runs, beside all unit tests: targets of `cargo test`, and parts of names of their tests (none: all of them). Chosen by measured time
/// and by what they noticed in the past: each stage of the product (compile, hooks, record, stream, snapshot, triggers, decode, export), in one mode.
const QUICK: &[(&str, &[&str])] = &[];

/// The jobs of a whole run: those that run beside others, and those that run alone.
pub fn whole(binaries: &[Binary], times: &HashMap<String, f64>) -> (Vec<Job>, Vec<Job>) {
    let tests_alone = |binary: &Binary| -> Vec<String> {
        let listed = ALONE.iter().filter(|(name, _)| *name == binary.name);
        listed.map(|(_, test)| (*test).to_owned()).collect()
    };
    let beside = binaries.iter().map(|binary| {
        let skipped = tests_alone(binary).into_iter().flat_map(|test| ["--skip".to_owned(), test]);
        Job { binary: binary.clone(), arguments: skipped.collect() }
    });
    let alone = binaries.iter().flat_map(|binary| {
        let job = |test| Job { binary: binary.clone(), arguments: vec![test] };
        tests_alone(binary).into_iter().map(job).collect::<Vec<_>>()
    });
    (longest_first(beside.collect(), times), alone.collect())
}

/// What `cargo test` has to build for a quick run.
pub fn quick_selection() -> Vec<String> {
    // Examples are programs that tests run.
    let words = ["--lib", "--bins", "--examples"].map(str::to_owned).into_iter();
    words.chain(QUICK.iter().flat_map(|(target, _)| ["--test".to_owned(), (*target).to_owned()])).collect()
}

/// The jobs of a quick run.
pub fn quick(binaries: &[Binary], times: &HashMap<String, f64>) -> Vec<Job> {
    let arguments = |binary: &Binary| {
        let target = binary.name.rsplit('/').next();
        let listed = QUICK.iter().find(|(name, _)| Some(*name) == target);
        listed.map_or(&[][..], |(_, tests)| tests).iter().map(|test| (*test).to_owned()).collect()
    };
    let jobs = binaries.iter().map(|binary| Job { binary: binary.clone(), arguments: arguments(binary) });
    longest_first(jobs.collect(), times)
}

fn longest_first(mut jobs: Vec<Job>, times: &HashMap<String, f64>) -> Vec<Job> {
    let expected = |job: &Job| {
        let position = LONG.iter().position(|name| *name == job.binary.name);
        let guessed = position.map_or(0.0, |position| 1000.0 - position as f64);
        times.get(&job.label()).copied().unwrap_or(guessed)
    };
    jobs.sort_by(|a, b| expected(b).total_cmp(&expected(a)));
    jobs
}

/// Seconds that jobs took in earlier runs: `SECONDS LABEL` on each line.
pub fn read_times(path: &Path) -> HashMap<String, f64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        let (seconds, label) = line.split_once(' ')?;
        Some((label.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// Writes them for the next run; without them, that one takes another order.
pub fn write_times(path: &Path, times: &HashMap<String, f64>) {
    let mut lines: Vec<String> = times.iter().map(|(label, time)| format!("{time:.1} {label}\n")).collect();
    lines.sort();
    let _ = fs::write(path, lines.concat());
}
