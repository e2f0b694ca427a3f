//! CPython's own tests pass while they are recorded as they do untraced: with `EVERYCALL_FULL`, in
//! each Python that has its test suite. So do those of an interpreter whose functions all get hooks
//! when it starts, and of one into which hooks come, and from which they go, again and again: with
//! `EVERYCALL_SUITE_PARTS`, by `cargo xtask untouched`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use everycall_tests::python::{Python, interpreters};
use everycall_tests::{Place, everycall, is_full, number_asked};

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

/// Parts of it for an interpreter with hooks: signals, threads, processes, libraries, crashes.
const INTERPRETER_PARTS: [&str; 20] = [
    "test_exceptions",
    "test_signal",
    "test_subprocess",
    "test_faulthandler",
    "test_ctypes",
    "test_threading",
    "test_fork1",
    "test_generators",
    "test_json",
    "test_sqlite3",
    "test_capi",
    "test_os",
    "test_mmap",
    "test_gc",
    "test_sys",
    "test_zlib",
    "test_re",
    "test_dict",
    "test_sort",
    "test_decimal",
];

/// Each test of a part, and whether it has failed; and the status of the whole.
type Results = (Option<i32>, BTreeMap<String, bool>);

fn results(python: &Python, part: &str, is_traced: bool) -> Results {
    let traced = ["-m", "everycall", "-q", "-o", "t.ect", "--ring-size", "256K", "--"];
    let mut arguments = if is_traced { traced.to_vec() } else { Vec::new() };
    arguments.extend(["-m", "test", "-v", "--junit-xml", "results.xml", part]);
    results_of(&python.place, python.command(&arguments))
}

/// Runs a command that leaves them in `results.xml`.
fn results_of(place: &Place, command: Command) -> Results {
    results_beside(place, command, |_| {})
}

/// Runs a command that leaves them in `results.xml`. `beside` is done meanwhile.
fn results_beside(place: &Place, mut command: Command, beside: impl FnOnce(&mut Child)) -> Results {
    let results = place.file("results.xml");
    let _ = fs::remove_file(&results);
    let printed = || File::create(place.file("printed")).unwrap();
    command.stdin(Stdio::null()).stdout(printed()).stderr(printed());
    let mut child = command.spawn().unwrap();
    beside(&mut child);
    let status = child.wait().unwrap();
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

#[test]
fn cpythons_own_tests_pass_with_hooks_in_the_interpreter() {
    let parts = number_asked("EVERYCALL_SUITE_PARTS").unwrap_or(0) as usize;
    if parts == 0 {
        println!("skipped: takes half a minute for each part; `cargo xtask untouched` runs it");
        return;
    }
    for interpreter in interpreters() {
        let place = Place::new("suite");
        let tests = |part: &str| ["-m", "test", "-v", "--junit-xml", "results.xml", part].map(str::to_owned);
        for part in INTERPRETER_PARTS.into_iter().take(parts) {
            let mut plain = place.command(&interpreter);
            plain.args(tests(part));
            let plain = results_of(&place, plain);
            if plain.1.is_empty() {
                println!("skipped: {} has no {part}", interpreter.display());
                continue;
            }
            let mut hooked = place.command(everycall());
            hooked.args(["record", "-q", "--untouched", "--all", "--modules", "*lib-dynload*", "--force"]);
            hooked.args(["--ring-size", "256K", "-o", "t.ect", "--"]).arg(&interpreter).args(tests(part));
            let hooked = results_of(&place, hooked);
            assert_eq!(hooked, plain, "{part}, {}", interpreter.display());
            println!("{part}, {}: {} tests", interpreter.display(), hooked.1.len());
        }
    }
}

/// A process that has just ended, or only computes, can't be attached; all others can.
#[test]
fn cpythons_own_tests_pass_while_hooks_come_and_go() {
    let parts = number_asked("EVERYCALL_SUITE_PARTS").unwrap_or(0) as usize;
    if parts == 0 {
        println!("skipped: takes half a minute for each part; `cargo xtask untouched` runs it");
        return;
    }
    for interpreter in interpreters() {
        let place = Place::new("suite");
        let tests = |part: &str| {
            let mut command = place.command(&interpreter);
            command.args(["-m", "test", "-v", "--junit-xml", "results.xml", part]);
            command
        };
        let mut all = 0;
        for part in INTERPRETER_PARTS.into_iter().take(parts) {
            let plain = results_of(&place, tests(part));
            if plain.1.is_empty() {
                println!("skipped: {} has no {part}", interpreter.display());
                continue;
            }
            let mut attached = 0;
            let hooked = results_beside(&place, tests(part), |child| {
                let pid = child.id().to_string();
                let run = |words: &[&str]| {
                    let output = place.command(everycall()).args(words).arg(&pid).output();
                    output.is_ok_and(|output| output.status.success())
                };
                while child.try_wait().unwrap().is_none() {
                    if run(&["attach", "--all", "--modules", "*lib-dynload*,libpython*"]) {
                        attached += 1;
                        sleep(Duration::from_millis(300));
                        run(&["detach"]);
                    }
                    sleep(Duration::from_millis(100));
                }
            });
            assert_eq!(hooked, plain, "{part}, {}, attached {attached} times", interpreter.display());
            println!(
                "{part}, {}: {} tests, attached {attached} times",
                interpreter.display(),
                hooked.1.len()
            );
            all += attached;
        }
        assert!(all > 0, "{} was never attached", interpreter.display());
    }
}
