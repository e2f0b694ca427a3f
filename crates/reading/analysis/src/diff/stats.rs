//! Student's t: the probability of a difference where there is none, and the confidence interval of
//! a measured one.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Above, Student's t is the normal distribution, and the crate's quantiles become inaccurate.
const DEGREES_MAX: f64 = 1e5;

fn distribution(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees.clamp(1.0, DEGREES_MAX)).ok()
}

/// The probability of at least this t.
pub(crate) fn one_sided(t: f64, degrees: f64) -> f64 {
    if t.is_infinite() {
        return if t > 0.0 { 0.0 } else { 1.0 };
    }
    distribution(degrees).map_or(1.0, |student| student.sf(t))
}

/// The probability of a t that is at least as far from 0.
pub(crate) fn two_sided(t: f64, degrees: f64) -> f64 {
    (2.0 * one_sided(t.abs(), degrees)).min(1.0)
}

/// The t that is exceeded, on either side of 0, with this probability.
pub(crate) fn quantile(probability: f64, degrees: f64) -> f64 {
    distribution(degrees).map_or(f64::INFINITY, |student| -student.inverse_cdf(probability / 2.0))
}

/// A sample: mean, variance and number of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) mean: f64,
    /// Variance of single values; not a number for a single one.
    pub(crate) variance: f64,
    pub(crate) count: f64,
}

impl Sample {
    pub(crate) fn of(values: &[f64]) -> Option<Sample> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = if count > 1.0 { squares / (count - 1.0) } else { f64::NAN };
        Some(Sample { mean, variance, count })
    }

    /// At least this variance: values may be equal because they are rounded.
    pub(crate) fn with_at_least(self, variance: f64) -> Sample {
        // Not a number stays what it is.
        let variance = if self.variance < variance { variance } else { self.variance };
        Sample { variance, ..self }
    }
}

/// How far a difference may be off: the variance of its error, and how well this is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Uncertainty {
    pub(crate) variance: f64,
    pub(crate) degrees: f64,
}

impl Uncertainty {
    /// That of the difference between the means of two samples whose variances may differ. A single
    /// value has the variance of the other side; `None` if both sides are single values.
    pub(crate) fn between(old: Sample, new: Sample) -> Option<Uncertainty> {
        match (Uncertainty::of_mean(old), Uncertainty::of_mean(new)) {
            (Some(of_old), Some(of_new)) => Some(of_old.and(of_new)),
            (Some(of_old), None) => {
                Some(Uncertainty { variance: of_old.variance + old.variance / new.count, ..of_old })
            }
            (None, Some(of_new)) => {
                Some(Uncertainty { variance: of_new.variance + new.variance / old.count, ..of_new })
            }
            (None, None) => None,
        }
    }

    /// That of a sample's mean; `None` for a single value.
    pub(crate) fn of_mean(sample: Sample) -> Option<Uncertainty> {
        let degrees = sample.count - 1.0;
        (degrees > 0.0).then(|| Uncertainty { variance: sample.variance / sample.count, degrees })
    }

    /// Both together (Satterthwaite).
    pub(crate) fn and(self, other: Uncertainty) -> Uncertainty {
        let variance = self.variance + other.variance;
        if self.variance <= 0.0 || other.variance <= 0.0 {
            return if self.variance > other.variance { self } else { other };
        }
        let share = |of: Uncertainty| of.variance.powi(2) / of.degrees;
        Uncertainty { variance, degrees: variance.powi(2) / (share(self) + share(other)) }
    }

    /// Interval and probability of a measured difference.
    pub(crate) fn of_difference(self, difference: f64) -> Difference {
        let error = self.variance.sqrt();
        // Rounding: values that differ only in their last bits are equal.
        if error <= 1e-10 {
            let p = if difference.abs() <= 1e-9 { 1.0 } else { 0.0 };
            return Difference { difference, interval: (difference, difference), p };
        }
        let reach = quantile(0.05, self.degrees) * error;
        let p = two_sided(difference / error, self.degrees);
        Difference { difference, interval: (difference - reach, difference + reach), p }
    }
}

/// A difference with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The second mean minus the first.
    pub(crate) difference: f64,
    /// The 95 % confidence interval.
    pub(crate) interval: (f64, f64),
    /// The probability of such a difference where there is none.
    pub(crate) p: f64,
}

/// Which p-values are significant, corrected for multiple comparisons (Holm): without any true
/// difference, the probability of a single finding is at most `alpha`.
pub(crate) fn holm(likelihoods: &[f64], alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..likelihoods.len()).collect();
    order.sort_by(|one, other| likelihoods[*one].total_cmp(&likelihoods[*other]));
    let mut found = vec![false; likelihoods.len()];
    for (rank, index) in order.into_iter().enumerate() {
        if likelihoods[index] > alpha / (likelihoods.len() - rank) as f64 {
            break;
        }
        found[index] = true;
    }
    found
}

/// The middle one, or the mean of the two in the middle; `None` without values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_is_as_in_tables() {
        // Two-sided p-values, from printed tables of Student's t.
        for (t, degrees, likelihood) in [
            (12.706, 1.0, 0.05),
            (4.303, 2.0, 0.05),
            (2.228, 10.0, 0.05),
            (2.101, 18.0, 0.05),
            (3.922, 18.0, 0.001),
            (2.878, 18.0, 0.01),
            (1.960, 1e6, 0.05),
        ] {
            assert!((two_sided(t, degrees) / likelihood - 1.0).abs() < 2e-3, "{t} {degrees}");
            assert!((quantile(likelihood, degrees) / t - 1.0).abs() < 1e-3, "{t} {degrees}");
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
        assert!((two_sided(0.0, 3.0) - 1.0).abs() < 1e-12);
        // Far from 0, where corrections for many comparisons need it: 2 * pt(-10, 18) in R.
        assert!((two_sided(10.0, 18.0) / 8.9e-9 - 1.0).abs() < 0.02, "{}", two_sided(10.0, 18.0));
    }

    #[test]
    fn differences_are_as_calculated_by_hand() {
        let old = Sample::of(&[10.0, 11.0, 12.0, 13.0, 14.0]).unwrap();
        let new = Sample::of(&[20.0, 22.0, 24.0, 26.0, 28.0]).unwrap();
        let between = Uncertainty::between(old, new).unwrap();
        let difference = between.of_difference(new.mean - old.mean);
        // Standard error sqrt(2.5 / 5 + 10 / 5), 5.88 degrees of freedom: t = 7.589.
        assert!((difference.p - 0.000_304).abs() < 3e-5, "{difference:?}");
        let reach = (difference.interval.1 - difference.interval.0) / 2.0;
        assert!((reach - 2.459 * 2.5_f64.sqrt()).abs() < 0.01, "{reach}");
        // A variance of 2.5 with 4 degrees and one of 5 with 2: 7.5^2 / (2.5^2 / 4 + 5^2 / 2).
        let between = Uncertainty { variance: 2.5, degrees: 4.0 };
        let both = between.and(Uncertainty { variance: 5.0, degrees: 2.0 });
        assert!((both.variance - 7.5).abs() < 1e-12 && (both.degrees - 4.0).abs() < 1e-12, "{both:?}");
        let (one, other) = (Sample::of(&[1.0]).unwrap(), Sample::of(&[2.0]).unwrap());
        assert!(Uncertainty::between(one, other).is_none());
        let same = Sample::of(&[7.0, 7.0, 7.0]).unwrap();
        let exact = Uncertainty::between(same, same).unwrap();
        assert_eq!((exact.of_difference(0.0).p, exact.of_difference(1.0).p), (1.0, 0.0));
    }

    #[test]
    fn holm_takes_all_together() {
        assert_eq!(holm(&[0.02, 0.001, 0.04], 0.05), [true, true, true]);
        assert_eq!(holm(&[0.03, 0.001, 0.04], 0.05), [false, true, false]);
        assert_eq!(holm(&[0.02, 0.02, 0.02], 0.05), [false; 3]);
        assert!(holm(&[], 0.05).is_empty());
    }
}
