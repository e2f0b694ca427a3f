//! Libraries that go, and others that come in their places: every call has the name of the right
//! function of the right library.

use std::fs;
use std::path::Path;

use everycall_format::arena::counter;
use everycall_tests::{Call, Mode, Place, TraceView, everycall, is_full, successful};

const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];

/// A library whose `use` calls `NAME`, with nothing else in it.
fn library(place: &Place, mode: Mode, name: &str, options: &[&str], file: &str) -> std::path::PathBuf {
    let text = format!(
        "__attribute__((noinline)) int {name}(int v) {{ __asm__ volatile(\"\" : \"+r\"(v)); return v; }}\n\
         int use(int v) {{ return {name}(v) + 1; }}\n"
    );
    let source = place.write(&format!("{name}.c"), &text);
    let arguments = [&["-O1", "-shared", "-fPIC", source.to_str().unwrap()], options].concat();
    place.build(mode, &arguments, file)
}

fn main_calls(trace: &TraceView) -> &[Call] {
    let main = &trace.main().calls;
    assert_eq!(main.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["main"], "one call of main");
    &main[0].inside
}

fn program(place: &Place, mode: Mode) -> std::path::PathBuf {
    place.build(mode, &["-O1", "unloading.c", "-ldl"], &format!("unloading-{}", mode.label()))
}

/// Two libraries of the same size at the same addresses, again and again: 10,000 times with
/// `EVERYCALL_FULL=1`.
#[test]
fn libraries_take_turns_at_one_address() {
    let place = Place::new("turns");
    let turns = if is_full() { 10_000 } else { 500 };
    for mode in MODES {
        for build_id in [true, false] {
            let options: &[&str] = if build_id { &["-Wl,--build-id"] } else { &["-Wl,--build-id=none"] };
            // Without build ids, a library that is loaded again can't be recognized: each time it
            // is another module.
            let turns = if build_id { turns } else { 50 };
            let names = ["alpha", "gamma"];
            let file = |name: &str| format!("{name}-{build_id}-{}.so", mode.label());
            let paths = names.map(|name| library(&place, mode, name, options, &file(name)));
            let program = program(&place, mode);
            let count = turns.to_string();
            let [first, second] = [0, 1].map(|which: usize| paths[which].to_str().unwrap());
            let recording =
                place.record(&["--ring-size", "64M"], &program, &["turns", &count, first, second]);
            assert_eq!(recording.stdout(), format!("{}\n", 4 * turns), "{mode:?}: {recording:?}");
            let trace = recording.trace();
            let calls = main_calls(&trace);
            assert_eq!(calls.len(), 2 * turns, "{mode:?}");
            for (number, call) in calls.iter().enumerate() {
                let expected = format!("turn(use({}))", names[number % 2]);
                assert_eq!(call.text(), expected, "{mode:?} turn {number}, with build ids: {build_id}");
            }
            assert_eq!((trace.losses(), trace.warnings.len()), (0, 0), "{mode:?}: {:?}", trace.warnings);
            assert_eq!(trace.counters[counter::MODULE_ENTRIES_REUSED], 0);
            let text = successful(place.command(everycall()).arg("replay").arg(&recording.file));
            for name in names {
                for what in ["loaded", "unloaded"] {
                    let line = format!(" {what} {}", file(name));
                    let found = text.lines().filter(|at| at.contains(&line)).count();
                    assert_eq!(found, turns, "{mode:?}: {line}");
                }
            }
        }
    }
}

/// Another library under the same path, with other functions at the same offsets.
#[test]
fn a_library_is_replaced_under_its_path() {
    let place = Place::new("replaced");
    for mode in MODES {
        let file = format!("same-{}.so", mode.label());
        let old = library(&place, mode, "older", &[], "old.so");
        let new = library(&place, mode, "newer", &[], "new.so");
        let path = place.file(&file);
        fs::copy(&old, &path).unwrap();
        // A library whose call replaces the other.
        let text =
            format!("#include <stdio.h>\nint use(int v) {{ return rename({new:?}, {path:?}) + v; }}\n");
        let source = place.write("renames.c", &text);
        let renames = place.build(mode, &["-O1", "-shared", "-fPIC", source.to_str().unwrap()], "renames.so");
        let program = program(&place, mode);
        let same = path.to_str().unwrap();
        let arguments = ["turns", "1", same, renames.to_str().unwrap(), same];
        let recording = place.record(&[], &program, &arguments);
        assert_eq!(recording.stdout(), "5\n", "{mode:?}: {recording:?}");
        // The old file is no longer at its path: the trace contains it.
        let text = successful(place.command(everycall()).arg("replay").arg(&recording.file));
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2))
            .filter(|name| ["use", "older", "newer"].contains(name))
            .collect();
        assert_eq!(names, ["use", "older", "use", "use", "newer"], "{mode:?}: {text}");
    }
}

/// In a namespace of its own, and with its own symbols first.
#[test]
fn namespaces() {
    let place = Place::new("namespaces");
    for mode in Mode::in_turn(0) {
        // The C library comes along: through it the library finds the runtime.
        let text = "#include <stdlib.h>\n\
            __attribute__((noinline)) int alpha(int v) { return v + atoi(\"1\"); }\n\
            int use(int v) { return alpha(v) + 1; }\n";
        let source = place.write("namespaces.c", text);
        let arguments = ["-O1", "-shared", "-fPIC", source.to_str().unwrap()];
        let library = place.build(mode, &arguments, &format!("spaces-{}.so", mode.label()));
        let recording = place.record(&[], &program(&place, mode), &["spaces", library.to_str().unwrap()]);
        assert_eq!(recording.stdout(), "6\n", "{mode:?}: {recording:?}");
        let trace = recording.trace();
        let texts: Vec<String> = main_calls(&trace).iter().map(Call::text).collect();
        assert_eq!(texts, ["space(use(alpha))", "space(use(alpha))"], "{mode:?}");
    }
}

/// Libraries so large that the code space is used up: ranges are reused, and calls have the names
/// of their time.
#[test]
fn more_code_than_the_space_holds() {
    let place = Place::new("space");
    let mode = Mode::GCC_NOPS;
    let names = ["alpha", "gamma"];
    let paths = names.map(|name| {
        let text = format!(
            "char room[150 << 20];\n\
             __attribute__((noinline)) int {name}(int v) {{ __asm__ volatile(\"\" : \"+r\"(v)); return v; }}\n\
             int use(int v) {{ return {name}(v) + 1; }}\n"
        );
        let source = place.write(&format!("{name}.c"), &text);
        let options = ["-O1", "-shared", "-fPIC", "-Wl,--build-id=none", source.to_str().unwrap()];
        place.build(mode, &options, &format!("{name}.so"))
    });
    let [first, second] = [0, 1].map(|which: usize| paths[which].to_str().unwrap());
    let recording = place.record(&[], &program(&place, mode), &["turns", "40", first, second]);
    assert_eq!(recording.stdout(), "160\n", "{recording:?}");
    let trace = recording.trace();
    for (number, call) in main_calls(&trace).iter().enumerate() {
        assert_eq!(call.text(), format!("turn(use({}))", names[number % 2]), "turn {number}");
    }
    assert!(trace.counters[counter::MODULE_ENTRIES_REUSED] >= 60);
    assert_eq!(trace.counters[counter::MODULES_WITHOUT_PLACE], 0);
}

/// Copies of a library whose only function has the copy's number in its name.
fn numbered(place: &Place, mode: Mode, folder: &Path, count: usize) {
    let text = "__attribute__((noinline)) static int work_0000(int v) { __asm__ volatile(\"\" : \"+r\"(v)); return v; }\n\
        __attribute__((constructor)) static void begin(void) { work_0000(1); }\n";
    let source = place.write("numbered.c", text);
    let options = ["-O1", "-g0", "-shared", "-fPIC", "-Wl,--build-id=none", source.to_str().unwrap()];
    let bytes = fs::read(place.build(mode, &options, "numbered.so")).unwrap();
    let places: Vec<usize> =
        bytes.windows(9).enumerate().filter(|(_, at)| *at == b"work_0000").map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    fs::create_dir_all(folder).unwrap();
    for number in 0..count {
        let mut copy = bytes.clone();
        for place in &places {
            copy[place + 5..place + 9].copy_from_slice(format!("{number:04}").as_bytes());
        }
        fs::write(folder.join(format!("{number:04}.so")), copy).unwrap();
    }
}

/// More libraries than the module table has entries.
#[test]
fn more_libraries_than_the_table_holds() {
    let place = Place::new("table");
    let mode = Mode::GCC_NOPS;
    let (folder, count) = (place.file("libraries"), 4200);
    numbered(&place, mode, &folder, count);
    let program = program(&place, mode);
    let arguments = |what: &'static str| [what, folder.to_str().unwrap(), "4200"];

    // One after the other: entries are given on, and the recorder has seen whose they were.
    let recording = place.record(&["--ring-size", "16M"], &program, &arguments("each"));
    assert!(recording.output.status.success(), "{recording:?}");
    let trace = recording.trace();
    for (number, call) in main_calls(&trace).iter().enumerate() {
        assert_eq!(call.text(), format!("turn(begin(work_{number:04}))"));
    }
    assert_eq!(main_calls(&trace).len(), count);
    assert!(trace.counters[counter::MODULE_ENTRIES_REUSED] >= 104);

    if !is_full() {
        return; // The dynamic linker takes minutes for what follows.
    }
    // All at once: modules without an entry are counted, and their calls are recorded, nested and
    // without a name.
    let recording = place.record(&["--ring-size", "16M"], &program, &arguments("hold"));
    assert!(recording.output.status.success(), "{recording:?}");
    let trace = recording.trace();
    let missing = trace.counters[counter::MODULES_WITHOUT_PLACE] as usize;
    assert!(missing >= count - 4096, "{missing}");
    let calls = main_calls(&trace);
    assert_eq!(calls.len(), count);
    for (number, call) in calls.iter().enumerate() {
        let [inside] = &call.inside[..] else { panic!("{number}: {}", call.text()) };
        if number < count - missing {
            assert_eq!(call.text(), format!("begin(work_{number:04})"));
        } else {
            assert!(!call.name.contains("begin") && !inside.name.contains("work"), "{}", call.text());
        }
    }
}
