//! Real Rust programs under `cargo everycall`: the tests of ripgrep and tokio have the same
//! results, and ripgrep's calls are those that callgrind counts. They are built from the registry's
//! crates, which takes minutes: only with `EVERYCALL_FULL`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use everycall_tests::callgrind::{calls_by_callgrind, compare_table};
use everycall_tests::rust::{cargo_everycall, command, copy, said};
use everycall_tests::{Place, everycall, is_full, programs, successful};

/// A copy of a package's sources.
fn package(place: &Place, name: &str, version: &str) -> PathBuf {
    let user = place.file("a user of the package");
    fs::create_dir_all(user.join("src")).unwrap();
    fs::write(user.join("src/lib.rs"), "").unwrap();
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         [dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    fs::write(user.join("Cargo.toml"), manifest).unwrap();
    // cargo tells nothing of dependencies without a library, but fetches them.
    successful(command(env!("CARGO"), &user).args(["fetch", "-q"]));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo"));
    let registries = fs::read_dir(home.join("registry/src")).unwrap();
    let mut folders = registries.map(|registry| registry.unwrap().path().join(format!("{name}-{version}")));
    let to = place.file(name);
    copy(&folders.find(|folder| folder.exists()).unwrap(), &to);
    to
}

/// The results of tests, by their names, of which several may be the same.
fn results(printed: &str) -> BTreeMap<(String, String), u32> {
    let mut results = BTreeMap::new();
    for line in printed.lines() {
        if let Some((name, result)) = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) {
            *results.entry((name.to_owned(), result.to_owned())).or_default() += 1;
        }
    }
    results
}

/// Runs a package's tests, traced and not, and compares their results.
fn compare_tests(folder: &Path, options: &[&str], arguments: &[&str], at_least: u32) {
    let words = [&["test", "--locked", "--no-fail-fast"], arguments].concat();
    let plain = command(env!("CARGO"), folder).args(&words).output().unwrap();
    assert!(plain.status.success(), "{}", said(&plain));
    let words = [options, &["-o", "tests.ect"], &words[..]].concat();
    let traced = cargo_everycall(folder, &words).output().unwrap();
    assert!(traced.status.success(), "{}", said(&traced));
    let results = [&plain, &traced].map(|output| results(&String::from_utf8_lossy(&output.stdout)));
    assert_eq!(results[0], results[1]);
    assert!(results[0].values().sum::<u32>() >= at_least, "{results:?}");
    assert!(fs::metadata(folder.join("tests.ect")).unwrap().len() > 1 << 20);
}

#[test]
fn ripgreps_tests_pass_and_its_calls_are_those_that_callgrind_counts() {
    if !is_full() {
        return;
    }
    let place = Place::new("rust-ripgrep");
    let folder = package(&place, "ripgrep", "15.2.0");
    compare_tests(&folder, &["--all"], &[], 440);

    // The program that the tests have run, with all its crates.
    compare_calls(&place, &folder, &folder.join("target/everycall-all/debug/rg"), 3000);
    // The profile of ripgrep's releases: optimised at link time as one unit, aborts on panics.
    let release = ["--all", "build", "--locked", "--profile", "release-lto"];
    let with_names = ["--config", "profile.release-lto.strip=false"];
    let built = cargo_everycall(&folder, &[&release[..], &with_names].concat()).output().unwrap();
    assert!(built.status.success(), "{}", said(&built));
    compare_calls(&place, &folder, &folder.join("target/everycall-all/release-lto/rg"), 400);
}

/// Compares the calls of a search, recorded and counted, with those that callgrind counts: of each
/// of `at_least` functions, and all together, which are the calls of the hook for entries.
fn compare_calls(place: &Place, folder: &Path, program: &Path, at_least: usize) {
    let fixed = place.file("libfixed.so");
    successful(
        command("cc", folder)
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&fixed)
            .arg(programs().join("fixed_random.c")),
    );
    let search = ["-j1", "--no-config", "Searcher", "crates/core/search.rs"];
    let file = place.file("callgrind.out");
    let mut callgrind = command("valgrind", folder);
    callgrind.args(["--quiet", "--tool=callgrind", "--demangle=no"]);
    callgrind.arg(format!("--callgrind-out-file={}", file.display())).arg(program).args(search);
    let printed = successful(callgrind.env("LD_PRELOAD", &fixed));
    let expected = calls_by_callgrind(&fs::read_to_string(&file).unwrap(), program);
    for options in [&["record", "-q", "--ring-size", "1G", "-o", "rg.ect"][..], &["count", "-o", "rg.ect"]] {
        let mut traced = command(everycall(), folder);
        traced.args(options).arg("--").arg(program).args(search);
        let its = successful(traced.env("LD_PRELOAD", &fixed));
        assert!(its.starts_with(&printed), "{}: {its}", options[0]);
        let report = ["report", "--limit", "0", "-f", "json", "rg.ect"];
        let report = successful(command(everycall(), folder).args(report));
        let found = compare_table(&expected, &report, options[0]);
        assert!(found.len() > at_least, "{}: {} functions", options[0], found.len());
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let rows = report["rows"].as_array().unwrap().iter();
        let all: u64 = rows.map(|row| row["calls"].as_u64().unwrap()).sum();
        assert_eq!(Some(&all), expected.get("__cyg_profile_func_enter"), "{}", options[0]);
    }
}

#[test]
fn tokios_tests_pass() {
    if !is_full() {
        return;
    }
    let place = Place::new("rust-tokio");
    let folder = package(&place, "tokio", "1.54.1");
    let tests = [
        "join_handle_panic",
        "macros_select",
        "rt_basic",
        "rt_common",
        "rt_handle",
        "rt_panic",
        "rt_threaded",
        "sync_mpsc",
        "sync_notify",
        "sync_oneshot",
        "task_abort",
        "task_join_set",
        "task_local",
        "task_local_set",
        "task_panic",
        "task_yield_now",
        "tcp_accept",
        "tcp_echo",
        "tcp_split",
        "tcp_stream",
        "time_sleep",
        "time_timeout",
    ];
    let mut arguments = vec!["--features", "full,test-util"];
    arguments.extend(tests.iter().flat_map(|test| ["--test", test]));
    compare_tests(&folder, &[], &arguments, 300);
}
