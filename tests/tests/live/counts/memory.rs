//! `everycall count --memory`: what each function has allocated and freed, as the program itself
//! knows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Mode, Place, Standing, everycall, successful};
use serde_json::Value;

use super::split;

/// The numbers of a function in the order in which the program prints them, behind its calls.
const NUMBERS: [&str; 8] = [
    "own_allocated_bytes",
    "own_allocated_blocks",
    "own_freed_bytes",
    "own_freed_blocks",
    "allocated_bytes",
    "allocated_blocks",
    "freed_bytes",
    "freed_blocks",
];
/// Functions that know what they have allocated.
const FUNCTIONS: usize = 8;

/// Calls and the numbers above, by function.
type Numbers = BTreeMap<String, Vec<u64>>;

/// The program's own counts.
fn own(printed: &str) -> Numbers {
    let line = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let numbers = rest.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        (name.starts_with('f') && numbers.len() == 1 + NUMBERS.len()).then(|| (name.to_owned(), numbers))
    };
    printed.lines().filter_map(line).collect()
}

fn rows(json: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    table["rows"].as_array().expect("rows").clone()
}

/// A table's numbers of these functions.
fn counted(json: &str) -> Numbers {
    let numbers = |row: &Value| {
        let name = row["symbols"][0].as_str().filter(|name| name.starts_with('f') && name.len() == 2)?;
        let all = ["calls"].into_iter().chain(NUMBERS).map(|name| row[name].as_u64().expect("a number"));
        Some((name.to_owned(), all.collect()))
    };
    rows(json).iter().filter_map(numbers).collect()
}

/// A number of all rows together.
fn sum(json: &str, name: &str) -> u64 {
    rows(json).iter().map(|row| row[name].as_u64().unwrap_or(0)).sum()
}

fn built(name: &str, mode: Mode) -> (Place, PathBuf) {
    let place = Place::new(&format!("memory-{name}-{}", mode.label()));
    let program = place.build(mode, &["-O1", "allocating.cpp", "-pthread"], "allocating");
    (place, program)
}

fn report(place: &Place, arguments: &[&str]) -> String {
    successful(place.command(everycall()).args(["report", "-f", "json"]).args(arguments))
}

#[test]
fn memory_is_the_programs_own_in_every_mode() {
    for (mode, seed) in Mode::in_turn(0).zip(1..) {
        let (place, program) = built("modes", mode);
        let mut command = place.command(everycall());
        command.args(["count", "--memory", "-f", "json", "-o", "memory.ect", "--"]).arg(&program);
        let output = command.args([&seed.to_string(), "5000"]).output().expect("it starts");
        assert!(output.status.success(), "{mode:?}: {output:?}");
        let (printed, json) = split(&output);
        let expected = own(&printed);
        assert!(expected.len() == FUNCTIONS && expected["f4"][2] > 100, "{printed}");
        assert_eq!(counted(&json), expected, "{mode:?}, seed {seed}");
        assert_eq!(counted(&report(&place, &["memory.ect"])), expected, "{mode:?}");
        // All threads together have allocated what all functions have.
        for by in ["thread", "process", "module"] {
            let by_others = report(&place, &["--by", by, "memory.ect"]);
            for name in &NUMBERS[..4] {
                assert_eq!(sum(&by_others, name), sum(&json, name), "{mode:?} by {by}: {name}");
            }
        }
        // Two runs together, and one compared with itself.
        successful(place.command(everycall()).args(["merge", "-o", "twice", "memory.ect", "memory.ect"]));
        let twice = counted(&report(&place, &["twice"]));
        assert!(
            twice.iter().all(|(name, all)| all.iter().zip(&expected[name]).all(|(two, one)| *two == 2 * one))
        );
        let diff = ["report", "--sort", "own-allocated", "--diff", "memory.ect", "memory.ect"];
        let diff = successful(place.command(everycall()).args(diff));
        assert!(diff.contains("own-allocated/run") && diff.contains("same"), "{diff}");
        // The table is about memory, unless it is sorted by a time.
        let mut table = place.command(everycall());
        let shown = successful(table.args(["report", "memory.ect"]));
        assert!(shown.contains("own-allocated") && !shown.contains("p99"), "{shown}");
        let mut table = place.command(everycall());
        let shown = successful(table.args(["report", "--sort", "own", "memory.ect"]));
        assert!(!shown.contains("own-allocated") && shown.contains("p99"), "{shown}");
    }
}

/// While it runs, and when it is killed: by the recorder's memory and by its crash file.
#[test]
fn memory_is_read_while_the_program_runs_and_when_it_is_killed() {
    let (place, program) = built("live", Mode::GCC_NOPS);
    let mut command = place.command(everycall());
    command.args(["count", "--memory", "-o", "killed.ect", "--"]).arg(&program).args(["50", "5000", "kill"]);
    let expected = own(&split(&command.output().expect("it starts")).0);
    assert_eq!((counted(&report(&place, &["killed.ect"])), expected.len()), (expected, FUNCTIONS));

    let crashes = place.file("crashes");
    std::fs::create_dir(&crashes).expect("a folder");
    let mut command = place.command(&program);
    command.env("EVERYCALL_COUNT", "memory").env("EVERYCALL_CRASH", &crashes).env("LD_PRELOAD", library());
    let standing = Standing::start(command.args(["51", "5000", "wait"]));
    let pid = standing.pid.to_string();
    let live = successful(place.command(everycall()).args(["count", "--memory", "-f", "json", &pid]));
    let expected = counted(&live);
    assert_eq!(expected.len(), FUNCTIONS);
    // main is open, and has a total.
    let main = rows(&live).into_iter().find(|row| row["name"] == "main").expect("main");
    assert!(main["timed_calls"] == 0 && main["allocated_blocks"].as_u64().is_some_and(|blocks| blocks > 0));
    successful(Command::new("kill").args(["-9", &pid]));
    drop(standing);
    let file = std::fs::read_dir(&crashes).expect("a folder").next().expect("a file").expect("a file").path();
    successful(place.command(everycall()).args(["core", "-q", "-o", "crash.ect"]).arg(file));
    assert_eq!(counted(&report(&place, &["crash.ect"])), expected);
}

/// The library that sees allocations, where `count` has unpacked it.
fn library() -> PathBuf {
    let maps = successful(Command::new(everycall()).args([
        "count",
        "--memory",
        "--launcher",
        "--",
        "cat",
        "/proc/self/maps",
    ]));
    let path = maps.lines().filter_map(|line| line.split_whitespace().last());
    path.into_iter().find(|path| path.ends_with("libeverycall-memory.so")).expect("it is loaded").into()
}

/// An allocator in a library of its own, which has counted itself, in bytes as they were asked for.
#[test]
fn memory_of_the_process_is_the_allocators_own() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let place = Place::new(&format!("memory-allocator-{}", mode.label()));
        let source = everycall_tests::programs().join("exact_allocator.c");
        let allocator = place.file("libexact.so");
        let mut compiler = place.command("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-fno-builtin", "-o"]).arg(&allocator).arg(&source);
        successful(&mut compiler);
        let library = allocator.to_str().expect("text");
        let program = place.build(mode, &["-O1", "allocating.cpp", "-pthread", library], "allocating");
        let output = count(&place, &program, &["60", "5000", "library"]);
        let (printed, json) = split(&output);
        let line = printed.lines().find_map(|line| line.strip_prefix("allocator ")).expect("its line");
        let expected: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let found: Vec<u64> = NUMBERS[..4].iter().map(|name| sum(&json, name)).collect();
        assert_eq!((found, counted(&json)), (expected, own(&printed)), "{mode:?}");
        assert!(output.stderr.starts_with(b"everycall: allocated: "), "{output:?}");
    }
    // One that allocates to say how large a block is: this block is its own.
    let place = Place::new("memory-asking-allocator");
    let allocator = place.file("libasking.so");
    let mut compiler = place.command("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-fno-builtin", "-DASKING", "-o"]).arg(&allocator);
    successful(compiler.arg(everycall_tests::programs().join("exact_allocator.c")));
    let library = allocator.to_str().expect("text");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "allocating.cpp", "-pthread", library], "allocating");
    let (printed, json) = split(&count(&place, &program, &["60", "5000", "library"]));
    let line = printed.lines().find_map(|line| line.strip_prefix("allocator ")).expect("its line");
    let blocks: u64 = line.split(' ').nth(1).expect("a number").parse().expect("a number");
    assert_eq!((sum(&json, NUMBERS[1]) + 1, counted(&json)), (blocks, own(&printed)));
    // tcmalloc is one of these.
    let tcmalloc = &["-O1", "allocating.cpp", "-pthread", "-ltcmalloc_minimal"];
    let program = place.build(Mode::GCC_NOPS, tcmalloc, "with_tcmalloc");
    let (printed, json) = split(&count(&place, &program, &["60", "5000"]));
    assert_eq!(counted(&json), own(&printed));
    // One that is in the program itself can't be seen.
    let place = Place::new("memory-own-allocator");
    let source = everycall_tests::programs().join("exact_allocator.c");
    let object = place.file("exact.o");
    let mut compiler = place.command("cc");
    successful(compiler.args(["-O1", "-c", "-fno-builtin", "-o"]).arg(&object).arg(&source));
    let object = object.to_str().expect("text");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "allocating.cpp", "-pthread", object], "allocating");
    let output = count(&place, &program, &["61", "500"]);
    let (printed, json) = split(&output);
    assert_eq!((own(&printed).len(), sum(&json, "own_allocated_blocks")), (FUNCTIONS, 0));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a malloc of the program's own"), "{said}");
}

fn count(place: &Place, program: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = place.command(everycall());
    command.args(["count", "--memory", "-f", "json", "--"]).arg(program).args(arguments);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn where_memory_cannot_be_counted_it_is_said() {
    let place = Place::new("memory-refused");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-static", "allocating.cpp", "-pthread"], "static");
    let mut command = place.command(everycall());
    let output = command.args(["count", "--memory", "--"]).arg(program).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--memory") && said.contains("-static"), "{said}");
    // One that runs without the library, and one that only counts.
    let program = place.build(Mode::GCC_NOPS, &["-O1", "allocating.cpp", "-pthread"], "allocating");
    for (what, expected) in [("memory", "was not seen"), ("time", "everycall count --memory -- PROGRAM")] {
        let mut command = place.command(&program);
        let standing = Standing::start(command.env("EVERYCALL_COUNT", what).args(["1", "10", "wait"]));
        let mut command = place.command(everycall());
        let output =
            command.args(["count", "--memory", &standing.pid.to_string()]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
        let _ = standing.end();
    }
}
