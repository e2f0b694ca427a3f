//! Comparisons of runs that are generated from seeds.

use super::*;
use crate::testing::made_up;
use everycall_profile::{FunctionIdentity, SumBounds};

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
/// The function that becomes 8 % slower, and the one that is called 1 % more often.
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
            mean *= 1.08;
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
            let diff = Diff::of(&old, &new, false);
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
    std::env::var("EVERYCALL_DIFF_TRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
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
            let everycall_profile::Key::Function(number) = row.key else { panic!() };
            let identity = of.functions().get(*number).unwrap().identity.clone();
            let times = row.sums.times.values();
            let slower = |(value, count): (u64, u64)| std::iter::repeat_n(value + value / 5, count as usize);
            (identity, times.flat_map(slower).collect())
        }))
    };
    let new: Vec<Profile> = (0..RUNS).map(|_| all_slower(random)).collect();
    let diff = Diff::of(&old, &new, false);
    let common = diff.common_time.unwrap();
    assert!((common.change - 0.2).abs() < 0.04, "{common:?}");
    let (low, high) = common.interval.unwrap();
    assert!(low < 0.2 && 0.2 < high && low > 0.1, "{common:?}");
    assert!(diff.rows.iter().all(|row| !row.is_found()));
}

/// A machine that does other things at the same time, more or less of them while the new runs are
/// recorded than while the old ones were.
struct BusyMachine {
    functions: Vec<SimulatedFunction>,
    sides: [Load; 2],
    /// For how long a thread has the CPU.
    slice_ns: f64,
}

/// A function, and how the machine changes it.
struct SimulatedFunction {
    ns: f64,
    calls: u64,
    /// How far its calls differ, and its runs.
    call_spread: f64,
    run_spread: f64,
    /// How much a neighbour that shares caches and cores slows it down.
    sensitivity: f64,
}

/// The load of other programs.
#[derive(Clone, Copy)]
struct Load {
    /// Other threads on the CPU.
    threads: f64,
    /// How much of the shared caches and cores they take.
    contention: f64,
}

/// A usual time slice.
const TIME_SLICE_NS: f64 = 3e6;
const BUSY_FUNCTIONS: usize = 12;
/// The function that changes, if one does.
const CHANGED: usize = 3;

impl BusyMachine {
    /// `longest` is the own time of its longest functions: the longer, the more often neighbours
    /// interrupt a call.
    fn new(longest: f64, slice_ns: f64, random: &mut Random) -> BusyMachine {
        let shortest = 20.0;
        let powers = (longest / shortest).log10();
        let load = |random: &mut Random| {
            let threads = [0.0, 1.0, 5.0][(random.part() * 3.0) as usize];
            Load { threads, contention: 0.3 * threads / 5.0 * random.part() }
        };
        let old = load(random);
        let new = if random.part() < 0.5 { Load { ..old } } else { load(random) };
        let function = |random: &mut Random| SimulatedFunction {
            ns: shortest * 10_f64.powf(powers * random.part()),
            calls: 10 + (40.0 * random.part()) as u64,
            call_spread: 0.1 + 0.4 * random.part(),
            run_spread: 0.003 * 10_f64.powf(1.3 * random.part()),
            sensitivity: if random.part() < 0.1 { 0.6 } else { 0.2 * random.part() },
        };
        let functions = (0..BUSY_FUNCTIONS).map(|_| function(random)).collect();
        BusyMachine { functions, sides: [old, new], slice_ns }
    }

    /// Runs of one side; the changed function takes `factor` times as long.
    fn runs(&self, side: usize, count: usize, factor: f64, random: &mut Random) -> Vec<Profile> {
        (0..count).map(|_| self.run(self.sides[side], factor, random)).collect()
    }

    fn run(&self, load: Load, factor: f64, random: &mut Random) -> Profile {
        let frequency = 0.02 * random.normal();
        let contention = load.contention + 0.1 * load.threads / 5.0 * random.normal();
        made_up(self.functions.iter().enumerate().map(|(number, of)| {
            let slower = frequency + of.sensitivity * contention + of.run_spread * random.normal();
            let mean = of.ns * slower.exp() * if number == CHANGED { factor } else { 1.0 };
            // For a while, a neighbour is busier: the calls of that time aren't independent.
            let begin = (random.part() * of.calls as f64) as u64;
            let phase = begin..begin + (0.3 * random.part() * of.calls as f64) as u64;
            let in_phase = 1.0 + of.sensitivity * random.part();
            let call = |place: u64| {
                let mut ns = mean * (of.call_spread * random.normal()).exp();
                ns *= if phase.contains(&place) { in_phase } else { 1.0 };
                let slices = ns / self.slice_ns;
                if load.threads > 0.0 && random.part() < slices.min(1.0) {
                    ns -= self.slice_ns * load.threads * slices.max(1.0) * random.part().max(1e-9).ln();
                }
                ns as u64
            };
            let identity = FunctionIdentity { name: format!("f{number}"), ..FunctionIdentity::default() };
            (identity, (0..of.calls).map(call).collect())
        }))
    }
}

/// Counts of comparisons on simulated machines, by their result.
#[derive(Debug, Default)]
struct Outcomes {
    /// Intervals, and those with the true change in them.
    intervals: u64,
    right_intervals: u64,
    /// Machines on which an unchanged function was found.
    false_alarms: u64,
    /// Machines on which the changed function was found, with the right sign and with the wrong
    /// one.
    found: u64,
    found_wrong: u64,
    /// Results of `own(f) > +10%` for the changed function.
    holds: u64,
    holds_not: u64,
}

fn outcomes((longest, slice_ns): (f64, f64), machines: u64, runs: usize, factor: f64) -> Outcomes {
    let mut all = Outcomes::default();
    let condition = Condition::parse("p50(f3) > +10%").unwrap();
    for seed in 0..machines {
        let random = &mut Random::new(seed + 1);
        let machine = BusyMachine::new(longest, slice_ns, random);
        let old = machine.runs(0, runs, 1.0, random);
        let new = machine.runs(1, runs, factor, random);
        let diff = Diff::of(&old, &new, false);
        let mut has_false = false;
        for row in &diff.rows {
            let is_changed = row.function.identity.name == format!("f{CHANGED}");
            let own = row.own.unwrap();
            let truth = if is_changed { factor - 1.0 } else { 0.0 };
            let (low, high) = own.interval.unwrap();
            all.intervals += 1;
            all.right_intervals += u64::from(low <= truth && truth <= high);
            if is_changed && factor != 1.0 {
                all.found += u64::from(own.is_found && own.change > 0.0);
                all.found_wrong += u64::from(own.is_found && own.change < 0.0);
            } else {
                has_false |= row.is_found();
            }
            if is_changed {
                match diff.decide(&condition, row, 1).verdict {
                    Verdict::Holds => all.holds += 1,
                    Verdict::HoldsNot => all.holds_not += 1,
                    Verdict::Undecided(_) => {}
                }
            }
        }
        all.false_alarms += u64::from(has_false);
    }
    all
}

/// Own times of the longest simulated function.
const LONGEST_NS: f64 = 632e3;

/// Where calls take up to 2 ms, busy neighbours interrupt most calls of the longest functions, on
/// one side only: that is no change, and a change is found all the same. So it is with short time
/// slices, where more calls are interrupted.
#[test]
fn a_neighbours_load_on_long_functions() {
    let machines = number_of_tries();
    for (slice_ns, runs, factor) in [
        (TIME_SLICE_NS, 3, 1.0),
        (TIME_SLICE_NS, 5, 1.0),
        (TIME_SLICE_NS, 10, 1.0),
        (TIME_SLICE_NS, 10, 1.5),
        (TIME_SLICE_NS, 5, 3.0),
        (1e6, 5, 1.0),
        (1e6, 10, 1.0),
        (1e6, 5, 3.0),
    ] {
        let all = outcomes((2e6, slice_ns), machines, runs, factor);
        let label = format!("{slice_ns} {runs} {factor}: {all:?}");
        let right = if slice_ns < TIME_SLICE_NS { 0.92 } else { 0.945 };
        assert!(all.right_intervals as f64 >= right * all.intervals as f64, "{label}");
        let mean = machines as f64 / 100.0;
        assert!(all.false_alarms as f64 <= mean + 3.0 * mean.sqrt(), "{label}");
        assert_eq!(all.found_wrong, 0, "{label}");
        if factor == 3.0 {
            assert!(all.found * 100 >= machines * 80, "{label}");
        }
    }
}

/// On busy machines: intervals hold, nothing is found where nothing changed, and what changed is.
#[test]
fn a_neighbours_load_is_no_change() {
    let machines = number_of_tries();
    for runs in [3, 5, 10] {
        for factor in [1.0, 1.5, 3.0] {
            let all = outcomes((LONGEST_NS, TIME_SLICE_NS), machines, runs, factor);
            // Of a hundred, and what chance adds in as many machines.
            let at_most = |count: u64, percent: f64| {
                let mean = machines as f64 * percent / 100.0;
                assert!(count as f64 <= mean + 3.0 * mean.sqrt(), "{runs} {factor}: {percent} %: {all:?}");
            };
            assert!(all.right_intervals as f64 >= 0.945 * all.intervals as f64, "{runs} {factor}: {all:?}");
            at_most(all.false_alarms, 1.0);
            assert_eq!(all.found_wrong, 0, "{runs} {factor}");
            if factor == 1.0 {
                at_most(all.holds, 1.0);
            }
            if factor == 1.5 {
                at_most(all.holds_not, 5.0);
            }
            if factor == 3.0 && runs >= 5 {
                assert!(all.found * 100 >= machines * 90, "{runs}: {all:?}");
            }
        }
    }
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
    let diff = Diff::of(&[old], &[new], false);
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
    let diff = Diff::of(&side(100), &side(101), false);
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
        DiffRow { function, old, new, calls: None, own: None, by_run: Vec::new() }.may_be_same()
    };
    assert!(may_be_same(sums(1000, (900, 1100)), sums(1200, (1050, 1300))));
    assert!(!may_be_same(sums(1000, (900, 1100)), sums(1200, (1110, 1300))));
    let exact = |own_ns| Sums { calls: 10, own_ns, total_ns: own_ns, ..Sums::default() };
    assert!(may_be_same(exact(1000), sums(1200, (990, 1300))));
    assert!(!may_be_same(exact(1000), exact(1000)), "decided by statistics alone");
}

/// Sources and programs get other names. Functions of equal names stay apart where they were.
#[test]
fn functions_are_found_again_under_other_names_of_files() {
    let run = |functions: &[(&str, &str, &str)]| {
        made_up(functions.iter().map(|(name, module, file)| {
            let (name, module) = (name.to_string(), format!("/build/{module}"));
            let file = Some(format!("/sources/{file}"));
            (FunctionIdentity { name, module, file, ..FunctionIdentity::default() }, vec![100; 3])
        }))
    };
    let old = [
        ("main", "app", "a.cpp"),
        ("init", "app", "a.cpp"),
        ("init", "app", "b.cpp"),
        ("old", "app", "a.cpp"),
    ];
    let new = [
        ("main", "app-2", "c.cpp"),
        ("init", "app-2", "a.cpp"),
        ("init", "app-2", "d.cpp"),
        ("new", "app-2", "a.cpp"),
    ];
    let aligned = align(&[run(&old)], &[run(&new)]);
    let mut found: Vec<(&str, [u64; 2])> = aligned
        .iter()
        .map(|of| (&of.function.identity.name[..], [0, 1].map(|run| of.by_run[run].calls)))
        .collect();
    found.sort_unstable();
    let both = [3, 3];
    assert_eq!(found, [("init", both), ("init", both), ("main", both), ("new", [0, 3]), ("old", [3, 0])]);
}
