//! Functions that are left out of a build: which have calls in the trace, in each mode that can do
//! it.

use everycall_tests::{Mode, Place, everycall};

/// Modes with an assembler step.
const MODES: [Mode; 3] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY];

/// Functions of `left_out.cpp` and how often each is called.
const CALLS: [(&str, u64); 10] = [
    ("shop::add(int, int)", 3),
    ("shop::sum(int)", 2),
    ("shop::order(int)", 1),
    ("shop::doubled<int>(int)", 1),
    ("shop::doubled<double>(double)", 1),
    ("shop::last(int)", 1),
    ("shop::thrower(int)", 2),
    ("shop::catcher(int)", 2),
    ("from_header(int)", 1),
    ("main", 1),
];

/// The recorded functions, by their places in [`CALLS`]: the others have no calls in the trace, and
/// these have all.
fn recorded(place: &Place, mode: Mode, options: &[&str], name: &str) -> (Vec<usize>, String) {
    let arguments = [options, &["-O2", "left_out.cpp"]].concat();
    let program = place.build(mode, &arguments, name);
    let recording = place.record(&[], &program, &[]);
    assert!(recording.output.status.success(), "{mode:?} {options:?}: {recording:?}");
    let trace = recording.trace();
    let tallies = trace.tallies();
    let found = |index: &usize| {
        let (name, calls) = CALLS[*index];
        // Templates are shown with their result.
        let seen: u64 =
            tallies.iter().filter(|(seen, _)| seen.ends_with(name)).map(|(_, tally)| tally.entries).sum();
        assert!(seen == 0 || seen == calls, "{mode:?} {options:?}: {name} has {seen} calls");
        seen > 0
    };
    assert!(trace.threads.iter().all(|thread| thread.orphans == 0), "{mode:?} {options:?}");
    ((0..CALLS.len()).filter(found).collect(), recording.stdout())
}

#[test]
fn every_option_leaves_out_the_same_in_every_mode() {
    let place = Place::new("left-out");
    place.write("list.txt", "# leave out\nshop::*\n+ shop::order\n+ _ZN4shop3sumEi # forced\n- main\n");
    let all: Vec<usize> = (0..CALLS.len()).collect();
    let cases: [(&[&str], &[usize]); 9] = [
        (&[], &all),
        (&["--everycall-not=shop::doubled*"], &[0, 1, 2, 5, 6, 7, 8, 9]),
        (&["--everycall-not=_ZN4shop3addEii"], &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (&["--everycall-not=file:left_out.h"], &[0, 1, 2, 3, 4, 5, 6, 7, 9]),
        (&["--everycall-not=@list.txt"], &[1, 2, 8]),
        (&["--everycall-only=shop::*", "--everycall-not=/doubled|add/"], &[1, 2, 5, 6, 7]),
        (&["--everycall-not=has:loop"], &[0, 2, 3, 4, 5, 6, 7, 8, 9]),
        // `add` has lea and ret, `last` mov and jmp.
        (&["--everycall-not=size:<3"], &[1, 2, 3, 4, 6, 7, 8, 9]),
        (&["--everycall-not=size:<500 & !has:loop"], &[1]),
    ];
    for mode in MODES {
        let mut printed = None;
        for (number, (options, expected)) in cases.iter().enumerate() {
            let name = format!("left-out-{}-{number}", mode.label());
            let (found, output) = recorded(&place, mode, options, &name);
            let mut expected = expected.to_vec();
            if mode.name == "xray" && options.iter().any(|option| option.contains("has:loop")) {
                // clang's handler of `catcher` jumps back to the function's end; gcc moves it to a
                // cold part.
                expected.retain(|index| *index != 7);
                expected.extend(options[0].contains('!').then_some(7));
            }
            assert_eq!(found, expected, "{mode:?} {options:?}");
            assert_eq!(printed.get_or_insert(output.clone()), &output, "{mode:?} {options:?}");
        }
    }
}

#[test]
fn link_time_optimisation_leaves_out_likewise() {
    let place = Place::new("left-out-lto");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY] {
        let options = ["-flto", "--everycall-not=shop::s*"];
        let (found, _) = recorded(&place, mode, &options, &format!("lto-{}", mode.label()));
        assert!(found.contains(&2) && found.contains(&9) && !found.contains(&1), "{mode:?}: {found:?}");
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let place = Place::new("left-out-refused");
    place.write("a.c", "int main(void) { return 0; }\n");
    place.write("bad.txt", "ok\nsize:many\n");
    for (options, compiler, said) in [
        (&["--not", "size:many"][..], "gcc", "size:<20"),
        (&["--not", "@bad.txt"], "gcc", "bad.txt:2"),
        (&["--not", "@no.txt"], "gcc", "no.txt can't be read"),
        (&["--not", "addr:0x10"], "gcc", "unknown while compiling"),
        (&["--only"], "gcc", "needs a pattern"),
        (&["--mode", "finstrument", "--not", "f"], "gcc", "mode finstrument can't leave functions out"),
        (&["--mode", "after-inlining", "--not", "f"], Mode::CLANG19_XRAY.cc, "after-inlining can't"),
    ] {
        let mut command = place.command(everycall());
        let output = command.arg("cc").args(options).args(["--", compiler, "-c", "a.c"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{options:?}: {stderr}");
        assert!(!place.file("a.o").exists(), "{options:?}");
    }
}
