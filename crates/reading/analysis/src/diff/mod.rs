//! Finds what changed between runs.
//!
//! The run is the unit: calls within one run aren't independent, because a neighbour's load or a
//! cold cache slows many of them down at once. For each function, each run gives a number of calls
//! and the own time in the middle of its calls: the mean of the middle fifth of them, which
//! preemptions don't reach. The logarithms of these numbers are compared by Welch's t-test. The
//! results are corrected for multiple comparisons (Holm): over all functions and both numbers, the
//! probability of any false finding is at most [`ALPHA`].
//!
//! - The own time of calls is compared, not their total time: a slower function makes all of its
//!   callers slower, and only that function should be reported. Where thread states are known, it is
//!   without the time in which the thread waited for a CPU.
//! - Where events had no times of their own, own times have bounds. A change that these bounds allow
//!   to be none isn't significant.
//! - If there are at least [`COMMON_MIN`] functions, changes are relative to all functions of the
//!   same run: what makes the whole run slower or longer is not a change of a single function. It
//!   is reported as a change of all functions, see [`Diff::common_time`] and
//!   [`Diff::common_calls`].
//! - A change that preemptions may explain isn't significant (`preemption.rs`).
//! - Between both sides, the machine may have changed. How far the changes of all functions spread,
//!   beyond what runs of one side explain, is added to the uncertainty of each
//!   ([`Diff::machine_spread`]); where there are too few functions, it is assumed, unless the runs
//!   of both sides alternate.

mod align;
mod condition;
mod machine;
mod preemption;
mod stats;
mod verdict;

use rustc_hash::FxHashMap;

pub use align::align;
pub use condition::{Condition, Limit, Relation};
use everycall_profile::{Function, Order, Profile, Sums};
use machine::Machine;
use stats::{Difference, Sample, Uncertainty, holm, median, quantile};
pub use verdict::{Decision, Doubt, Verdict};

/// The largest probability of reporting any change where there is none.
pub const ALPHA: f64 = 0.01;
/// With fewer functions in common, each is compared by itself: the median could be a function that
/// changed.
pub const COMMON_MIN: usize = 8;

/// A relative change, such as 0.05 for 5 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The measured one.
    pub change: f64,
    /// The 95 % confidence interval; `None` with single runs.
    pub interval: Option<(f64, f64)>,
    /// The probability of such a change where there is none; `None` with single runs.
    pub p: Option<f64>,
    /// Whether it is significant, corrected for all functions.
    pub is_found: bool,
}

impl Change {
    fn of_logarithms(difference: Difference) -> Change {
        let (low, high) = difference.interval;
        let interval = Some((low.exp_m1(), high.exp_m1()));
        Change { change: difference.difference.exp_m1(), interval, p: Some(difference.p), is_found: false }
    }
}

/// One function in the old and the new runs.
#[derive(Clone, Debug)]
pub struct DiffRow {
    /// The function as the new runs know it, or the old ones if the new ones lack it.
    pub function: Function,
    /// Sums of all old runs.
    pub old: Sums,
    /// Sums of all new runs.
    pub new: Sums,
    /// Change of the number of calls per run, relative to all functions.
    pub calls: Option<Change>,
    /// Change of the own time per call, relative to all functions.
    pub own: Option<Change>,
    /// Sums by run, those of the old runs first.
    pub by_run: Vec<Sums>,
}

impl DiffRow {
    /// Additional nanoseconds that a new run spends in the function itself.
    #[must_use]
    pub fn more_own_ns(&self, diff: &Diff) -> f64 {
        self.more_own_ns_of(diff.old_runs, diff.new_runs)
    }

    fn more_own_ns_of(&self, old_runs: usize, new_runs: usize) -> f64 {
        let per_run = |sums: &Sums, runs: usize| sums.own_ns as f64 / runs.max(1) as f64;
        per_run(&self.new, new_runs) - per_run(&self.old, old_runs)
    }

    /// Whether the bounds of both own times per call overlap: they may be the same.
    #[must_use]
    fn may_be_same(&self) -> bool {
        let per_call = |sums: &Sums| {
            let calls = sums.calls.max(1) as f64;
            let own = sums.own();
            (own.low as f64 / calls, own.high as f64 / calls)
        };
        let (old, new) = (per_call(&self.old), per_call(&self.new));
        (self.old.has_bounds() || self.new.has_bounds()) && old.0 <= new.1 && new.0 <= old.1
    }

    /// Whether a change is significant.
    #[must_use]
    pub fn is_found(&self) -> bool {
        [self.calls, self.own].iter().flatten().any(|change| change.is_found)
    }
}

/// Differences between runs.
#[derive(Clone, Debug)]
pub struct Diff {
    /// All functions: those with significant changes first, then by the change of their own time
    /// per run.
    pub rows: Vec<DiffRow>,
    /// Number of old runs.
    pub old_runs: usize,
    /// Number of new runs.
    pub new_runs: usize,
    /// Number of functions that both sides have.
    pub common: usize,
    /// Change of all functions' own times, if it was used as reference.
    pub common_time: Option<Change>,
    /// Change of all functions' calls, if it was used as reference.
    pub common_calls: Option<Change>,
    /// The smallest change of an own time, as a part of it, that would be significant in a typical
    /// function; `None` with single runs.
    pub smallest_found: Option<f64>,
    /// How far runs of one side differ in the own time of a typical function, as a standard
    /// deviation; `None` with single runs.
    pub run_spread: Option<f64>,
    /// Whether the runs of both sides were recorded alternately.
    pub alternate: bool,
    machine: Machine,
    /// How far each run differs from the others, as logarithms of own times.
    common_times: Option<Vec<f64>>,
}

/// The numbers of one function, by run.
struct Measured {
    /// Calls.
    calls: Vec<f64>,
    /// Own nanoseconds of a call, if the function was called.
    own: Vec<Option<f64>>,
}

impl Measured {
    fn mean_calls(&self) -> f64 {
        self.calls.iter().sum::<f64>() / self.calls.len().max(1) as f64
    }

    /// The variance of the logarithm of a run's own time that rounding alone makes: times are whole
    /// nanoseconds, in buckets of 1/128 at most.
    fn floor_of_times(&self) -> f64 {
        let known: Vec<f64> = self.own.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        (1.0 / mean.max(0.1)).max(1.0 / 128.0).powi(2) / 12.0
    }
}

/// Times below a nanosecond are stored as 0.
fn logarithm_of_time(ns: f64) -> f64 {
    ns.max(0.1).ln()
}

impl Diff {
    /// Compares old runs with new ones. The profiles must be grouped by function and made by
    /// [`Profile::with_own_times`]. `alternate`: old and new runs were recorded alternately.
    #[must_use]
    pub fn of(old: &[Profile], new: &[Profile], alternate: bool) -> Diff {
        let functions = align(old, new);
        let (old_runs, new_runs) = (old.len(), new.len());
        let mut rows = Vec::new();
        let mut measured = Vec::new();
        let mut common = 0;
        for function in functions {
            let mut numbers = Measured { calls: Vec::new(), own: Vec::new() };
            let (mut sum_old, mut sum_new) = (Sums::default(), Sums::default());
            for (run, sums) in function.by_run.iter().enumerate() {
                let of_side = if run < old_runs { &mut sum_old } else { &mut sum_new };
                of_side.add(sums);
                numbers.calls.push(sums.calls as f64);
                numbers.own.push(sums.own_times.middle_mean());
            }
            common += usize::from(sum_old.calls > 0 && sum_new.calls > 0);
            rows.push(DiffRow {
                function: function.function,
                old: sum_old,
                new: sum_new,
                calls: None,
                own: None,
                by_run: function.by_run,
            });
            measured.push(numbers);
        }
        let machine = if alternate { Machine::SAME } else { Machine::ASSUMED };
        let mut diff = Diff {
            rows,
            old_runs,
            new_runs,
            common,
            common_time: None,
            common_calls: None,
            smallest_found: None,
            run_spread: None,
            alternate,
            machine,
            common_times: None,
        };
        diff.test(&measured);
        diff.sort();
        diff
    }

    fn test(&mut self, measured: &[Measured]) {
        let runs = self.old_runs + self.new_runs;
        let calls: Vec<Vec<Option<f64>>> = measured
            .iter()
            .map(|of| of.calls.iter().map(|calls| (*calls > 0.0).then(|| calls.ln())).collect())
            .collect();
        let times: Vec<Vec<Option<f64>>> =
            measured.iter().map(|of| of.own.iter().map(|own| own.map(logarithm_of_time)).collect()).collect();
        let common_calls = common(&calls, runs);
        let common_times = common(&times, runs);
        self.common_calls = common_calls.as_deref().and_then(|of| self.change(of, 0.0, None));
        self.common_time = common_times.as_deref().and_then(|of| self.change(of, 0.0, None));
        let times: Vec<Option<Vec<f64>>> =
            times.iter().map(|of| relative(of, common_times.as_deref())).collect();
        self.common_times = common_times;
        self.judge_the_machine(&times, measured);
        let varies = self.counts_vary(measured);
        for (row, of) in measured.iter().enumerate() {
            let floor = if varies { self.floor_of_counts() } else { 0.0 };
            let change_calls = match relative(&calls[row], common_calls.as_deref()) {
                Some(values) => self.change(&values, floor / of.mean_calls().max(1.0).powi(2), None),
                None => self.change_of_counts(&of.calls, floor),
            };
            let own = times[row].as_ref();
            let own = own.and_then(|values| self.change(values, of.floor_of_times(), Some(self.machine)));
            (self.rows[row].calls, self.rows[row].own) = (change_calls, own);
        }
        self.mark();
        self.judge_the_noise(&times, measured);
    }

    /// Marks the significant changes.
    fn mark(&mut self) {
        let mut changes: Vec<&mut Change> =
            self.rows.iter_mut().flat_map(|row| [row.calls.as_mut(), row.own.as_mut()]).flatten().collect();
        changes.retain(|change| change.p.is_some());
        let likelihoods: Vec<f64> = changes.iter().filter_map(|change| change.p).collect();
        for (change, is_found) in changes.into_iter().zip(holm(&likelihoods, ALPHA)) {
            change.is_found = is_found;
        }
        let common = self.common_time.map_or(0.0, |common| common.change.ln_1p());
        for row in &mut self.rows {
            let may_be_same = row.may_be_same() || preemption::explains(&row.old, &row.new, common);
            if let Some(own) = &mut row.own {
                own.is_found &= !may_be_same;
            }
        }
    }

    /// How much the machine differed between both sides, by the changes of all functions.
    fn judge_the_machine(&mut self, times: &[Option<Vec<f64>>], measured: &[Measured]) {
        if self.common_times.is_none() {
            return;
        }
        let changes = times.iter().zip(measured).filter_map(|(values, of)| {
            let (old, new) = self.samples(values.as_ref()?, of.floor_of_times())?;
            Some((new.mean - old.mean, Uncertainty::between(old, new)?))
        });
        self.machine = Machine::of(&changes.collect::<Vec<_>>());
    }

    /// How large a change has to be to be found.
    fn judge_the_noise(&mut self, times: &[Option<Vec<f64>>], measured: &[Measured]) {
        let tests = self.rows.iter().flat_map(|row| [row.calls, row.own]).flatten().count();
        let samples: Vec<(Sample, Sample)> = times
            .iter()
            .zip(measured)
            .filter_map(|(values, of)| self.samples(values.as_ref()?, of.floor_of_times()))
            .collect();
        let needed = samples.iter().filter_map(|(old, new)| {
            let of = Uncertainty::between(*old, *new)?.and(self.machine.of_functions);
            Some(quantile(ALPHA / tests.max(1) as f64, of.degrees) * of.variance.sqrt())
        });
        self.smallest_found = median(needed.collect()).map(f64::exp_m1);
        let variances = samples.iter().flat_map(|(old, new)| [old.variance, new.variance]);
        self.run_spread = median(variances.filter(|of| of.is_finite()).collect()).map(f64::sqrt);
    }

    /// The logarithms of both sides. `floor`: the variance that single runs have at least.
    fn samples(&self, values: &[f64], floor: f64) -> Option<(Sample, Sample)> {
        let (old, new) = values.split_at(self.old_runs);
        Some((Sample::of(old)?.with_at_least(floor), Sample::of(new)?.with_at_least(floor)))
    }

    /// The change between both sides, from the logarithms of each run.
    fn change(&self, values: &[f64], floor: f64, machine: Option<Machine>) -> Option<Change> {
        let (old, new) = self.samples(values, floor)?;
        let difference = new.mean - old.mean;
        Some(match Uncertainty::between(old, new) {
            Some(of_runs) => {
                let all = machine.map_or(of_runs, |machine| of_runs.and(machine.of_functions));
                Change::of_logarithms(all.of_difference(difference))
            }
            None => Change { change: difference.exp_m1(), interval: None, p: None, is_found: false },
        })
    }

    /// The change of counts, some of which are 0.
    fn change_of_counts(&self, counts: &[f64], floor: f64) -> Option<Change> {
        let (old, new) = self.samples(counts, floor)?;
        let part = |difference: f64| if old.mean > 0.0 { difference / old.mean } else { f64::INFINITY };
        let difference = Uncertainty::between(old, new).map(|of| of.of_difference(new.mean - old.mean));
        Some(Change {
            change: if new.mean == old.mean { 0.0 } else { part(new.mean - old.mean) },
            interval: difference
                .filter(|_| old.mean > 0.0)
                .map(|difference| (part(difference.interval.0), part(difference.interval.1))),
            p: difference.map(|difference| difference.p),
            is_found: false,
        })
    }

    /// Whether any number of calls differs between runs of one side: then equal ones may be chance.
    fn counts_vary(&self, measured: &[Measured]) -> bool {
        measured.iter().any(|of| {
            let (old, new) = of.calls.split_at(self.old_runs);
            [old, new].iter().any(|side| side.iter().any(|calls| Some(calls) != side.first()))
        })
    }

    /// The variance of counts that are equal in all runs of a side: the next run may have one call
    /// more or less, with the probability of Laplace's rule of succession.
    fn floor_of_counts(&self) -> f64 {
        let fewest = self.old_runs.min(self.new_runs);
        1.0 / (fewest as f64 + 2.0)
    }

    /// How far the machine changed functions differently between both sides, as a standard
    /// deviation; `None` where too few functions show it.
    #[must_use]
    pub fn machine_spread(&self) -> Option<f64> {
        (!self.machine.is_assumed).then(|| self.machine.of_functions.variance.sqrt())
    }

    fn sort(&mut self) {
        let (old_runs, new_runs) = (self.old_runs, self.new_runs);
        self.rows.sort_by(|one, other| {
            let found = other.is_found().cmp(&one.is_found());
            let more = |row: &DiffRow| row.more_own_ns_of(old_runs, new_runs).abs();
            found
                .then_with(|| more(other).total_cmp(&more(one)))
                .then_with(|| one.function.identity.cmp(&other.function.identity))
        });
    }

    /// A number of a function in an average run; percentiles and the like are over all calls.
    #[must_use]
    pub fn number(&self, order: Order, sums: &Sums, is_new: bool) -> f64 {
        let runs = if is_new { self.new_runs } else { self.old_runs }.max(1) as f64;
        let number = order.number(sums) as f64;
        match order {
            Order::Calls
            | Order::AllCalls
            | Order::OwnTime
            | Order::TotalTime
            | Order::Unwound
            | Order::Running
            | Order::Runnable
            | Order::Blocked
            | Order::Voluntary
            | Order::Involuntary => number / runs,
            order if order.is_memory() => number / runs,
            _ => number,
        }
    }
}

/// How far each run differs from the others: the median distance from the mean, over the functions
/// that all runs have.
fn common(values: &[Vec<Option<f64>>], runs: usize) -> Option<Vec<f64>> {
    let whole: Vec<Vec<f64>> = values
        .iter()
        .filter_map(|of| of.iter().copied().collect::<Option<Vec<f64>>>())
        .map(|of| {
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            of.into_iter().map(|value| value - mean).collect()
        })
        .collect();
    if whole.len() < COMMON_MIN {
        return None;
    }
    (0..runs).map(|run| median(whole.iter().map(|of| of[run]).collect())).collect()
}

/// The values relative to the common ones; `None` if one is missing.
fn relative(values: &[Option<f64>], common: Option<&[f64]>) -> Option<Vec<f64>> {
    let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
    Some(match common {
        Some(common) => values.iter().zip(common).map(|(value, common)| value - common).collect(),
        None => values,
    })
}

/// The sums of one function, run by run: the old ones first.
pub struct Aligned {
    /// The function as the last run that has it knows it.
    pub function: Function,
    /// By run.
    pub by_run: Vec<Sums>,
}

type ByKey<K> = FxHashMap<K, usize>;

#[cfg(test)]
mod tests;
