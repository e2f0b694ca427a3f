//! CPython's own tests pass while they are recorded as they do untraced: with `EVERYCALL_FULL`, in
//! each Python that has its test suite.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Stdio;

use everycall_tests::is_full;
use everycall_tests::python::Python;

/// Parts of Python's test suite: everything that sees frames, leaves them in odd ways, or starts
/// something.
const PARTS: [&str; 15] = [
    "test_sys_settrace",
    "test_sys_setprofile",
    "test_generators",
    "test_coroutines",
    "test_exceptions",
    "test_contextlib",
    "test_threading",
    "test_asyncio.test_tasks",
    "test_asyncio.test_futures",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_runners",
    "test_asyncio.test_events",
    "test_asyncio.test_streams",
    "test_asyncio.test_subprocess",
    "test_multiprocessing_spawn",
];

/// Each test of a part, and whether it has failed; and the status of the whole.
fn results(python: &Python, part: &str, is_traced: bool) -> (Option<i32>, BTreeMap<String, bool>) {
    let results = python.place.file("results.xml");
    let _ = fs::remove_file(&results);
    let traced = ["-m", "everycall", "-q", "-o", "t.ect", "--ring-size", "256K", "--"];
    let mut arguments = if is_traced { traced.to_vec() } else { Vec::new() };
    arguments.extend(["-m", "test", "-v", "--junit-xml", "results.xml", part]);
    let mut command = python.command(&arguments);
    let printed = || File::create(python.place.file("printed")).unwrap();
    command.stdin(Stdio::null()).stdout(printed()).stderr(printed());
    let status = command.status().unwrap();
    let text = fs::read_to_string(&results).unwrap_or_default();
    let test = |case: &str| {
        let name = case.split_once("name=\"")?.1.split_once('"')?.0;
        Some((name.to_owned(), case.contains("<failure") || case.contains("<error")))
    };
    (status.code(), text.split("<testcase ").skip(1).filter_map(test).collect())
}

#[test]
fn cpythons_own_tests_pass_as_they_do_untraced() {
    if !is_full() {
        println!("skipped: takes half an hour for each Python; EVERYCALL_FULL=1 runs it");
        return;
    }
    for python in Python::all() {
        let has_suite =
            "import importlib.util, sys; sys.exit(not importlib.util.find_spec('test.test_generators'))";
        if !python.run(&["-c", has_suite]).status.success() {
            println!("skipped: Python {} has no test suite", python.version());
            continue;
        }
        for part in PARTS {
            let untraced = results(&python, part, false);
            if untraced.1.is_empty() && part == "test_multiprocessing_spawn" {
                println!("skipped: Python {} was installed without {part}", python.version());
                continue;
            }
            assert!(untraced.1.len() > 10, "{part}, {}: {untraced:?}", python.version());
            let traced = results(&python, part, true);
            assert_eq!(traced, untraced, "{part}, {}", python.version());
            println!("{part}, {}: {} tests", python.version(), traced.1.len());
        }
    }
}
