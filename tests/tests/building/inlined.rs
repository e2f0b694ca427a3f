//! Modes that report calls before they are inlined: calls unwound by jumps and exceptions through a
//! shared frame.

use std::path::Path;

use everycall_tests::{Mode, Place, ThreadTrace, all, text, unsure};
use everycall_timeline::EndKind;

#[test]
fn jumps_leave_what_was_inlined_into_the_function_that_they_lead_to() {
    let place = Place::new("inlined-jumps");
    for mode in Mode::in_turn(0) {
        for level in ["-O1", "-O2"] {
            let name = format!("inlined-jumps{level}-{}", mode.label());
            let program = place.build(mode, &[level, "-g", "inlined_jumps.c"], &name);
            let trace = place.record(&[], &program, &[]).trace();
            let lands = match mode.label().ends_with("finstrument") {
                true => {
                    "lands(tries!(first fails!(second)) tries!(first fails!(second)) leaf tries(first leaf))"
                }
                false => "lands(first second first second leaf first leaf)",
            };
            assert_eq!(text(&trace.main().calls), format!("main({lands} leaf)"), "{mode:?} {level}");
        }
    }
}

/// Calls of `inlined_exceptions.cpp`. `[f{...}` are those of a function that was inlined.
const EXCEPTIONS: &str = "main(all()(\
    catches_with(int)([holds_with(int)!{fails_with(int, int, int, int, int, int, int, int)! Inner::~Inner()} Outer::~Outer() leaf() leaf()) \
    passes_with(int)!([holds_with(int)!{fails_with(int, int, int, int, int, int, int, int)! Inner::~Inner()} Outer::~Outer()) \
    names()([over(int){[over(char)!{fails()!} leaf() leaf()} [Runs<Runs<A> >::run()!{[Runs<A>::run()!{[A::run()!{fails()!} leaf()} leaf()} leaf()) \
    within()([asks_within(){[asks_within()::Within::asks()!{fails()!} cleans() leaf()}) \
    throws_on()!([ignores(){[holds(int)!{fails()! Inner::~Inner()}} leaf() \
        [guards()!{[rethrows()!{fails()!} [Inlined::~Inlined(){cleans() leaf()}}) \
    recurses(int)([tries(int){recurses(int)([tries(int){recurses(int)([tries(int){fails()! cleans() leaf()} leaf()) \
        fails()! cleans() leaf()} leaf()) fails()! cleans() leaf()} leaf()) \
    catches(int)([holds(int)!{fails()! Inner::~Inner()} Outer::~Outer() cleans() leaf() \
        [holds(int)!{fails()! Inner::~Inner()} Outer::~Outer() cleans() leaf() leaf()) \
    passes(int)!([holds(int)!{fails()! Inner::~Inner()} Outer::~Outer()) \
    passes_inlined(int)!([holds_inlined(int)!{fails()! Inner::~Inner() [Inlined::~Inlined(){cleans() leaf()}} \
        [Inlined::~Inlined(){cleans() leaf()} Outer::~Outer()) \
    goes_on(int)!([catches_itself(int){[holds(int)!{fails()! Inner::~Inner()} Outer::~Outer() cleans() leaf()} leaf() \
        [holds(int)!{fails()! Inner::~Inner()} Outer::~Outer()) \
    careful(int)!([holds_careful(int)!{fails()! [Careful::~Careful(){fails()! cleans()}} Outer::~Outer() leaf() leaf() \
        [holds_careful(int)!{fails()! [Careful::~Careful(){fails()! cleans()}} Outer::~Outer())) \
    handles()([parses(int)!{fails()!} leaf() [parses(int)!{fails()!} leaf() leaf()) \
    handles_guarded()([parses_guarded(int)!{fails()! cleans()} [parses_guarded(int)!{fails()! cleans()} leaf()) leaf() \
    asks()([is_fine(int){fails()!} [is_fine(int){fails()!} leaf()) leaf() \
    tells()([recovers(int){[parses(int)!{fails()!} cleans() leaf()} leaf() \
        [recovers(int){[parses(int)!{fails()!} cleans() leaf()} leaf()) leaf())";

/// [`EXCEPTIONS`] as a mode reports it.
fn exceptions(reports_inlined: bool) -> String {
    if reports_inlined {
        return EXCEPTIONS.replace('[', "").replace('{', "(").replace('}', ")");
    }
    let mut parts = EXCEPTIONS.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('{').expect("what it calls").1).replace('}', "")
}

/// Checks a program's calls; `what` it is.
fn check(place: &Place, program: &Path, reports_inlined: bool, what: &str) {
    let trace = place.record(&[], program, &[]).trace();
    assert_eq!(text(&trace.main().calls), exceptions(reports_inlined), "{what}");
    assert_eq!(trace.main().orphans, 0, "{what}");
    assert_eq!(unsure(&trace.main().calls), [""; 0], "{what}");
}

#[test]
fn exceptions_leave_what_was_inlined_into_the_function_that_they_get_to() {
    let place = Place::new("inlined-exceptions");
    for mode in Mode::in_turn(1) {
        for level in ["-O1", "-O2"] {
            // The least debugging information is what the prefix adds.
            for debug in [&["-g"][..], &[]] {
                let name = format!("inlined-exceptions{level}-{}-{}", mode.label(), debug.len());
                let program = place.build(mode, &[&[level, "inlined_exceptions.cpp"], debug].concat(), &name);
                let reports_inlined = mode.label().ends_with("finstrument");
                check(&place, &program, reports_inlined, &format!("{mode:?} {level} {debug:?}"));
            }
        }
    }
}

/// Objects of one compiler that report inlined calls, linked by another one, in this mode or in one
/// that has none of them.
#[test]
fn exceptions_in_objects_that_another_compiler_links() {
    let place = Place::new("inlined-mixed");
    let links = [Mode::GCC_FINSTRUMENT, Mode::GCC_NOPS, Mode::CLANG19_FINSTRUMENT, Mode::CLANG19_XRAY];
    for mode in [Mode::GCC_FINSTRUMENT, Mode::CLANG19_FINSTRUMENT] {
        let arguments = ["-O2", "-fPIE", "-c", "inlined_exceptions.cpp"];
        let object = place.build(mode, &arguments, &format!("{}.o", mode.label()));
        let object = object.to_str().expect("a path");
        // Some code of the other one's.
        let other = match mode {
            Mode::GCC_FINSTRUMENT => Mode::CLANG19_FINSTRUMENT,
            _ => Mode::GCC_FINSTRUMENT,
        };
        let source = place.write("other.cpp", "int other() { return 1; }");
        let arguments = ["-O2", "-fPIE", "-c", source.to_str().expect("a path")];
        let others = place.build(other, &arguments, "other.o");
        for link in links {
            for objects in [&[object][..], &[object, others.to_str().expect("a path")]] {
                let program = place.build(link, &[objects, &["-lstdc++"]].concat(), "mixed");
                check(
                    &place,
                    &program,
                    true,
                    &format!("{mode:?} linked by {link:?}, {} objects", objects.len()),
                );
            }
        }
    }
}

/// Without debugging information, a call is marked as having an uncertain caller, or its exit is an
/// orphan.
#[test]
fn what_is_not_known_of_inlined_calls_is_marked() {
    let place = Place::new("inlined-stripped");
    for mode in Mode::ALL.into_iter().filter(|mode| mode.label().ends_with("finstrument")) {
        let arguments = ["-O2", "inlined_exceptions.cpp", "-Wl,--strip-debug"];
        let program = place.build(mode, &arguments, &mode.label());
        if mode == Mode::GCC_FINSTRUMENT {
            // This mode reports all ends.
            check(&place, &program, true, "gcc");
            continue;
        }
        let trace = place.record(&[], &program, &[]).trace();
        let calls = &trace.main().calls;
        let all = calls[0].inside.iter().find(|call| call.name == "all()").expect("it calls all");
        let named = |name: &str| all.inside.iter().find(|call| call.name == name).expect("it is called");
        // Of its destructors, the last one is shown in the wrong place.
        let passes = named("passes(int)");
        assert_eq!(
            passes.text(),
            "passes(int)!(holds(int)!(fails()! Inner::~Inner() Outer::~Outer()))",
            "{mode:?}"
        );
        let [_, inner, outer] = &passes.inside[0].inside[..] else { panic!("{passes:?}") };
        assert!(inner.caller_unsure && outer.caller_unsure, "{mode:?}: {passes:?}");
        // Its handler, too.
        let recurses = named("recurses(int)");
        assert!(
            recurses.inside.iter().any(|call| call.name == "cleans()" && call.caller_unsure),
            "{recurses:?}"
        );
        assert!(trace.main().orphans > 0, "{mode:?}");
    }
}

/// In C, frames that a thread's end leaves clean up, too.
#[test]
fn a_threads_end_leaves_what_was_inlined_when_it_is_cleaned_up() {
    let place = Place::new("inlined-cleanups");
    for mode in Mode::in_turn(0) {
        for level in ["-O1", "-O2"] {
            let arguments = [level, "-fexceptions", "inlined_cleanups.c", "-pthread"];
            let program = place.build(mode, &arguments, &format!("inlined-cleanups{level}-{}", mode.label()));
            let trace = place.record(&[], &program, &[]).trace();
            let passes = match mode.label().ends_with("finstrument") {
                true => "passes!(holds!(ends! inner_cleanup) outer_cleanup)",
                false => "passes!(ends! inner_cleanup outer_cleanup)",
            };
            let calls =
                &trace.threads.iter().find(|thread| thread.calls[0].name == "run").expect("a thread").calls;
            assert_eq!(text(calls), format!("run!({passes})"), "{mode:?} {level}");
            assert_eq!(unsure(calls), [""; 0], "{mode:?} {level}");
        }
    }
}

/// glibc runs the cleanup handlers of C without -fexceptions by a jump of its own.
#[test]
fn cleanup_handlers_at_a_threads_end_stand_below_the_frame_that_cleans_up() {
    let place = Place::new("thread-ends");
    for mode in Mode::in_turn(1) {
        for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"], &["-O2", "-static"]] {
            let arguments = [flags, &["thread_ends.c", "-pthread"]].concat();
            let program = place.build(mode, &arguments, &format!("{}{}", mode.label(), flags.concat()));
            let trace = place.record(&[], &program, &[]).trace();
            for (run, last) in [("run_exits", "exits"), ("run_waits", "waits")] {
                let is_it = |thread: &&ThreadTrace| thread.calls[0].name == run;
                let calls = &trace.threads.iter().find(is_it).expect("a thread").calls;
                let cleanup = "cleanup(leaf)";
                let deep = format!("deep!(deep!(deep!(deep!({last}!))))");
                let inner = format!("inner!(leaf {deep} {cleanup})");
                let expected = format!("{run}!(outer!(leaf {cleanup} {inner} {cleanup}))");
                assert_eq!(text(calls), expected, "{mode:?} {flags:?}");
                let late: Vec<&str> = all(calls)
                    .iter()
                    .filter(|call| call.how == EndKind::UnwoundLate)
                    .map(|call| call.name.as_str())
                    .collect();
                assert_eq!(late, [""; 0], "{mode:?} {flags:?}");
                assert_eq!(unsure(calls), [""; 0], "{mode:?} {flags:?}");
            }
        }
    }
}
