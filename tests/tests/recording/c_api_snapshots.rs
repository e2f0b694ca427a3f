//! Snapshots that programs take of themselves through `everycall.h`, and programs that were written
//! for funtrace.

use std::path::PathBuf;

use everycall_tests::{Mode, Place, TraceView, everycall, is_full, programs, successful};

const MODES: [Mode; 3] = [Mode::GCC_NOPS, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];

fn built(place: &Place, mode: Mode) -> PathBuf {
    let arguments = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "snapshots.cpp", "-pthread"];
    place.build(mode, &arguments, &format!("snapshots-{}", mode.label()))
}

fn run(place: &Place, program: &PathBuf, what: &str) {
    assert_eq!(successful(place.command(program).arg(what)), "there\n", "{what}");
}

fn opened(place: &Place, name: &str) -> TraceView {
    let trace = TraceView::open(&place.file(name));
    assert_eq!(trace.losses(), 0, "{name}");
    assert!(trace.warnings.is_empty(), "{name}: {:?}", trace.warnings);
    trace
}

fn calls(trace: &TraceView, function: &str) -> u64 {
    trace.calls(&format!("{function}(int)"))
}

#[test]
fn what_the_ring_held_at_the_request_whatever_comes_later() {
    let place = Place::new("snapshots-one");
    for mode in MODES {
        run(&place, &built(&place, mode), "one");
        let all = opened(&place, "all.ect");
        // 1 MiB less a segment are 122,880 words, two for each call.
        assert!((61_000..66_000).contains(&(calls(&all, "work") + calls(&all, "leaf"))), "{mode:?}");
        assert_eq!(calls(&all, "marked"), 1, "{mode:?}");
        let last = opened(&place, "last.ect");
        assert_eq!(calls(&last, "marked"), 1, "{mode:?}");
        assert!(calls(&last, "leaf") < 8192, "{mode:?}: older segments are left out");
        let bytes = |name: &str| std::fs::read(place.file(name)).unwrap().len();
        assert_eq!(bytes("descriptor.ect"), bytes("all.ect"), "{mode:?}");
        for name in ["descriptor.ect", "callback.ect"] {
            assert_eq!(opened(&place, name).tallies(), all.tallies(), "{mode:?} {name}");
        }
        // Taken in a traced callback while another snapshot is written, whose segments are pinned.
        let within = opened(&place, "within.ect");
        assert!((61_000..66_000).contains(&(calls(&within, "work") + calls(&within, "leaf"))), "{mode:?}");
        let shown = successful(place.command(everycall()).args(["replay", "last.ect"]));
        assert!(shown.contains("@ turn = 7"), "{mode:?}\n{shown}");
    }
}

#[test]
fn while_threads_run_and_come_and_go() {
    let place = Place::new("snapshots-many");
    for mode in MODES {
        run(&place, &built(&place, mode), "many");
        let mut most = 0;
        // Each file takes a second of a debug build.
        for turn in (0..20).step_by(if is_full() { 1 } else { 6 }) {
            let trace = opened(&place, &format!("many-{turn}.ect"));
            most = most.max(trace.threads.iter().filter(|thread| !thread.tallies.is_empty()).count());
            let shown = successful(
                place
                    .command(everycall())
                    .args(["replay", "--label", &format!("turn={turn}")])
                    .arg(format!("many-{turn}.ect")),
            );
            assert!(shown.contains(&format!("@ turn = {turn}")), "{mode:?}\n{shown}");
        }
        assert!(most > 6, "{mode:?}: {most} threads");
        let left: Vec<_> =
            std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let odd = left.iter().filter(|name| name.to_string_lossy().contains(".ect.")).count();
        assert_eq!(odd, 0, "no temporary files: {left:?}");
    }
}

#[test]
fn in_signal_handlers_and_every_error() {
    let place = Place::new("snapshots-signals");
    for mode in MODES {
        let program = built(&place, mode);
        run(&place, &program, "handlers");
        let _ = opened(&place, "handler.ect");
        // Of the thread's own time. Nothing is asserted: a virtual CPU may be taken away meanwhile.
        let longest: u64 = std::fs::read_to_string(place.file("longest")).unwrap().parse().unwrap();
        eprintln!("{mode:?}: the longest snapshot in a handler took {longest} us, of 51 threads");
        run(&place, &program, "errors");
    }
}

#[test]
fn guards_keep_the_slowest() {
    let place = Place::new("snapshots-guards");
    for mode in MODES {
        run(&place, &built(&place, mode), "guards");
        for name in ["slowest.ect", "function.ect"] {
            let shown = successful(place.command(everycall()).args(["replay", name]));
            assert!(
                shown.contains("@ turn = 1200") && !shown.contains("@ turn = 10"),
                "{mode:?} {name}\n{shown}"
            );
        }
    }
}

#[test]
fn programs_for_funtrace_build_unchanged() {
    let place = Place::new("funtrace");
    for mode in Mode::in_turn(1) {
        let program =
            place.build(mode, &["-O1", "-Wall", "-Wextra", "-Werror", "for_funtrace.cpp"], "for_funtrace");
        assert_eq!(successful(&mut place.command(&program)), "0\n", "{mode:?}");
        for name in ["saved.ect", "aged.ect", "funtrace.ect"] {
            let trace = opened(&place, name);
            assert_eq!((calls(&trace, "f"), calls(&trace, "unseen")), (1, 0), "{mode:?} {name}");
        }
    }
    // Without everycall.
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include/compat");
    for compiler in ["g++", "clang++-19"] {
        let mut command = place.command(compiler);
        command.arg(format!("-I{include}")).arg(programs().join("for_funtrace.cpp")).args(["-o", "plain"]);
        successful(&mut command);
        assert_eq!(successful(&mut place.command(place.file("plain"))), "0\n", "{compiler}");
    }
}
