//! Builds with options that change the code around calls, and programs under other tools: the same
//! results as without everycall, no reports by sanitizers, and every call in the trace.
//! `EVERYCALL_FULL=1` takes every option in every mode.

use std::path::Path;
use std::process::Command;

use everycall_tests::{Mode, Place, Recording, Tally, is_full, successful};

/// Calls of [`everycall_tests::programs`]' `builds.cpp`: function, entries, exits.
const CALLS: [(&str, u64, u64); 5] = [
    ("work(int)", 4, 4),
    ("catcher(int)", 2400, 2400),
    ("thrower(int)", 2400, 1600),
    ("leaf(int)", 1600, 1600),
    ("main", 1, 1),
];
const PRINTED: &str = "480800\n";

const OPTIONS: [&[&str]; 17] = [
    &["-O1", "-fsanitize=address"],
    &["-O1", "-fsanitize=undefined"],
    &["-O1", "-fsanitize=thread"],
    &["-O2", "-fcf-protection=full"],
    &["-O2", "-fno-plt"],
    &["-O2", "-fPIE", "-pie", "-ffunction-sections", "-Wl,--gc-sections"],
    &["-O0"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-g", "-gsplit-dwarf"],
    &["-O2", "-static"],
    &["-O2", "-fPIE", "-static-pie"],
    &["-O2", "-no-pie"],
    &["-O2", "-fno-omit-frame-pointer"],
    &["-O2", "-fstack-protector-all"],
    &["-O2", "-fstack-clash-protection"],
    &["-O2", "-march=native"],
];

/// Whether the compiler can do it without us: clang's sanitizers are in a package of their own.
fn is_possible(place: &Place, mode: Mode, options: &[&str]) -> bool {
    let source = place.write("empty.cpp", "int main() {}");
    let mut command = place.command(mode.cxx);
    let output = command.args(options).arg(source).args(["-o", "empty"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn check(recording: &Recording, note: &str) {
    assert!(recording.output.status.success(), "{note}: {recording:?}");
    assert_eq!(recording.stdout(), PRINTED, "{note}: {recording:?}");
    let said = String::from_utf8_lossy(&recording.output.stderr);
    for word in ["Sanitizer", "runtime error", "ERROR", "WARNING"] {
        assert!(!said.contains(word), "{note}: {said}");
    }
    let trace = recording.trace();
    let tallies = trace.tallies();
    for (name, entries, exits) in CALLS {
        assert_eq!(tallies.get(name), Some(&Tally { entries, exits }), "{note}: {name}");
    }
    assert_eq!((trace.losses(), trace.threads.len()), (0, 5), "{note}");
    assert!(trace.threads.iter().all(|thread| thread.orphans == 0), "{note}");
}

#[test]
fn every_option_in_every_mode() {
    let place = Place::new("builds");
    for (place_of_mode, mode) in Mode::ALL.into_iter().enumerate() {
        for (number, options) in OPTIONS.iter().enumerate() {
            // Each option in one mode at least, each mode with some.
            let is_chosen = number % Mode::ALL.len() == place_of_mode || number < 3 && mode == Mode::GCC_NOPS;
            if !(is_full() || is_chosen) || !is_possible(&place, mode, options) {
                continue;
            }
            let arguments = [*options, &["builds.cpp", "-pthread"]].concat();
            let program = place.build(mode, &arguments, "builds");
            let recording = place.record(&["--ring-size", "4M"], &program, &[]);
            check(&recording, &format!("{mode:?} {options:?}"));
        }
    }
}

/// Objects of two compilers and four modes, whose functions call each other and throw through each
/// other.
#[test]
fn objects_of_both_compilers_in_one_program() {
    let place = Place::new("both");
    let modes = [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT];
    let text = std::fs::read_to_string(everycall_tests::programs().join("builds.cpp")).unwrap();
    // One function an object: the others are declared.
    let functions = ["int leaf(int v)", "int thrower(int v)", "int catcher(int v)", "void work(int count)"];
    let mut objects = Vec::new();
    for (number, (function, mode)) in functions.into_iter().zip(modes).enumerate() {
        let mut part = text
            .replace("static std::mutex lock;", "extern std::mutex lock;")
            .replace("static long total;", "extern long total;");
        part.truncate(part.find("int main()").unwrap());
        for other in functions.into_iter().filter(|other| *other != function) {
            let begin = part.find(&format!("{other} {{")).unwrap();
            let end = begin + part[begin..].find("\n}\n").unwrap() + 2;
            part.replace_range(begin..end, &format!("{other};"));
        }
        let source = place.write(&format!("part-{number}.cpp"), &part);
        let arguments = ["-O1", "-fPIE", "-c", source.to_str().unwrap()];
        objects.push(place.build(mode, &arguments, &format!("part-{number}.o")));
    }
    let mut main = text
        .replace("static std::mutex lock;", "std::mutex lock;")
        .replace("static long total;", "long total;");
    for function in functions {
        let begin = main.find(&format!("{function} {{")).unwrap();
        let end = begin + main[begin..].find("\n}\n").unwrap() + 2;
        main.replace_range(begin..end, &format!("{function};"));
    }
    let source = place.write("main.cpp", &main);
    let objects: Vec<&str> = objects.iter().map(|path| path.to_str().unwrap()).collect();
    let arguments = [&["-O1", source.to_str().unwrap()], &objects[..], &["-pthread"]].concat();
    let program = place.build(Mode::GCC_NOPS, &arguments, "both");
    check(&place.record(&["--ring-size", "4M"], &program, &[]), "both compilers");
}

/// A stripped program has the same calls, under other names.
#[test]
fn stripped() {
    let place = Place::new("stripped");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT] {
        let program = place.build(mode, &["-O2", "-s", "builds.cpp", "-pthread"], "builds");
        let whole = place.build(mode, &["-O2", "builds.cpp", "-pthread"], "whole");
        let calls = |program: &Path| {
            let recording = place.record(&["--ring-size", "4M"], program, &[]);
            assert_eq!(recording.stdout(), PRINTED, "{mode:?}: {recording:?}");
            // Clones share a name where there are names.
            recording.tallies().tallies().values().map(|tally| tally.entries).sum::<u64>()
        };
        assert_eq!(calls(&program), calls(&whole), "{mode:?}");
    }
}

/// Under gdb, valgrind, strace and perf the program behaves as without everycall, and is traced.
/// (perf may not be allowed to count everywhere.)
#[test]
fn under_other_tools() {
    let place = Place::new("tools");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "builds.cpp", "-pthread"], "builds");
    let program = program.to_str().unwrap();
    let perf = ["perf", "record", "-q", "-e", "cpu-clock", "-g", "-o", "/dev/null"];
    let may_count = Command::new("perf").args(&perf[1..]).arg("true").output().unwrap().status.success();
    if !may_count {
        eprintln!("not run under perf: it may not count here");
    }
    let under_perf = [&perf[..], &[program]].concat();
    let tools: [&[&str]; 3] = [
        &["valgrind", "-q", "--error-exitcode=9", program],
        &["strace", "-f", "-o", "/dev/null", program],
        &["gdb", "-q", "-batch", "-ex", "run", "--args", program],
    ];
    for tool in tools.into_iter().chain(may_count.then_some(&under_perf[..])) {
        let plain = Command::new(tool[0]).args(&tool[1..]).output().unwrap();
        assert!(String::from_utf8_lossy(&plain.stdout).contains(PRINTED), "{tool:?}: {plain:?}");
        assert!(plain.status.success(), "{tool:?}: {plain:?}");
        let recording = place.record(&["--ring-size", "4M"], Path::new(tool[0]), &tool[1..]);
        assert!(recording.stdout().contains(PRINTED), "{tool:?}: {recording:?}");
        assert!(recording.output.status.success(), "{tool:?}: {recording:?}");
        let tallies = recording.trace().tallies();
        for (name, entries, exits) in CALLS {
            assert_eq!(tallies.get(name), Some(&Tally { entries, exits }), "{tool:?}: {name}");
        }
    }
}

/// How far stacks go isn't found out by anything that valgrind complains about.
#[test]
fn deep_stacks_under_valgrind() {
    let place = Place::new("deep-stacks");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "deep_stacks.c", "-pthread"], "deep_stacks");
    let valgrind = ["-q", "--error-exitcode=9", program.to_str().unwrap()];
    let output = Command::new("valgrind").args(valgrind).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "main 5000\nthread 5000\nfiber 100\n");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let recording = place.record(&[], Path::new("valgrind"), &valgrind);
    assert!(recording.output.status.success(), "{recording:?}");
    assert_eq!(recording.trace().calls("deep"), 2 * 5001 + 101);
}

/// The shared objects that a file needs, by `readelf`.
fn needed(file: &Path) -> Vec<String> {
    let said = successful(Command::new("readelf").arg("-dW").arg(file));
    let mut needed: Vec<String> =
        said.lines().filter(|line| line.contains("(NEEDED)")).map(str::to_owned).collect();
    needed.sort();
    needed
}

/// C's cleanups are wrapped only if there are some: other programs in C don't need the unwinder's
/// library.
#[test]
fn programs_in_c_need_the_libraries_that_they_need_without_us() {
    let place = Place::new("needed");
    let plain = place.file("plain");
    // (gcc's finstrument calls exit hooks in cleanups, so it has some everywhere.)
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY] {
        for source in ["../trees/jumps.c", "../trees/cleanups.c"] {
            let lld = if mode.cc == "gcc" { &[][..] } else { &["-fuse-ld=lld"] };
            let split = if mode.cc == "gcc" { &["-fsplit-stack"][..] } else { &[] };
            for more in [&[][..], &["-shared", "-fPIC", "-Wl,-z,defs"], &["-flto"], &["-static"], lld, split]
            {
                // The prefix refuses this pair.
                let is_refused = mode.name == "xray" && more.contains(&"-flto");
                let mode = if is_refused { Mode::CLANG19_AFTER_INLINING } else { mode };
                let options = [&["-O2", "-pthread", "-fexceptions"], more, &[source]].concat();
                let traced = place.build(mode, &options, "traced");
                successful(
                    Command::new(mode.cc)
                        .args(&options)
                        .arg("-o")
                        .arg(&plain)
                        .current_dir(everycall_tests::programs()),
                );
                assert_eq!(needed(&traced), needed(&plain), "{mode:?} {options:?}");
                if !more.contains(&"-shared") {
                    successful(&mut Command::new(&traced));
                }
            }
        }
    }
}
