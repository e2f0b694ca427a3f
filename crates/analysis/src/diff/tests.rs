//! Comparisons of runs that are generated from seeds.

use super::*;
use crate::profile::{FunctionIdentity, SumBounds, made_up};

/// Pseudo-random numbers, the same in each run of the test.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From the normal distribution.
    fn normal(&mut self) -> f64 {
        let (one, other) = (self.part().max(1e-300), self.part());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

const FUNCTIONS: usize = 60;
const RUNS: usize = 10;
/// The function that becomes 5 % slower, and the one that is called 1 % more often.
const SLOWER: usize = 7;
const MORE_OFTEN: usize = 23;

/// The random differences between runs.
#[derive(Clone, Copy, PartialEq)]
enum Noise {
    /// One percent for each function.
    Even,
    /// Between a tenth of a percent and ten percent, and in one run of twenty ten times as much.
    Uneven,
}

impl Noise {
    fn of(self, function: usize, random: &mut Random) -> f64 {
        match self {
            Noise::Even => 0.01 * random.normal(),
            Noise::Uneven => {
                let size = 0.001 * 10_f64.powf(function as f64 * 2.0 / FUNCTIONS as f64);
                let is_off = random.part() < 0.05;
                (size * random.normal() * if is_off { 10.0 } else { 1.0 }).clamp(-0.5, 0.5)
            }
        }
    }
}

/// A run on a noisy machine: the whole run is some percent slower or faster and does slightly more
/// or less work, each function varies further, durations of calls vary widely, and some calls are
/// preempted for milliseconds.
fn run(random: &mut Random, is_changed: bool, noise: Noise) -> Profile {
    let machine = 1.0 + 0.02 * random.normal();
    let work = 1.0 + 0.01 * random.normal();
    made_up((0..FUNCTIONS).map(|function| {
        let name = format!("f{function}");
        let mut calls = (500.0 + 20.0 * function as f64) * work;
        let mut mean = (200.0 + 37.0 * function as f64) * machine * (1.0 + noise.of(function, random));
        if is_changed && function == SLOWER {
            mean *= 1.05;
        }
        // Counts vary slightly between runs, too.
        calls *= 1.0 + 0.2 * noise.of(function, random);
        if is_changed && function == MORE_OFTEN {
            calls *= 1.01;
        }
        let times: Vec<u64> = (0..calls.round() as usize)
            .map(|_| {
                let preempted = if random.part() < 0.000_5 { 4e6 * random.part() } else { 0.0 };
                (mean * (0.3 * random.normal()).exp() + preempted) as u64
            })
            .collect();
        (FunctionIdentity { name, ..FunctionIdentity::default() }, times)
    }))
}

/// The findings in `count` tries: names with what changed.
fn tries(count: u64, is_changed: bool, noise: Noise) -> Vec<Vec<String>> {
    (0..count)
        .map(|seed| {
            let random = &mut Random::new(seed + 1);
            let old: Vec<Profile> = (0..RUNS).map(|_| run(random, false, noise)).collect();
            let new: Vec<Profile> = (0..RUNS).map(|_| run(random, is_changed, noise)).collect();
            let diff = Diff::of(&old, &new);
            let found = |row: &DiffRow| {
                let name = &row.function.identity.name;
                let of = [("calls", row.calls), ("own", row.own)];
                of.map(|(what, change)| change.filter(|it| it.is_found).map(|_| format!("{what}({name})")))
            };
            let mut found: Vec<String> = diff.rows.iter().flat_map(found).flatten().collect();
            found.sort();
            found
        })
        .collect()
}

fn number_of_tries() -> u64 {
    std::env::var("EVERYCALL_DIFF_TRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

#[test]
fn only_the_slower_function_and_the_one_called_more_often_are_reported() {
    let count = number_of_tries();
    let expected = vec![format!("calls(f{MORE_OFTEN})"), format!("own(f{SLOWER})")];
    let found = tries(count, true, Noise::Even);
    let right = found.iter().filter(|found| **found == expected).count() as u64;
    let wrong: Vec<_> = found.iter().filter(|found| **found != expected).collect();
    assert!(right * 100 >= count * 95, "{right} of {count}: {wrong:?}");
}

#[test]
fn equal_runs_have_no_significant_change() {
    let count = number_of_tries();
    for noise in [Noise::Even, Noise::Uneven] {
        let found = tries(count, false, noise);
        let right = found.iter().filter(|found| found.is_empty()).count() as u64;
        let wrong: Vec<_> = found.iter().filter(|found| !found.is_empty()).collect();
        assert!(right * 100 >= count * 95, "{right} of {count}: {wrong:?}");
    }
}

#[test]
fn a_change_of_all_functions_is_reported_once() {
    let random = &mut Random::new(77);
    let old: Vec<Profile> = (0..RUNS).map(|_| run(random, false, Noise::Even)).collect();
    let all_slower = |random: &mut Random| {
        let of = run(random, false, Noise::Even);
        made_up(of.rows(Order::Calls).into_iter().map(|row| {
            let crate::profile::Key::Function(number) = row.key else { panic!() };
            let identity = of.functions().get(*number).unwrap().identity.clone();
            let times = row.sums.times.values();
            let slower = |(value, count): (u64, u64)| std::iter::repeat_n(value + value / 5, count as usize);
            (identity, times.flat_map(slower).collect())
        }))
    };
    let new: Vec<Profile> = (0..RUNS).map(|_| all_slower(random)).collect();
    let diff = Diff::of(&old, &new);
    let common = diff.common_time.unwrap();
    assert!((common.change - 0.2).abs() < 0.04, "{common:?}");
    let (low, high) = common.interval.unwrap();
    assert!(low < 0.2 && 0.2 < high && low > 0.1, "{common:?}");
    assert!(diff.rows.iter().all(|row| !row.is_found()));
}

fn simple(name: &str, module: &str, file: &str, calls: usize) -> (FunctionIdentity, Vec<u64>) {
    let identity = FunctionIdentity {
        name: name.to_owned(),
        module: module.to_owned(),
        file: Some(file.to_owned()),
        line: Some(calls as u32),
        part: None,
    };
    (identity, vec![10; calls])
}

#[test]
fn functions_are_found_again_in_another_build() {
    let old = made_up([
        simple("f()", "app-1", "/old/src/a.cpp", 3),
        simple("s()", "app-1", "/old/src/a.cpp", 1),
        simple("s()", "app-1", "/old/src/b.cpp", 2),
    ]);
    let new = made_up([
        simple("f()", "app-2", "/new/src/a.cpp", 5),
        simple("s()", "app-2", "/new/src/b.cpp", 4),
        simple("g()", "app-2", "/new/src/a.cpp", 7),
    ]);
    let diff = Diff::of(&[old], &[new]);
    let mut rows: Vec<_> = diff
        .rows
        .iter()
        .map(|row| (row.function.identity.name.as_str(), row.old.calls, row.new.calls))
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, [("f()", 3, 5), ("g()", 0, 7), ("s()", 1, 0), ("s()", 2, 4)]);
    assert_eq!(diff.common, 2);
    // With single runs, no change is significant.
    assert!(diff.rows.iter().all(|row| !row.is_found()));
}

#[test]
fn exact_counts_that_differ_are_found_and_equal_ones_are_not() {
    let side = |calls: usize| {
        (0..3)
            .map(|_| made_up([simple("f", "a", "a.c", calls), simple("g", "a", "a.c", 9)]))
            .collect::<Vec<_>>()
    };
    let diff = Diff::of(&side(100), &side(101));
    let row = |name: &str| diff.rows.iter().find(|row| row.function.identity.name == name).unwrap();
    let calls = row("f").calls.unwrap();
    assert!(calls.is_found && (calls.change - 0.01).abs() < 1e-9, "{calls:?}");
    assert!(!row("g").is_found());
    assert_eq!(diff.rows[0].function.identity.name, "f");
}

#[test]
fn changes_that_bounds_allow_to_be_none_are_none() {
    let sums = |own_ns: u64, (low, high): (u64, u64)| Sums {
        calls: 10,
        own_ns,
        total_ns: own_ns,
        bounds: SumBounds::of_numbers([low, own_ns, high, low, own_ns, high]),
        ..Sums::default()
    };
    let may_be_same = |old: Sums, new: Sums| {
        let function = Function::default();
        DiffRow { function, old, new, calls: None, own: None }.may_be_same()
    };
    assert!(may_be_same(sums(1000, (900, 1100)), sums(1200, (1050, 1300))));
    assert!(!may_be_same(sums(1000, (900, 1100)), sums(1200, (1110, 1300))));
    let exact = |own_ns| Sums { calls: 10, own_ns, total_ns: own_ns, ..Sums::default() };
    assert!(may_be_same(exact(1000), sums(1200, (990, 1300))));
    assert!(!may_be_same(exact(1000), exact(1000)), "decided by statistics alone");
}
