//! Programs made by chance: exceptions go through functions and destructors, inlined and not.
//! `EVERYCALL_PROGRAMS` says how many of them are built with each compiler and mode,
//! `EVERYCALL_SEED` which one is the first.

use everycall_tests::generated::{Program, source};
use everycall_tests::{Mode, Place, number_asked, unsure};

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

/// The names of calls, in alphabetical order.
fn sorted(calls: &str) -> Vec<&str> {
    let mut names: Vec<_> = calls.split(['(', ')', ' ', '!']).filter(|name| !name.is_empty()).collect();
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
        for (turn, mode) in Mode::ALL.into_iter().enumerate() {
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
