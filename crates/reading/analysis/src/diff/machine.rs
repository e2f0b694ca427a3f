//! Differences of the machine between the old and the new runs: both sides are often recorded one
//! after the other, and a neighbour's load, or the CPU's frequency, changes meanwhile. The
//! differences between the runs of one side don't contain that.

use super::stats::{Uncertainty, median};

/// The standard deviation of a normal distribution by the median distance from its middle.
const DEVIATION_BY_MEDIAN: f64 = 1.4826;
/// How much worth the spread of a function's change is: that of the median distance has 0.37 times
/// the efficiency of a standard deviation.
const EFFICIENCY: f64 = 0.37;
/// The assumption where nothing shows it: 10 % of a function's time, known as well as by five
/// values.
const ASSUMED: Uncertainty = Uncertainty { variance: 0.01, degrees: 4.0 };

/// How much the times of a function may differ between both sides because of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) of_functions: Uncertainty,
    /// Nothing in the runs shows it.
    pub(crate) is_assumed: bool,
}

impl Machine {
    /// Runs of both sides alternate in time, so the machine is the same for both.
    pub(crate) const SAME: Machine =
        Machine { of_functions: Uncertainty { variance: 0.0, degrees: 1.0 }, is_assumed: false };
    /// Too few functions show it.
    pub(crate) const ASSUMED: Machine = Machine { of_functions: ASSUMED, is_assumed: true };

    /// From the changes of many functions, relative to their common change, with the uncertainty
    /// that the runs of each side show. Most functions don't change; if their changes differ by
    /// more than their runs explain, the machine did it, and may have done as much to any of them.
    pub(crate) fn of(changes: &[(f64, Uncertainty)]) -> Machine {
        let spread = median(changes.iter().map(|(change, _)| change.abs()).collect()).unwrap_or(0.0);
        let explained = median(changes.iter().map(|(_, of)| of.variance).collect()).unwrap_or(0.0);
        let variance = ((DEVIATION_BY_MEDIAN * spread).powi(2) - explained).max(0.0);
        let degrees = (EFFICIENCY * (changes.len() as f64 - 1.0)).max(1.0);
        Machine { of_functions: Uncertainty { variance, degrees }, is_assumed: false }
    }
}
