//! Signals anywhere in a hook: all calls of their handlers are recorded, nothing else is lost, and
//! a handler that jumps away or a SIGKILL costs at most the event that was being written.

use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::{Mode, Place, Recording, Tally, everycall, is_full, successful};

/// Modes with hooks of their own: sites share `fentry`'s.
const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY];

/// A number that the program printed behind `name`.
fn printed(recording: &Recording, name: &str) -> u64 {
    let stdout = recording.stdout();
    let line = stdout.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} in {stdout:?}, {recording:?}")).trim().parse().expect("a number")
}

fn both(count: u64) -> Tally {
    Tally { entries: count, exits: count }
}

#[test]
fn ten_thousand_signals_a_second_lose_no_events() {
    let place = Place::new("storm");
    for mode in MODES {
        let program = place.build(mode, &["-O1", "storm.c", "-pthread"], &format!("storm-{}", mode.label()));
        let recording = place.record(&["--ring-size", "256M"], &program, &["1000"]);
        let (handler, loops) = (printed(&recording, "handler"), printed(&recording, "loop_body"));
        let trace = everycall_tests::TraceView::tallies_only(&recording.file);
        let tallies = trace.tallies();
        assert_eq!(handler, 2000.max(handler), "{mode:?}");
        assert_eq!(tallies["handler"], both(handler), "{mode:?}");
        assert_eq!(tallies["handler_leaf"], both(2 * handler), "{mode:?}");
        assert_eq!(tallies["loop_body"], both(loops), "{mode:?}");
        assert_eq!(tallies["loop_leaf"], both(loops), "{mode:?}");
        assert_eq!(trace.losses(), 0, "{mode:?}");
        for thread in &trace.threads {
            assert_eq!(
                (thread.orphans, thread.info.unwound, thread.info.orphan_exits),
                (0, 0, 0),
                "{mode:?}"
            );
            assert_eq!(thread.info.segments_overwritten, 0, "{mode:?}: the ring holds it all");
        }
    }
}

fn stepper(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O1", "-no-pie", "step.c"], &format!("step-{}", mode.label()))
}

/// The address of a symbol of a program that isn't position-independent.
fn address_of(program: &Path, symbol: &str) -> String {
    let nm = Command::new("nm").arg(program).output().expect("nm runs");
    let text = String::from_utf8_lossy(&nm.stdout).into_owned();
    let line = text.lines().find(|line| line.ends_with(&format!(" {symbol}"))).expect("the symbol");
    line.split(' ').next().expect("an address").to_owned()
}

/// Where a stepped run has to agree with its trace; `jumped`: handlers left by siglongjmp.
fn check(mode: Mode, recording: &Recording, jumped: bool) {
    check_with(mode, recording, jumped, 1);
}

/// As [`check`]. `words`: the most words that a hook writes. Each counts as a lost event if a handler
/// jumps away meanwhile.
fn check_with(mode: Mode, recording: &Recording, jumped: bool, words: u64) {
    assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
    let (rounds, signals) = (printed(recording, "iterations"), printed(recording, "signals"));
    assert!(signals >= 20, "{mode:?}: {signals} signals");
    let trace = recording.trace();
    let tallies = trace.tallies();
    let main = trace.main();
    assert_eq!(tallies["checkpoint"], both(rounds), "{mode:?}");
    assert_eq!(tallies["checkpoint_leaf"], both(rounds), "{mode:?}");
    // Every checkpoint is where it belongs: outermost, with its leaf inside.
    let outermost = main.calls.iter().filter(|call| call.name == "checkpoint").count() as u64;
    assert_eq!(outermost, rounds, "{mode:?}");
    let whole = main.calls.iter().filter(|call| call.text() == "checkpoint(checkpoint_leaf)").count() as u64;
    assert_eq!(whole, rounds, "{mode:?}");
    assert_eq!(tallies["handler_leaf"], both(signals), "{mode:?}");
    assert_eq!(tallies["handler"].entries, signals, "{mode:?}");
    if jumped {
        assert!(trace.losses() <= signals * words, "{mode:?}: {} lost", trace.losses());
    } else {
        assert_eq!(tallies["handler"], both(signals), "{mode:?}");
        // One checkpoint came before the first round.
        assert_eq!(tallies["victim"], both(rounds - 1), "{mode:?}");
        assert_eq!(tallies["victim_leaf"], both(rounds - 1), "{mode:?}");
        assert_eq!(trace.losses(), 0, "{mode:?}");
        assert_eq!((main.orphans, main.info.unwound, main.info.orphan_exits), (0, 0, 0), "{mode:?}");
    }
}

#[test]
fn a_signal_after_every_instruction_of_a_hook() {
    let place = Place::new("step");
    for mode in MODES {
        let program = stepper(&place, mode);
        check(mode, &place.record(&[], &program, &["call"]), false);
        check(mode, &place.record(&[], &program, &["jump"]), true);
    }
}

#[test]
fn a_signal_after_every_instruction_of_a_hook_that_copies_values() {
    let place = Place::new("step-values");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let name = format!("step-{}", mode.label());
        let program = place.build(mode, &["-O1", "-g", "-no-pie", "step.c"], &name);
        for how in ["call", "jump"] {
            let options = ["--args", "victim(value, text)", "--results", "victim"];
            let recording = place.record(&options, &program, &[how]);
            check_with(mode, &recording, how == "jump", 16);
            // Nothing of a value is lost, and none belongs to another call.
            let mut replay = place.command(everycall());
            let text = successful(replay.arg("replay").arg(&recording.file));
            let calls: Vec<&str> = text.lines().filter(|line| line.contains("victim(")).collect();
            let rounds = printed(&recording, "iterations") - 1;
            let whole = "victim(value=0, text=\"stepped through\")";
            let with_values = calls.iter().filter(|line| line.contains(whole)).count() as u64;
            let others: Vec<_> = calls.iter().filter(|line| !line.contains(whole)).collect();
            // A signal within a hook's first bytes leaves the round by a jump, before the call.
            let least = if how == "jump" { rounds / 2 } else { rounds };
            assert!(others.is_empty() && with_values >= least, "{mode:?} {how}: {rounds} {others:?}");
            let results = text.lines().filter(|line| line.contains(" = 1")).count() as u64;
            assert!(how == "jump" || results == rounds, "{mode:?}: {results} of {rounds} results");
        }
    }
}

#[test]
fn a_signal_anywhere_in_the_slow_path() {
    let place = Place::new("step-slow");
    let stride = if is_full() { "13" } else { "211" };
    for mode in MODES {
        let program = stepper(&place, mode);
        let slow = address_of(&program, "everycall_slow_common");
        let record = |more: &[&str]| {
            let arguments: Vec<&str> =
                ["slow", &slow, stride].into_iter().chain(more.iter().copied()).collect();
            place.record(&["--ring-size", "64K"], &program, &arguments)
        };
        // The small ring can't hold all events: those that it holds must be complete.
        for recording in [record(&[]), record(&["jump"])] {
            assert!(recording.output.status.success(), "{mode:?}: {recording:?}");
            let trace = recording.trace();
            let rounds =
                trace.main().calls.iter().filter(|call| call.text() == "checkpoint(checkpoint_leaf)").count();
            assert!(rounds >= 2, "{mode:?}");
            assert!(trace.losses() <= rounds as u64, "{mode:?}: {} lost", trace.losses());
        }
    }
}

#[test]
fn killed_after_every_instruction_of_a_hook() {
    let place = Place::new("step-kill");
    let stride = if is_full() { 1 } else { 17 };
    for mode in MODES {
        let program = stepper(&place, mode);
        let mut seen_complete = false;
        for after in (0..).step_by(stride) {
            let recording = place.record(&[], &program, &["kill", &after.to_string()]);
            let trace = recording.trace();
            let tallies = trace.tallies();
            assert_eq!(tallies["checkpoint"], both(1), "{mode:?} after {after}");
            let victim = tallies.get("victim").copied().unwrap_or_default();
            let leaf = tallies.get("victim_leaf").copied().unwrap_or_default();
            // One round, truncated anywhere: a prefix of entry, entry, exit, exit.
            let prefix = [victim.entries, leaf.entries, leaf.exits, victim.exits];
            assert!(prefix.is_sorted_by(|a, b| a >= b), "{mode:?} after {after}: {prefix:?}");
            assert!(trace.losses() <= 1, "{mode:?} after {after}");
            std::fs::remove_file(&recording.file).expect("the trace is there");
            if prefix == [1, 1, 1, 1] {
                seen_complete = true;
                break;
            }
            assert!(after < 2000, "{mode:?}: the round never ends");
        }
        assert!(seen_complete);
    }
}

#[test]
fn traps_that_the_program_has_blocked_wait() {
    let place = Place::new("blocked-trap");
    for mode in MODES {
        let name = format!("blocked-trap-{}", mode.label());
        let program = place.build(mode, &["-O1", "blocked_trap.c", "-pthread"], &name);
        let plain = place.record(&["--ring-size", "64K"], &program, &[]);
        assert_eq!(plain.stdout(), "handlers 0, then 0, got 5\n", "{mode:?}: {plain:?}");
        let handled = place.record(&["--ring-size", "64K"], &program, &["handled"]);
        assert_eq!(handled.stdout(), "handlers 1, then 1, got 5\n", "{mode:?}: {handled:?}");
    }
}

/// Handlers have room, be it on the thread's own stack or on the slow path's.
#[test]
fn handlers_of_traps_may_have_large_frames() {
    let place = Place::new("trap-frames");
    for mode in MODES {
        let name = format!("trap-frames-{}", mode.label());
        let program = place.build(mode, &["-O1", "trap_frames.c", "-pthread"], &name);
        for how in ["sent", "stepped"] {
            let recording = place.record(&[], &program, &[how]);
            assert_eq!(recording.stdout(), "1000\n", "{mode:?}, {how}: {recording:?}");
        }
    }
}
