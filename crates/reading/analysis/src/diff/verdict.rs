//! Whether a condition holds between runs. The runs decide, not the calls: a neighbour's load makes
//! many calls of a run slow at once.

use super::condition::{Condition, Limit, Relation};
use super::stats::{Sample, Uncertainty, one_sided, quantile};
use super::{Diff, DiffRow};

/// The largest probability that any function meets a condition in the runs although it doesn't.
const HOLDS_FALSELY: f64 = 0.01;
/// The largest probability that a function doesn't meet it in the runs although it does.
const MISSED: f64 = 0.05;

/// Whether a condition holds, as far as the runs show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It is true.
    Holds,
    /// It isn't.
    HoldsNot,
    /// They can't tell.
    Undecided(Doubt),
}

/// Why runs can't tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// One run on each side doesn't show by how much runs differ.
    OneRun,
    /// The number lies between these with 95 % confidence: a change, or the number itself if the
    /// condition is about that.
    Noise(f64, f64),
    /// It changed as all functions did, by this part.
    AllFunctions(f64),
}

/// A verdict with the numbers of an average run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Whether it holds.
    pub verdict: Verdict,
    /// The mean of the old runs.
    pub old: f64,
    /// The mean of the new runs.
    pub new: f64,
}

/// How far a number is beyond the limit of a condition, if positive.
struct Margin {
    by: f64,
    uncertainty: Uncertainty,
    /// The limit's value, to which the margin is added.
    limit: f64,
    /// Margins are differences of logarithms.
    is_log: bool,
}

impl Diff {
    /// Decides a condition for one of `among` functions that it is about.
    #[must_use]
    pub fn decide(&self, condition: &Condition, row: &DiffRow, among: usize) -> Decision {
        let values: Vec<f64> = row.by_run.iter().map(|sums| condition.number.number(sums) as f64).collect();
        let (old, new) = values.split_at(self.old_runs);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let (mean_old, mean_new) = (mean(old), mean(new));
        let decided = |verdict| Decision { verdict, old: mean_old, new: mean_new };
        let by_means = match condition.holds(mean_old, mean_new) {
            true => Verdict::Holds,
            false => Verdict::HoldsNot,
        };
        let is_one_sided = [old, new].iter().any(|values| values.iter().all(|value| *value == 0.0));
        let is_change = condition.is_about_change();
        // Numbers that runs repeat exactly need no statistics, nor do functions that came or went;
        // and of a single number, its limit is what was measured.
        let is_exact = !condition.number.is_time() && is_constant(old) && is_constant(new);
        if is_exact || is_change && is_one_sided || !is_change && new.len() == 1 {
            return decided(by_means);
        }
        let Some(margin) = self.margin(condition, old, new) else {
            return decided(Verdict::Undecided(Doubt::OneRun));
        };
        let verdict = margin.verdict(condition, among);
        // Where all functions changed, program and machine can't be distinguished.
        let Some(common) = self.common_times.as_ref().filter(|_| is_change && condition.number.is_time())
        else {
            return decided(verdict);
        };
        let relative: Vec<f64> =
            values.iter().zip(common).map(|(value, common)| value / common.exp()).collect();
        let (old, new) = relative.split_at(self.old_runs);
        let other = self.margin(condition, old, new).map(|margin| margin.verdict(condition, among));
        let all = self.common_time.map_or(0.0, |common| common.change);
        decided(match (verdict, other) {
            (Verdict::Holds, Some(Verdict::HoldsNot)) | (Verdict::HoldsNot, Some(Verdict::Holds)) => {
                Verdict::Undecided(Doubt::AllFunctions(all))
            }
            (Verdict::Holds | Verdict::HoldsNot, Some(doubt @ Verdict::Undecided(_))) => doubt,
            _ => verdict,
        })
    }

    fn margin(&self, condition: &Condition, old: &[f64], new: &[f64]) -> Option<Margin> {
        let (is_change, is_time) = (condition.is_about_change(), condition.number.is_time());
        let (part, by) = match condition.limit {
            Limit::Part(part) => (1.0 + part, 0.0),
            Limit::By(by) => (1.0, by),
            Limit::Number(number) => (0.0, number),
        };
        let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let is_log = old.iter().chain(new).all(|value| *value > 0.0)
            && match condition.limit {
                Limit::Part(_) => part > 0.0,
                Limit::By(_) => false,
                Limit::Number(number) => number > 0.0,
            };
        let (old, new) = match is_log {
            true => (Sample::of(&logarithms(old))?, Sample::of(&logarithms(new))?),
            false => {
                (Sample::of(&old.iter().map(|value| part * value).collect::<Vec<_>>())?, Sample::of(new)?)
            }
        };
        let limit = match (is_log, is_change) {
            (true, true) => old.mean + part.ln(),
            (true, false) => by.ln(),
            (false, true) => old.mean + by,
            (false, false) => by,
        };
        let uncertainty =
            if is_change { Uncertainty::between(old, new)? } else { Uncertainty::of_mean(new)? };
        let machine = self.machine.of_functions;
        let of_machine = match is_change && is_time {
            true if is_log => machine.variance,
            true => machine.variance * new.mean.powi(2),
            false => 0.0,
        };
        let uncertainty = uncertainty.and(Uncertainty { variance: of_machine, ..machine });
        // The change itself, for messages.
        let limit_shown = match (is_log, is_change) {
            (true, true) => part.ln(),
            (true, false) => limit,
            (false, _) => by,
        };
        Some(Margin { by: new.mean - limit, uncertainty, limit: limit_shown, is_log })
    }
}

impl Margin {
    fn verdict(&self, condition: &Condition, among: usize) -> Verdict {
        let beyond = match condition.relation {
            Relation::Above => self.by,
            Relation::Below => -self.by,
        };
        let Uncertainty { variance, degrees } = self.uncertainty;
        let error = variance.sqrt();
        if error <= 0.0 {
            return if beyond > 0.0 { Verdict::Holds } else { Verdict::HoldsNot };
        }
        let t = beyond / error;
        if one_sided(t, degrees) < HOLDS_FALSELY / among.max(1) as f64 {
            Verdict::Holds
        } else if one_sided(-t, degrees) < MISSED {
            Verdict::HoldsNot
        } else {
            let reach = quantile(0.05, degrees) * error;
            let is_change = condition.is_about_change();
            let shown = |value: f64| match self.is_log {
                true if is_change => value.exp_m1(),
                true => value.exp(),
                false => value,
            };
            let middle = self.limit + self.by;
            Verdict::Undecided(Doubt::Noise(shown(middle - reach), shown(middle + reach)))
        }
    }
}

fn is_constant(values: &[f64]) -> bool {
    values.iter().all(|value| Some(value) == values.first())
}
