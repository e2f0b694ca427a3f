//! `report` counts the calls of real programs as callgrind does, which runs the same code without any hook of ours.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use everycall_tests::callgrind::{calls_by_callgrind, compare_table};
use everycall_tests::workloads::{Build, Linkage, Workload};
use everycall_tests::{Mode, Place, everycall, programs, successful};
use serde_json::Value;

fn check(workload: Workload) {
    let place = Place::new(&format!("callgrind-{}", workload.name));
    // One level of optimisation for which no function has a part elsewhere: callgrind takes jumps into it for calls.
    let build = Build { workload, mode: Some(Mode::GCC_NOPS), flags: &["-O1"] };
    let (plain, traced) = (place.file("plain"), place.file("traced"));
    build.link(Linkage::Plain, &plain);
    build.link(Linkage::Traced, &traced);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/drivers/work.lua");
    let script = (workload.name == "lua").then_some(script);
    let arguments: Vec<&OsStr> =
        script.iter().map(|script| script.as_os_str()).chain(workload.small.iter().map(OsStr::new)).collect();
    let found = compare(&place, &plain, &traced, &arguments);
    assert!(found.len() > 200, "{} functions", found.len());
    assert!(found.iter().all(|names| names.len() == 1), "a function of C has one name");
    compare_memory(&place, (&plain, &traced), &arguments, workload.threads);
}

/// Compares what the process has allocated with what memcheck says of the same program. Memcheck
/// counts bytes as they are asked for, and so does an allocator that comes behind ours.
fn compare_memory(place: &Place, (plain, traced): (&Path, &Path), arguments: &[&OsStr], threads: usize) {
    let mut memcheck = place.command("valgrind");
    let output = memcheck.arg(plain).args(arguments).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).replace(',', "");
    let (_, usage) = said.split_once("total heap usage: ").unwrap_or_else(|| panic!("{said}"));
    let mut words = usage.split_whitespace();
    let blocks: u64 = words.next().and_then(|word| word.parse().ok()).expect("allocs");
    let bytes: u64 = words.nth(3).and_then(|word| word.parse().ok()).expect("bytes");
    let allocator = place.file("libexact.so");
    let mut compiler = place.command("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-fno-builtin", "-o"]).arg(&allocator);
    successful(compiler.arg(programs().join("exact_allocator.c")));
    let mut count = place.command(everycall());
    count.args(["count", "--memory", "-o", "memory.ect", "--"]).arg(traced).args(arguments);
    successful(count.env("LD_PRELOAD", &allocator));
    let report = successful(place.command(everycall()).args(["report", "-f", "json", "memory.ect"]));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let sum = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap_or(0)).sum::<u64>();
    assert_eq!(sum("own_allocated_blocks"), blocks, "{usage}");
    // The list of a thread's thread-local variables has 16 bytes for those of the library that
    // counts, and 16 for that of the traced program, which has none otherwise.
    assert_eq!(sum("own_allocated_bytes"), bytes + 32 * (threads as u64 - 1), "{usage}");
}

/// Runs a program as it is in callgrind, and its traced build with `record`, `count` and
/// `count --time`. Compares
/// the numbers of calls. Returns the names of each function that was traced.
fn compare(place: &Place, plain: &Path, traced: &Path, arguments: &[&OsStr]) -> Vec<BTreeSet<String>> {
    let file = place.file("callgrind.out");
    let mut callgrind = place.command("valgrind");
    callgrind.args(["--quiet", "--tool=callgrind", "--demangle=no"]);
    callgrind.arg(format!("--callgrind-out-file={}", file.display()));
    let printed = successful(callgrind.arg(plain).args(arguments));
    let expected = calls_by_callgrind(&std::fs::read_to_string(&file).expect("callgrind's file"), plain);
    let mut functions = Vec::new();
    // `count` records nothing.
    for (options, file) in [
        (&["record", "-q", "--ring-size", "256M", "-o"][..], "traced.ect"),
        (&["count", "-o"], "counts.ect"),
        (&["count", "--time", "-o"], "times.ect"),
    ] {
        let mut command = place.command(everycall());
        command.args(options).arg(file).arg("--");
        let its = successful(command.arg(traced).args(arguments));
        assert!(its.starts_with(&printed), "{}: {its}", options[0]);
        let report = successful(place.command(everycall()).args(["report", "-f", "json", file]));
        functions = compare_table(&expected, &report, options[0]);
    }
    functions
}

#[test]
fn calls_of_lua_are_those_that_callgrind_counts() {
    check(Workload::LUA);
}

#[test]
fn calls_of_sqlite_are_those_that_callgrind_counts() {
    check(Workload::SQLITE);
}

#[test]
fn calls_of_threaded_cxx_are_those_that_callgrind_counts() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let place = Place::new(&format!("callgrind-threads-{}", mode.label()));
        let flags = ["-O1", "threaded_counts.cpp", "-pthread"];
        let (plain, traced) = (place.file("plain"), place.build(mode, &flags, "traced"));
        let mut compiler = place.command(mode.cxx);
        compiler.args(["-O1", "-pthread"]).arg(programs().join(flags[1])).arg("-o").arg(&plain);
        successful(&mut compiler);
        let found = compare(&place, &plain, &traced, &[OsStr::new("40")]);
        assert!(found.len() > 40, "{mode:?}: {} functions", found.len());
        for name in ["_ZN7Scratch3sumEj", "_ZN4Pool4workEv", "_ZNK6shapes5Stack4areaEv"] {
            assert!(found.iter().any(|names| names.contains(name)), "{mode:?}: {name}: {found:?}");
        }
    }
}
