//! Which test binaries run, in which order, and which of them alone.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::binaries::{Binary, Job};

/// Tests that need a quiet machine, because what they assert depends on how threads are scheduled:
/// the binary, and a part of the test's name. They run one by one, after all others.
const ALONE: &[(&str, &str)] = &[
    // Children live for some milliseconds, in which snapshots must be requested.
    ("everycall-tests/forks_and_snapshots", "recorded"),
    // Which calls are above a percentile depends on how long the others take.
    ("everycall-tests/triggers", "entries_and_percentiles"),
    // The process that keeps calls must get a CPU before the segments that it needs are
    // overwritten.
    ("everycall-tests/triggers", "fast_calls_after_each_other"),
    // A library's file has to be opened within 10 ms of its loading.
    ("everycall-tests/unloading", "a_library_is_replaced_under_its_path"),
    ("everycall-tests/snapshots", "two_ask_at_once"),
    // How much memory there is depends on how many ended threads haven't been noticed yet.
    ("everycall-tests/many_threads", "memory_is_back_where_it_was"),
];

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
    "everycall-compiler/behaviour",
    "everycall-tests/trees",
    "everycall-tests/large_files",
    "everycall-tests/process_trees",
];

/// What `--quick` runs: binaries, and parts of names of their tests (none: all of them). Chosen by
/// measured time and by the faults that they find: each stage of the product (compile, hooks,
/// record, stream, snapshot, triggers, decode, symbolize, export, commands), in one mode or a few,
/// and the kept files.
const QUICK: &[(&str, &[&str])] = &[
    ("everycall-compiler/behaviour", &["diagnostics_and_exit_codes", "modes_mix"]),
    ("everycall-compact/round_trip", &[]),
    ("everycall-coredump/cores", &[]),
    ("everycall-demangle/cxxfilt", &[]),
    ("everycall-export/golden", &[]),
    ("everycall-export/json", &[]),
    ("everycall-export/replay", &[]),
    ("everycall-export/timeline", &[]),
    ("everycall-io/outfile", &[]),
    ("everycall-reader/files", &[]),
    ("everycall-recorder/record", &[]),
    ("everycall-ring/grow", &[]),
    ("everycall-ring/size", &[]),
    ("everycall-symbols/identity", &[]),
    ("everycall-symbols/sites", &[]),
    ("everycall-timeline/golden", &[]),
    ("everycall-timeline/jumps", &[]),
    ("everycall-timeline/losses", &[]),
    ("everycall-timeline/marks", &[]),
    ("everycall-timeline/trees", &[]),
    ("everycall-timeline/unsure", &[]),
    ("everycall/bad_input", &[]),
    ("everycall/end_to_end", &[]),
    ("everycall/messages", &[]),
    ("everycall/outputs", &[]),
    ("everycall/sources", &[]),
    ("everycall-tests/c_api", &[]),
    ("everycall-tests/contributing", &[]),
    ("everycall-tests/crash_files", &[]),
    ("everycall-tests/documented", &["commands_are_found", "the_table"]),
    ("everycall-tests/process_trees", &["both_sides_of_a_fork"]),
    ("everycall-tests/limits", &[]),
    ("everycall-tests/names", &[]),
    ("everycall-tests/security", &[]),
    ("everycall-tests/slow_stacks", &[]),
    ("everycall-tests/snapshots", &["full_rings", "several_ask"]),
    ("everycall-tests/streaming", &["a_killed_program", "short_threads"]),
    ("everycall-tests/triggers", &["invalid_triggers_are_refused_before", "slow_calls_of_every_kind"]),
];
/// Unit tests of these take long: of those of the runtime, all except random programs and signals
/// at each instruction.
const QUICK_UNIT_TESTS_WITHOUT: &[(&str, &[&str])] = &[
    ("everycall-runtime/lib", &["tests::signals", "random_programs"]),
    ("everycall-recorder/lib", &["scribbled"]),
];

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
    // Several packages may have tests of one name: all of them are built.
    let targets = QUICK.iter().filter_map(|(name, _)| name.split('/').next_back());
    words.chain(targets.flat_map(|target| ["--test".to_owned(), target.to_owned()])).collect()
}

/// The jobs of a quick run.
pub fn quick(binaries: &[Binary], times: &HashMap<String, f64>) -> Vec<Job> {
    let job = |binary: &Binary| {
        let listed = |list: &'static [(&str, &[&str])]| list.iter().find(|(name, _)| *name == binary.name);
        let is_unit = ["lib", "bin"].iter().any(|kind| binary.name.ends_with(&format!("/{kind}")));
        let arguments = match (listed(QUICK), listed(QUICK_UNIT_TESTS_WITHOUT)) {
            (Some((_, tests)), _) => tests.iter().map(|test| (*test).to_owned()).collect(),
            (None, Some((_, left_out))) => {
                left_out.iter().flat_map(|test| ["--skip".to_owned(), (*test).to_owned()]).collect()
            }
            (None, None) if is_unit => Vec::new(),
            (None, None) => return None,
        };
        Some(Job { binary: binary.clone(), arguments })
    };
    longest_first(binaries.iter().filter_map(job).collect(), times)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn binaries(names: &[&str]) -> Vec<Binary> {
        let binary = |name: &&str| Binary {
            name: (*name).to_owned(),
            executable: "/bin/true".into(),
            folder: "/".into(),
        };
        names.iter().map(binary).collect()
    }

    #[test]
    fn the_longest_begins_first() {
        let all = binaries(&["a/short", "everycall-tests/walks", "b/long", "everycall-tests/workloads"]);
        let times = HashMap::from([("b/long".to_owned(), 3000.0), ("a/short".to_owned(), 0.1)]);
        let (jobs, alone) = whole(&all, &times);
        let labels: Vec<String> = jobs.iter().map(Job::label).collect();
        assert_eq!(labels, ["b/long", "everycall-tests/workloads", "everycall-tests/walks", "a/short"]);
        assert!(alone.is_empty(), "{alone:?}");
    }

    #[test]
    fn quick_runs_are_listed_tests_and_unit_tests() {
        let all = binaries(&[
            "everycall-runtime/lib",
            "everycall-ring/lib",
            "everycall-tests/walks",
            "everycall-tests/streaming",
        ]);
        let jobs = quick(&all, &HashMap::new());
        let arguments = |name: &str| {
            let job = jobs.iter().find(|job| job.binary.name == name)?;
            Some(job.arguments.join(" "))
        };
        assert_eq!(arguments("everycall-tests/walks"), None);
        assert_eq!(arguments("everycall-ring/lib").as_deref(), Some(""));
        assert_eq!(arguments("everycall-tests/streaming").as_deref(), Some("a_killed_program short_threads"));
        assert!(arguments("everycall-runtime/lib").unwrap().starts_with("--skip "));
    }

    /// A test that is renamed or moved away would silently no longer run.
    #[test]
    fn listed_tests_are_there() {
        let workspace = crate::step::workspace();
        let folder = |package: &str| match package {
            "everycall-tests" => workspace.join("tests"),
            "everycall" => workspace.join("crates/cli"),
            other => workspace.join("crates").join(other.trim_start_matches("everycall-")),
        };
        for (name, tests) in QUICK.iter().chain(QUICK_UNIT_TESTS_WITHOUT).copied() {
            let (package, target) = name.split_once('/').expect("package/target");
            let sources = match target {
                "lib" => vec![folder(package).join("src")],
                target => {
                    let path = folder(package).join("tests").join(target);
                    vec![path.with_extension("rs"), path]
                }
            };
            let mut files: Vec<_> = sources.into_iter().filter(|path| path.exists()).collect();
            assert!(!files.is_empty(), "{name}");
            let mut text = String::new();
            while let Some(path) = files.pop() {
                match fs::read_dir(&path) {
                    Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
                    Err(_) => text += &String::from_utf8_lossy(&fs::read(&path).unwrap()),
                }
            }
            for test in tests {
                let word = test.rsplit("::").next().unwrap_or(test);
                assert!(
                    text.contains(&format!("fn {word}")) || text.contains(&format!("mod {word};")),
                    "{name}: {test}"
                );
            }
        }
    }
}
