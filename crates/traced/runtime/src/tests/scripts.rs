//! Random programs, compared with their own record of their open calls.

extern crate std;

use super::machine::{CAPACITY, Flow, Hooks, Interrupt, Jump, Machine};
use std::println;

/// Pseudo-random numbers (splitmix64), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ value >> 31) % bound
    }
}

/// A function body: calls, catches, jumps, signals, until `budget` is used up.
fn body(machine: &mut Machine, hooks: Hooks, random: &mut Random, budget: &mut u64, depth: u64) -> Flow {
    while *budget > 0 {
        *budget -= 1;
        match random.below(16) {
            0..=6 if depth < 200 => {
                machine.call(hooks, |machine| body(machine, hooks, random, budget, depth + 1))?;
            }
            7 => machine.catch(|machine| {
                machine.call(hooks, |machine| body(machine, hooks, random, budget, depth + 1))
            }),
            8 if depth > 0 => return Err(Jump),
            9 => machine.signal(Interrupt::Returns)?,
            10 => machine.signal(Interrupt::Alternate)?,
            11 if random.below(4) == 0 => machine.signal(Interrupt::Jumps)?,
            12 if random.below(4) == 0 => machine.signal(Interrupt::AlternateJumps)?,
            _ if depth > 0 => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn random_programs() {
    random_programs_of(false);
}

#[test]
fn random_programs_whose_short_calls_are_dropped() {
    let dropped = random_programs_of(true);
    println!("{dropped} calls dropped");
    assert!(dropped > 50_000);
}

/// Runs random programs. Returns the number of calls that were dropped.
fn random_programs_of(drops: bool) -> u64 {
    let (mut steps, mut dropped) = (0, 0);
    for seed in 0..3000 {
        let mut random = Random(seed);
        let before = random.below(8192);
        let hooks = if seed % 3 == 0 { Hooks::Body } else { Hooks::Sited };
        let mut machine = Machine::dropping(before, &[], drops);
        let mut budget = 400;
        while budget > 0 {
            machine.catch(|machine| body(machine, hooks, &mut random, &mut budget, 0));
        }
        machine.last_call();
        steps += machine.steps;
        dropped += machine.dropped;
        machine.finish();
    }
    println!("{steps} steps");
    assert!(steps > 1_000_000);
    dropped
}

/// Recursion to `depth`; there, `bottom`.
fn recurse(machine: &mut Machine, depth: u32, bottom: &mut dyn FnMut(&mut Machine) -> Flow) -> Flow {
    if depth == 0 {
        return bottom(machine);
    }
    machine.call(Hooks::Sited, |machine| recurse(machine, depth - 1, bottom))
}

#[test]
fn recursion_beyond_the_capacity_comes_back() {
    for depth in [CAPACITY - 514, CAPACITY - 1, CAPACITY, CAPACITY + 500] {
        let mut machine = Machine::new(0, &[]);
        let mut deepest = 0;
        machine.catch(|machine| {
            recurse(machine, depth, &mut |machine| {
                deepest = machine.depth();
                assert!(machine.is_suspended() || depth < CAPACITY);
                Ok(())
            })
        });
        assert_eq!(deepest, depth);
        machine.last_call();
        assert!(!machine.is_suspended(), "hooks write by themselves again");
        machine.finish();
    }
}

#[test]
fn jumps_out_of_deep_recursion_leave_no_open_calls() {
    for depth in [CAPACITY - 2, CAPACITY + 500] {
        let mut machine = Machine::new(0, &[]);
        machine.catch(|machine| {
            machine.call(Hooks::Sited, |machine| {
                machine.catch(|machine| recurse(machine, depth, &mut |_| Err(Jump)));
                machine.call(Hooks::Sited, |machine| {
                    assert_eq!(machine.depth(), 2);
                    Ok(())
                })
            })
        });
        machine.finish();
    }
}
