//! Programs made by chance: exceptions go through functions and destructors, inlined and not.
//! `EVERYCALL_PROGRAMS` says how many of them are built with each compiler and mode,
//! `EVERYCALL_SEED` which one is the first.

use std::collections::HashSet;
use std::process::Command;

use everycall_tests::generated::{Program, source};
use everycall_tests::{Mode, Place, all, number_asked, successful, unsure};

/// Programs in one source.
const AT_ONCE: u64 = 12;
/// Programs by default.
const PROGRAMS: u64 = 24;

/// The first calls that differ, in the order of time, with their neighbours.
fn difference(wanted: &str, got: &str) -> String {
    let at = wanted.bytes().zip(got.bytes()).take_while(|(one, other)| one == other).count();
    let around =
        |text: &str| text.get(at.saturating_sub(200)..text.len().min(at + 200)).unwrap_or(text).to_owned();
    format!("wanted ...{}...\ngot    ...{}...", around(wanted), around(got))
}

/// The names of calls, in the order of their entries.
fn entered(calls: &str) -> Vec<&str> {
    calls.split(['(', ')', ' ', '!']).filter(|name| !name.is_empty()).collect()
}

/// The names of calls, in alphabetical order.
fn sorted(calls: &str) -> Vec<&str> {
    let mut names = entered(calls);
    names.sort_unstable();
    names
}

#[test]
fn the_calls_of_generated_programs_are_those_that_they_make() {
    let place = Place::new("generated");
    let programs = number_asked("EVERYCALL_PROGRAMS").unwrap_or(PROGRAMS);
    let first = number_asked("EVERYCALL_SEED").unwrap_or(0);
    let levels = ["-O1", "-O2", "-O3", "-Os"];
    let (mut runs, mut marked, mut differences) = (0, 0, Vec::new());
    for (round, from) in (first..first + programs).step_by(AT_ONCE as usize).enumerate() {
        let count = AT_ONCE.min(first + programs - from);
        let programs: Vec<_> = (from..from + count).map(Program::new).collect();
        let file = place.write(&format!("generated-{from}.cpp"), &source(&programs));
        let file = file.to_str().expect("a path");
        for (turn, mode) in Mode::all().into_iter().enumerate() {
            let level = levels[(round + turn) % levels.len()];
            let program = place.build(mode, &[level, file], &format!("generated-{}", mode.label()));
            let trace = place.record(&[], &program, &[]).trace();
            let reports_inlined = mode.label().ends_with("finstrument");
            let main = trace.main();
            let call = &main.calls[0];
            for (number, (program, call)) in (from..).zip(programs.iter().zip(&call.inside)) {
                let (wanted, got) = (program.calls(reports_inlined), call.text());
                let what = format!("program {number}, {mode:?} {level}");
                runs += 1;
                let unsure = unsure(&call.inside).len();
                if unsure > 0 && mode == Mode::CLANG19_FINSTRUMENT {
                    // Code that the compiler merged from several places doesn't show which of them
                    // it is.
                    if wanted != got {
                        println!("{what}: marked calls are shown elsewhere");
                        marked += 1;
                    }
                    assert_eq!(sorted(&wanted), sorted(&got), "{what}");
                } else if wanted != got || unsure > 0 {
                    differences.push(format!("{what}, {unsure} unsure:\n{}", difference(&wanted, &got)));
                }
            }
            if main.orphans > 0 || call.inside.len() != programs.len() {
                differences
                    .push(format!("programs from {from}, {mode:?} {level}: {} orphan exits", main.orphans));
            }
        }
    }
    assert!(marked * 100 <= runs, "{marked} of {runs}");
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

/// The calls of functions that were `seen`; what others call stands in their place.
fn without(calls: &str, seen: &HashSet<&str>) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut rest = calls;
    while let Some((name, behind)) = rest.split_once("()") {
        let name = format!("{}()", name.trim_start());
        let mark = if behind.starts_with('!') { "!" } else { "" };
        let behind = &behind[mark.len()..];
        let mut depth = 0;
        let end = behind.find(|letter| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth == 0
        });
        let has_calls = behind.starts_with('(');
        let inside = if has_calls { &behind[1..end.expect("an end")] } else { "" };
        rest = if has_calls { &behind[inside.len() + 2..] } else { behind };
        let inside = without(inside, seen);
        match (seen.contains(name.as_str()), inside.as_str()) {
            (true, "") => kept.push(format!("{name}{mark}")),
            (true, inside) => kept.push(format!("{name}{mark}({inside})")),
            (false, "") => {}
            (false, _) => kept.push(inside),
        }
    }
    kept.join(" ")
}

/// Built without everycall, and recorded as they are.
#[test]
fn the_calls_of_generated_programs_are_seen_without_a_rebuild() {
    let place = Place::new("untouched");
    let programs: Vec<_> = (0..AT_ONCE).map(Program::new).collect();
    let file = place.write("generated.cpp", &source(&programs));
    for (compiler, level, strip) in [("g++", "-O2", "-s"), ("clang++-19", "-O1", "-g")] {
        let program = place.file(&format!("generated-{compiler}"));
        successful(Command::new(compiler).args([level, "-w", "-g"]).arg(&file).arg("-o").arg(&program));
        // Names of a stripped program are in a separate file.
        if strip == "-s" {
            let debug = place.file("generated.debug");
            successful(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]));
            successful(Command::new("strip").arg(&program));
            successful(
                Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&program),
            );
        }
        let (mut made, mut differences) = (HashSet::new(), Vec::new());
        let recording = place.record(&["--untouched", "--all"], &program, &[]);
        let said = String::from_utf8_lossy(&recording.output.stderr).into_owned();
        assert!(recording.output.status.success() && said.contains("complete"), "{said}");
        let trace = recording.trace();
        let calls = all(&trace.main().calls);
        let seen: HashSet<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let runs: Vec<_> = calls.iter().filter(|call| call.name.ends_with("::run()")).collect();
        for (program, call) in programs.iter().zip(&runs) {
            let (all, got) = (program.calls(false), call.text());
            // Functions that can't get hooks are missing, and nothing else is.
            let wanted = without(&all, &seen);
            if wanted != got {
                differences.push(format!("{compiler}: {}", difference(&wanted, &got)));
            }
            made.extend(sorted(&all).into_iter().map(str::to_owned));
        }
        assert!(differences.is_empty(), "{}", differences.join("\n\n"));
        made.retain(|name| name.contains("::"));
        let hooked = made.iter().filter(|name| seen.contains(format!("{name}()").as_str())).count();
        assert!(hooked * 100 >= made.len() * 70, "{compiler}: {hooked} of {}", made.len());
        assert_eq!((runs.len(), trace.main().orphans), (programs.len(), 0), "{compiler}");
    }
}
