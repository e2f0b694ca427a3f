//! Modes that report calls before they are inlined: what is left by jumps and exceptions of what shares a frame.

use everycall_tests::{Call, Mode, Place};

fn text(calls: &[Call]) -> String {
    calls.iter().map(Call::text).collect::<Vec<_>>().join(" ")
}

#[test]
fn jumps_leave_what_was_inlined_into_the_function_that_they_lead_to() {
    let place = Place::new("inlined-jumps");
    for mode in Mode::ALL {
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

#[test]
fn exceptions_leave_what_was_inlined_into_the_function_that_handles_them() {
    let place = Place::new("inlined-exceptions");
    for mode in Mode::ALL {
        for level in ["-O1", "-O2"] {
            // The least debugging information is what the prefix adds.
            for debug in [&["-g"][..], &[]] {
                let name = format!("inlined-exceptions{level}-{}-{}", mode.label(), debug.len());
                let program = place.build(mode, &[&[level, "inlined_exceptions.cpp"], debug].concat(), &name);
                let trace = place.record(&[], &program, &[]).trace();
                let calls = match mode.label() {
                    label if !label.ends_with("finstrument") => [
                        "handles()(fails()! leaf() fails()! leaf() leaf())",
                        "handles_guarded()(fails()! cleans() fails()! cleans() leaf())",
                        "leaf() asks()(fails()! fails()! leaf()) leaf()",
                        "tells()(fails()! cleans() leaf() leaf() fails()! cleans() leaf() leaf()) leaf()",
                    ],
                    _ => [
                        "handles()(parses(int)!(fails()!) leaf() parses(int)!(fails()!) leaf() leaf())",
                        "handles_guarded()(parses_guarded(int)!(fails()! cleans()) parses_guarded(int)!(fails()! cleans()) leaf())",
                        "leaf() asks()(is_fine(int)(fails()!) is_fine(int)(fails()!) leaf()) leaf()",
                        "tells()(recovers(int)(parses(int)!(fails()!) cleans() leaf()) leaf() recovers(int)(parses(int)!(fails()!) cleans() leaf()) leaf()) leaf()",
                    ],
                };
                assert_eq!(
                    text(&trace.main().calls),
                    format!("main({})", calls.join(" ")),
                    "{mode:?} {level} {debug:?}"
                );
                assert_eq!(trace.main().strays, 0, "{mode:?} {level} {debug:?}");
            }
        }
    }
}
