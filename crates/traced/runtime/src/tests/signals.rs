//! A signal between any two instructions of a hook, and a second one between any two of the
//! following instructions, the handler's or the program's: all places, all kinds of handlers.

extern crate std;

use super::machine::{Flow, Hooks, Interrupt, Machine};
use everycall_ring::{SEGMENT_RECORD_WORDS, SPARE_WORDS};
use std::println;
use std::vec;
use std::vec::Vec;

/// Calls, one that catches jumps, and calls after it.
fn program(machine: &mut Machine, hooks: Hooks) -> Flow {
    machine.call(hooks, |machine| {
        machine.catch(|machine| machine.call(hooks, |machine| machine.call(hooks, |_| Ok(()))));
        machine.call(hooks, |_| Ok(()))
    })
}

/// Words of a segment of the smallest ring that hooks can use.
const SEGMENT: u64 = 512 - (SEGMENT_RECORD_WORDS + SPARE_WORDS) as u64;

/// Runs the program once. Returns the number of its steps.
fn run(hooks: Hooks, before: u64, plan: &[(u64, Interrupt)]) -> Outcome {
    run_with(hooks, before, plan, false)
}

/// As [`run`]; `drops`: short calls are dropped.
fn run_with(hooks: Hooks, before: u64, plan: &[(u64, Interrupt)], drops: bool) -> Outcome {
    let mut machine = Machine::dropping(before, plan, drops);
    // A jump that the program itself doesn't catch ends here.
    machine.catch(|machine| program(machine, hooks));
    let steps = machine.steps;
    machine.last_call();
    let (slow_paths, abandoned, dropped) = (machine.slow_paths, machine.abandoned, machine.dropped);
    let outcome = Outcome { steps, slow_paths, abandoned, dropped };
    machine.finish();
    outcome
}

struct Outcome {
    steps: u64,
    slow_paths: u64,
    abandoned: u64,
    dropped: u64,
}

/// Positions in the ring at which the program begins: far from any end, and such that the end of a
/// segment, or of the ring, comes at each of its events.
fn beginnings() -> impl Iterator<Item = u64> {
    let ends = [SEGMENT, 16 * SEGMENT];
    [10].into_iter().chain(ends.into_iter().flat_map(|end| end - 12..=end))
}

#[test]
fn one_signal() {
    let (mut runs, mut slow_paths, mut abandoned) = (0_u64, 0, 0);
    for hooks in [Hooks::Sited, Hooks::Body] {
        for before in beginnings() {
            let steps = run(hooks, before, &[]).steps;
            for interrupt in Interrupt::ALL {
                for at in 0..steps {
                    let outcome = run(hooks, before, &[(at, interrupt)]);
                    runs += 1;
                    slow_paths += outcome.slow_paths;
                    abandoned += outcome.abandoned;
                }
            }
        }
    }
    println!("{runs} runs, {slow_paths} slow paths, {abandoned} hooks jumped out of");
    assert!(runs > 10_000 && slow_paths > runs && abandoned > 1000);
}

/// Where the programs of tests with two signals begin, by their hooks. Without `EVERYCALL_FULL`,
/// the program that drops calls begins where the other doesn't.
fn two_beginnings(hooks: Hooks, drops: bool) -> Vec<u64> {
    let all = [10, SEGMENT - 6];
    if std::env::var_os("EVERYCALL_FULL").is_some() {
        return all.to_vec();
    }
    vec![all[usize::from(matches!(hooks, Hooks::Body) != drops)]]
}

#[test]
fn two_signals() {
    let (mut runs, mut abandoned) = (0_u64, 0);
    for hooks in [Hooks::Sited, Hooks::Body] {
        for before in two_beginnings(hooks, false) {
            let steps = run(hooks, before, &[]).steps;
            for first in Interrupt::ALL {
                for second in Interrupt::ALL {
                    if first == Interrupt::FillsSegment || second == Interrupt::FillsSegment {
                        continue; // Thousands of steps: `one_signal` covers it.
                    }
                    for at in 0..steps {
                        let all = run(hooks, before, &[(at, first)]).steps;
                        for later in at..all {
                            let outcome = run(hooks, before, &[(at, first), (later, second)]);
                            runs += 1;
                            abandoned += outcome.abandoned;
                        }
                    }
                }
            }
        }
    }
    println!("{runs} runs, {abandoned} hooks jumped out of");
    assert!(runs > 100_000 && abandoned > 10_000);
}

/// One signal at each step while short calls are dropped: whatever comes between two steps of
/// dropping one, every call is there once or counted once.
#[test]
fn one_signal_while_calls_are_dropped() {
    let (mut runs, mut dropped, mut abandoned) = (0_u64, 0, 0);
    for hooks in [Hooks::Sited, Hooks::Body] {
        for before in beginnings() {
            let steps = run_with(hooks, before, &[], true).steps;
            for interrupt in Interrupt::ALL {
                for at in 0..steps {
                    let outcome = run_with(hooks, before, &[(at, interrupt)], true);
                    runs += 1;
                    dropped += outcome.dropped;
                    abandoned += outcome.abandoned;
                }
            }
        }
    }
    println!("{runs} runs, {dropped} calls dropped, {abandoned} hooks jumped out of");
    assert!(runs > 10_000 && dropped > runs && abandoned > 1000);
}

#[test]
fn two_signals_while_calls_are_dropped() {
    let (mut runs, mut dropped) = (0_u64, 0);
    for hooks in [Hooks::Sited, Hooks::Body] {
        for before in two_beginnings(hooks, true) {
            let steps = run_with(hooks, before, &[], true).steps;
            for first in Interrupt::ALL {
                for second in Interrupt::ALL {
                    if first == Interrupt::FillsSegment || second == Interrupt::FillsSegment {
                        continue; // Thousands of steps: the test with one signal covers it.
                    }
                    for at in 0..steps {
                        let all = run_with(hooks, before, &[(at, first)], true).steps;
                        for later in at..all {
                            let outcome = run_with(hooks, before, &[(at, first), (later, second)], true);
                            runs += 1;
                            dropped += outcome.dropped;
                        }
                    }
                }
            }
        }
    }
    println!("{runs} runs, {dropped} calls dropped");
    assert!(runs > 100_000 && dropped > runs);
}
