//! `everycall.h`: the labels, spans and requests of programs are in the trace, in every mode, in C
//! and C++; without everycall they have no effect.

use std::path::PathBuf;

use everycall_tests::selections::file_with_only;
use everycall_tests::{Mode, Place, Recording, everycall, programs, successful};

fn include() -> String {
    format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include"))
}

fn is_fine(recording: &Recording, what: &str) {
    assert!(recording.output.status.success(), "{what}: {recording:?}");
    assert_eq!(recording.stdout(), "there\n", "{what}");
}

/// The program in C and in C++.
fn built(place: &Place, mode: Mode) -> [PathBuf; 2] {
    let text = std::fs::read_to_string(programs().join("marks.c")).unwrap();
    place.write("marks.cpp", &text);
    ["marks.c", "marks.cpp"].map(|source| {
        let name = format!("{}-{source}", mode.label()).replace('.', "-");
        place.build(mode, &["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-pthread"], &name)
    })
}

fn replay(place: &Place, recording: &Recording) -> String {
    successful(place.command(everycall()).arg("replay").arg(&recording.file))
}

#[test]
fn marks_and_gaps_are_on_the_timeline_in_every_mode() {
    let place = Place::new("marks");
    for mode in Mode::in_turn(0) {
        for program in built(&place, mode) {
            let what = program.display().to_string();
            let recording = place.record(&[], &program, &[]);
            is_fine(&recording, &what);
            let trace = recording.trace();
            assert_eq!(trace.losses(), 0, "{what}");
            let calls = |name: &str| {
                let is_it = |known: &&String| *known == name || known.starts_with(&format!("{name}("));
                trace
                    .tallies()
                    .iter()
                    .filter(|(known, _)| is_it(known))
                    .map(|(_, tally)| tally.entries)
                    .sum::<u64>()
            };
            assert_eq!((calls("request"), calls("excluded"), calls("in_gap")), (3, 0, 0), "{what}");
            let shown = replay(&place, &recording);
            let lines = |text: &str| shown.lines().filter(|line| line.contains(text)).count();
            for (text, count) in [
                ("@ request = 42", 1),
                ("@ request = 100", 1),
                ("@ request = 200", 1),
                ("! half", 3),
                ("[ all", 1),
                ("] all", 1),
                ("[ part = 1", 1),
                ("] part = 1", 1),
                ("@ landed = 1", 1),
                ("not seen", 0),
                ("the program left this thread out", 1),
                ("tracing was disabled", 1),
            ] {
                assert_eq!(lines(text), count, "{what}: {text}\n{shown}");
            }
            // The frame that longjmp unwound ends before the label, which belongs to the function
            // that it jumped to.
            let order: Vec<usize> =
                ["unwound", "@ landed"].iter().map(|text| shown.find(text).unwrap_or_default()).collect();
            assert!(order.is_sorted() && order[0] > 0, "{what}\n{shown}");
        }
    }
}

#[test]
fn rings_grow_and_tracing_goes_off_and_on_while_threads_run() {
    let place = Place::new("toggle");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let [program, _] = built(&place, mode);
        let recording = place.record(&["--ring-size", "64K"], &program, &["sizes"]);
        is_fine(&recording, "sizes");
        assert!(recording.trace().calls("leaf") > 100_000, "{mode:?}: the larger ring holds all of them");

        let recording = place.record(&["--ring-size", "16M"], &program, &["toggle"]);
        is_fine(&recording, "toggle");
        let trace = recording.trace();
        assert_eq!(trace.losses(), 0, "{mode:?}");
        let shown: Vec<_> = trace.warnings.iter().collect();
        assert!(shown.is_empty(), "{mode:?}: {shown:?}");
        assert!(trace.calls("never") >= 40, "{mode:?}: new threads record where tracing is on");
    }
}

#[test]
fn labels_of_threads_and_signal_handlers_are_all_there_in_order() {
    let place = Place::new("label-storm");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT] {
        let name = mode.label().replace('.', "-");
        let program = place.build(mode, &["-O1", "label_storm.c", "-pthread"], &name);
        let recording = place.record(&["--ring-size", "64M"], &program, &[]);
        assert!(recording.output.status.success(), "{recording:?}");
        let trace = recording.trace();
        assert_eq!(trace.losses(), 0, "{mode:?}");
        let shown = replay(&place, &recording);
        let values = |name: &str| -> Vec<u64> {
            let start = format!("@ {name} = ");
            let value = |line: &str| {
                let digits = line.split_once(&start)?.1.split_whitespace().next()?;
                digits.replace(',', "").parse().ok()
            };
            shown.lines().filter_map(value).collect()
        };
        for name in ["a", "four", "seven c", "a name of twenty-five chars"] {
            assert!(values(name).into_iter().eq(0..20_000), "{mode:?}: {name}");
        }
        let handled = values("all handled");
        assert!(handled.len() == 1 && handled[0] > 10, "{mode:?}: {handled:?}");
        assert!(values("handled").into_iter().eq(0..handled[0]), "{mode:?}: labels of signal handlers");
        assert_eq!(trace.calls("leaf"), 4 * 6_667 + handled[0], "{mode:?}");
    }
}

#[test]
fn off_from_the_start_can_be_undone() {
    let place = Place::new("marks-off");
    for mode in Mode::in_turn(1) {
        let [program, _] = built(&place, mode);
        let file = place.file("off.ect");
        let mut command = place.command(everycall());
        command.arg("record").arg("-o").arg(&file).arg("--").arg(&program).arg("off");
        let output = command.env("EVERYCALL_START", "off").output().unwrap();
        let recording = Recording { output, file };
        is_fine(&recording, "off");
        let trace = recording.trace();
        assert_eq!(
            (trace.calls("request"), trace.calls("leaf"), trace.calls("in_gap"), trace.losses()),
            (2, 4, 0, 0),
            "{mode:?}"
        );
        let shown = replay(&place, &recording);
        assert_eq!(shown.matches("tracing was disabled").count(), 1, "{mode:?}\n{shown}");
    }
}

#[test]
fn programs_choose_functions_by_themselves() {
    let place = Place::new("chosen");
    for mode in Mode::in_turn(0) {
        let words = ["-O1", "-Wall", "-Wextra", "-Werror", "chosen.c", "-pthread"];
        let program = place.build(mode, &words, &format!("chosen-{}", mode.label()));
        let selection = file_with_only(&place, &program, &["blue"]);
        let own = place.file("own.ecs");
        std::fs::copy(&selection, &own).unwrap();
        let other = place.build(mode, &["-O1", "selected.c", "-pthread"], "other");
        let other = file_with_only(&place, &other, &["blue"]);
        let files = [&own, &other].map(|file| file.display().to_string());
        let recording = place.record(&[], &program, &[&files[0], &files[1]]);
        assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
        let trace = recording.trace();
        let (text, mut count) = (recording.stdout(), 0);
        for (name, calls) in text.lines().filter_map(|line| line.split_once(' ')) {
            assert_eq!(trace.calls(name).to_string(), calls, "{mode:?}: {name}\n{text}");
            count += 1;
        }
        assert_eq!(count, 3, "{mode:?}: {text}");
    }
    let plain = place.file("chosen-plain");
    let mut compiler = place.command("gcc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&plain).arg(include());
    successful(compiler.arg(programs().join("chosen.c")));
    let output = place.command(&plain).args(["a", "b"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("red goes off: -1, this process is not traced"), "{text}");
}

#[test]
fn without_everycall_all_of_it_is_harmless() {
    let place = Place::new("marks-plain");
    let text = std::fs::read_to_string(programs().join("marks.c")).unwrap();
    place.write("marks.cpp", &text);
    let source = programs().join("marks.c");
    for (line, is_cxx) in [
        ("gcc -std=gnu89", false),
        ("gcc -std=c99 -O2", false),
        ("gcc -static -no-pie", false),
        ("gcc -fPIC -fvisibility=hidden -O1", false),
        ("clang-19 -std=gnu89 -O1", false),
        ("clang-22", false),
        ("g++ -std=c++98 -O1", true),
        ("g++ -std=c++20", true),
        ("clang++-19 -std=c++98", true),
        ("clang++-22 -std=c++23 -O2", true),
    ] {
        let mut words = line.split(' ');
        let mut compiler = place.command(words.next().unwrap());
        compiler
            .args(words)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-o", "plain"])
            .arg(include());
        compiler.arg(if is_cxx { place.file("marks.cpp") } else { source.clone() });
        successful(&mut compiler);
        assert_eq!(successful(&mut place.command(place.file("plain"))), "not there\n", "{line}");
    }
}

/// Steps of tasks are on tracks of their own, in every mode: two calls that wait go on in the next
/// step.
#[test]
fn steps_of_a_task_are_one_track() {
    let place = Place::new("tasks");
    for mode in Mode::in_turn(1) {
        let program = place.build(mode, &["-O1", "-Wall", "-Wextra", "-Werror", "tasks.c"], "tasks");
        let recording = place.record(&[], &program, &[]);
        is_fine(&recording, &mode.label());
        let shown = replay(&place, &recording);
        for (number, name) in [(1, "first"), (2, "second")] {
            let title = format!("== task {number} {name} ");
            let track = shown.split("== ").find(|part| format!("== {part}").starts_with(&title));
            let track = track.unwrap_or_else(|| panic!("{}: {shown}", mode.label()));
            let lines = |text: &str| track.lines().filter(|line| line.contains(text)).count();
            let counts = (lines(" fetching {"), lines(" reading {"), lines(" work  "));
            assert_eq!(counts, (1, 1, 3), "{}: {track}", mode.label());
            assert_eq!(lines("! step "), if number == 2 { 3 } else { 0 }, "{}: {track}", mode.label());
        }
        for what in ["wake", "step"] {
            for step in 1..=3 {
                let line = format!("! {what} second = task 2, step {step}\n");
                assert_eq!(shown.matches(&line).count(), 1, "{}: {line} in {shown}", mode.label());
            }
        }
    }
}

/// Where calls lie is in doubt when frames ended where they hadn't begun: no verb says "complete"
/// then.
#[test]
fn doubtful_nesting_is_never_complete() {
    let place = Place::new("doubtful");
    place.write(
        "doubtful.c",
        r#"#include "everycall.h"
        __attribute__((noinline)) int work(int x) { __asm__ volatile(""); return x + 1; }
        int main(int count, char **words) { (void)words; work(1); if (count > 1) everycall_frames_misplaced(2); return 0; }"#,
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "doubtful.c"], "doubtful");
    for (words, is_complete) in [(&[][..], true), (&["x"], false)] {
        let recording = place.record(&[], &program, words);
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert_eq!(said.contains("  complete:"), is_complete, "{said}");
        assert_eq!(said.contains("the nesting of calls is in doubt"), !is_complete, "{said}");
        let run =
            |verb: &[&str]| place.command(everycall()).args(verb).arg(&recording.file).output().unwrap();
        let info = String::from_utf8_lossy(&run(&["info"]).stdout).into_owned();
        assert_eq!(info.contains("complete    yes: every thread"), is_complete, "{info}");
        assert_eq!(info.contains("complete    no: 2 frames ended"), !is_complete, "{info}");
        let json: serde_json::Value = serde_json::from_slice(&run(&["info", "-f", "json"]).stdout).unwrap();
        assert_eq!(json["complete"], is_complete);
        for verb in ["report", "replay"] {
            let said = String::from_utf8_lossy(&run(&[verb]).stderr).into_owned();
            assert_eq!(
                said.contains("calls are missing or in doubt: 2 frames"),
                !is_complete,
                "{verb}: {said}"
            );
        }
    }
}

/// Stacks that the program switches by itself are found by the stack pointer where each has memory
/// of its own. Within another stack, calls that had been taken for unwound return: that is said.
#[test]
fn unannounced_stacks_are_found_or_said() {
    let place = Place::new("unannounced");
    for mode in [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY] {
        let label = mode.label();
        let program = place.build(mode, &["-O1", "unannounced.c"], &format!("unannounced-{label}"));
        for (words, tracks) in [(&[][..], 5), (&["local"], 1)] {
            let recording = place.record(&[], &program, words);
            assert_eq!(recording.output.stdout, b"480\n", "{label}");
            let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
            let is_found = tracks > 1;
            assert_eq!(said.contains("  complete:"), is_found, "{label}: {said}");
            assert_eq!(said.contains("the nesting of calls is in doubt"), !is_found, "{label}: {said}");
            let trace = recording.trace();
            assert_eq!(trace.threads.len(), tracks, "{label}");
            let orphans: u64 = trace.threads.iter().map(|thread| thread.orphans).sum();
            assert_eq!(orphans == 0, is_found, "{label}: {orphans}");
        }
    }
}

/// Labels of a function that isn't recorded belong to the innermost recorded call around it, or to
/// the thread.
#[test]
fn labels_of_functions_that_are_not_recorded_belong_to_their_callers() {
    let place = Place::new("said");
    place.write(
        "said.c",
        r#"#include "everycall.h"
        #define CALL __attribute__((noinline)) void
        CALL inner(void) { everycall_label("said", 7); __asm__ volatile(""); }
        CALL outer(void) { inner(); __asm__ volatile(""); }
        CALL other(void) { __asm__ volatile(""); }
        int main(void) { outer(); other(); return 0; }"#,
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "said.c"], "said");
    for (options, caller) in [
        (&[][..], Some("inner")),
        (&["--not", "inner"], Some("outer")),
        (&["--not", "inner", "--not", "outer"], Some("main")),
        (&["--only", "main"], Some("main")),
        (&["--only", "other"], None),
    ] {
        let recording = place.record(options, &program, &[]);
        let shown = replay(&place, &recording);
        let mut open = Vec::new();
        let mut said_in = None;
        for line in shown.lines() {
            let words: Vec<&str> = line.split_whitespace().skip(2).collect();
            match words[..] {
                [name, "{"] => open.push(name),
                ["}", ..] => drop(open.pop()),
                ["@", "said", "=", "7", ..] => said_in = Some(open.last().copied()),
                _ => {}
            }
        }
        assert_eq!(said_in, Some(caller), "{options:?}: {shown}");
    }
}
