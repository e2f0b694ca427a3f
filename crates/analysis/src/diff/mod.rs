//! Finds what changed between runs.
//!
//! For each function, each run gives a number of calls and an own time per call. The old and the
//! new runs are compared by Student's t-test of the logarithms. The variances are moderated by the
//! variance that is typical of all functions, as is done in genetics, where there are few samples
//! of many genes. The results are corrected for multiple comparisons (Holm): over all functions and
//! both numbers, the probability of any false finding is at most [`ALPHA`].
//!
//! - The own time of calls is compared, not their total time: a slower function makes all of its
//!   callers slower, and only that function should be reported.
//! - The slowest 2 of 100 calls are ignored: a preemption by another program is not a change of the
//!   function.
//! - Where events had no times of their own, own times have bounds. A change that these bounds allow
//!   to be none isn't significant.
//! - If there are at least [`COMMON_MIN`] functions, changes are relative to all functions of the
//!   same run: what makes the whole run slower or longer is not a change of a single function. It
//!   is reported as a change of all functions, see [`Diff::common_time`] and
//!   [`Diff::common_calls`].

mod align;
mod condition;
mod stats;

use rustc_hash::FxHashMap;

use crate::profile::{Function, Order, Profile, Sums};
pub use align::align;
pub use condition::{Condition, Limit, Relation};
pub use stats::{Difference, holm, quantile, two_sided};
use stats::{Sample, Usual, moderated, pooled, welch};

/// The largest probability of reporting any change where there is none.
pub const ALPHA: f64 = 0.01;
/// Of a hundred calls, the number of slowest ones that are ignored.
const TRIMMED: u64 = 2;
/// With fewer functions in common, each is compared by itself: the median could be a function that
/// changed.
pub const COMMON_MIN: usize = 8;

/// A relative change, such as 0.05 for 5 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The measured one.
    pub change: f64,
    /// The 95 % confidence interval; `None` if there are too few values.
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
}

impl DiffRow {
    /// Additional nanoseconds that a new run spends in the function itself.
    #[must_use]
    pub fn more_own_ns(&self, diff: &Diff) -> f64 {
        let per_run = |sums: &Sums, runs: usize| sums.own_ns as f64 / runs.max(1) as f64;
        per_run(&self.new, diff.new_runs) - per_run(&self.old, diff.old_runs)
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

/// What changed between runs.
#[derive(Clone, Debug, Default)]
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
}

/// The numbers of one function, by run.
struct Measured {
    /// Calls.
    calls: Vec<f64>,
    /// Own nanoseconds per call, if the function was called.
    own: Vec<Option<f64>>,
}

impl Diff {
    /// Compares old runs with new ones. The profiles must be grouped by function and made by
    /// [`Profile::with_own_times`].
    #[must_use]
    pub fn of(old: &[Profile], new: &[Profile]) -> Diff {
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
                numbers.own.push(sums.own_times.trimmed_mean(TRIMMED));
            }
            common += usize::from(sum_old.calls > 0 && sum_new.calls > 0);
            rows.push(DiffRow {
                function: function.function,
                old: sum_old,
                new: sum_new,
                calls: None,
                own: None,
            });
            measured.push(numbers);
        }
        let mut diff = Diff { rows, old_runs, new_runs, common, ..Diff::default() };
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
        // Times below a nanosecond are stored as 0.
        let times: Vec<Vec<Option<f64>>> = measured
            .iter()
            .map(|of| of.own.iter().map(|own| own.map(|own| own.max(0.1).ln())).collect())
            .collect();
        let common_calls = common(&calls, runs);
        let common_times = common(&times, runs);
        self.common_calls = common_calls.as_deref().and_then(|of| self.change(of, Usual::NONE));
        self.common_time = common_times.as_deref().and_then(|of| self.change(of, Usual::NONE));
        let usual = |values: &[Vec<Option<f64>>], common: Option<&[f64]>| {
            let whole = values.iter().filter_map(|of| relative(of, common));
            let samples: Vec<(f64, f64)> = whole.filter_map(|of| self.variance(&of)).collect();
            let variances: Vec<f64> = samples.iter().map(|(variance, _)| *variance).collect();
            Usual::of(&variances, samples.first().map_or(0.0, |(_, degrees)| *degrees))
        };
        let usual_calls = usual(&calls, common_calls.as_deref());
        let usual_times = usual(&times, common_times.as_deref());
        for (row, (of, of_calls, of_times)) in
            measured.iter().zip(&calls).zip(&times).map(|((a, b), c)| (a, b, c)).enumerate()
        {
            let change_calls = match relative(of_calls, common_calls.as_deref()) {
                Some(values) => self.change(&values, usual_calls),
                None => self.change_of_counts(&of.calls),
            };
            let own = relative(of_times, common_times.as_deref());
            let own = own
                .and_then(|values| self.change(&values, usual_times))
                .filter(|own| own.p.is_some())
                .or_else(|| self.within_runs(row));
            (self.rows[row].calls, self.rows[row].own) = (change_calls, own);
        }
        let mut changes: Vec<&mut Change> =
            self.rows.iter_mut().flat_map(|row| [row.calls.as_mut(), row.own.as_mut()]).flatten().collect();
        changes.retain(|change| change.p.is_some());
        let likelihoods: Vec<f64> = changes.iter().filter_map(|change| change.p).collect();
        for (change, is_found) in changes.into_iter().zip(holm(&likelihoods, ALPHA)) {
            change.is_found = is_found;
        }
        for row in &mut self.rows {
            let may_be_same = row.may_be_same();
            if let Some(own) = &mut row.own {
                own.is_found &= !may_be_same;
            }
        }
    }

    /// The change between both sides, from the logarithms of each run; `None` if one side has a
    /// single run.
    fn change(&self, values: &[f64], usual: Usual) -> Option<Change> {
        let (old, new) = values.split_at(self.old_runs);
        let (old, new) = (Sample::of(old)?, Sample::of(new)?);
        match moderated(old, new, usual) {
            Some(difference) => Some(Change::of_logarithms(difference)),
            None => Some(Change {
                change: (new.mean - old.mean).exp_m1(),
                interval: None,
                p: None,
                is_found: false,
            }),
        }
    }

    /// The variance of single runs, with its degrees of freedom.
    fn variance(&self, values: &[f64]) -> Option<(f64, f64)> {
        let (old, new) = values.split_at(self.old_runs);
        pooled(Sample::of(old)?, Sample::of(new)?)
    }

    /// The same for counts, some of which are 0.
    fn change_of_counts(&self, counts: &[f64]) -> Option<Change> {
        let (old, new) = counts.split_at(self.old_runs);
        let (old, new) = (Sample::of(old)?, Sample::of(new)?);
        let part = |difference: f64| if old.mean > 0.0 { difference / old.mean } else { f64::INFINITY };
        let difference = welch(old, new);
        Some(Change {
            change: if new.mean == old.mean { 0.0 } else { part(new.mean - old.mean) },
            interval: difference
                .filter(|_| old.mean > 0.0)
                .map(|difference| (part(difference.interval.0), part(difference.interval.1))),
            p: difference.map(|difference| difference.p),
            is_found: false,
        })
    }

    /// The change from the variance of calls within runs, for single runs, or if no side has the
    /// function in all of its runs.
    fn within_runs(&self, row: usize) -> Option<Change> {
        let row = &self.rows[row];
        let sample = |sums: &Sums| {
            let times = &sums.own_times;
            let mean = times.sum() as f64 / times.count() as f64;
            let deviation = times.deviation()?;
            (times.count() >= 30 && mean > 0.0).then_some(Sample {
                mean: mean.ln(),
                variance: (deviation / mean).powi(2),
                count: times.count() as f64,
            })
        };
        let difference = welch(sample(&row.old)?, sample(&row.new)?)?;
        // Runs differ by more than the variance of their calls shows: no probability can be given.
        Some(Change { p: None, ..Change::of_logarithms(difference) })
    }

    fn sort(&mut self) {
        let (old_runs, new_runs) = (self.old_runs, self.new_runs);
        let sides = Diff { old_runs, new_runs, ..Diff::default() };
        self.rows.sort_by(|one, other| {
            let found = other.is_found().cmp(&one.is_found());
            let more = |row: &DiffRow| row.more_own_ns(&sides).abs();
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
    let median = |run: usize| {
        let mut of_run: Vec<f64> = whole.iter().map(|of| of[run]).collect();
        of_run.sort_by(f64::total_cmp);
        let half = of_run.len() / 2;
        if of_run.len() % 2 == 1 { of_run[half] } else { (of_run[half - 1] + of_run[half]) / 2.0 }
    };
    Some((0..runs).map(median).collect())
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
