//! Student's t-test: the probability of a difference where there is none, and the confidence
//! interval of a measured one.

/// ln of the gamma function (Lanczos; 15 digits).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let terms = COEFFICIENTS.iter().enumerate().skip(1).map(|(index, value)| value / (x + index as f64));
    let sum: f64 = COEFFICIENTS[0] + terms.sum::<f64>();
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularized incomplete beta function, by its continued fraction.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    const TINY: f64 = 1e-300;
    let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / not_zero(1.0 + term * d);
            c = not_zero(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// The two-sided p-value of Student's t.
#[must_use]
pub fn two_sided(t: f64, degrees: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The two-sided quantile of Student's t.
#[must_use]
pub fn quantile(likelihood: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, degrees) > likelihood && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, degrees) > likelihood { low = middle } else { high = middle }
    }
    high
}

/// The first and second derivative of [`ln_gamma`].
fn polygamma(mut x: f64) -> (f64, f64) {
    let (mut first, mut second) = (0.0, 0.0);
    while x < 10.0 {
        first -= 1.0 / x;
        second += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    first += x.ln() - 0.5 / x - y * (1.0 / 12.0 - y * (1.0 / 120.0 - y / 252.0));
    second += 1.0 / x + 0.5 * y + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y / 42.0));
    (first, second)
}

/// What the variances of many functions show about the variance of each: a typical variance, and
/// its weight in degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usual {
    pub(crate) variance: f64,
    pub(crate) degrees: f64,
}

impl Usual {
    /// No degrees of freedom: each variance is used unchanged.
    pub(crate) const NONE: Usual = Usual { variance: 0.0, degrees: 0.0 };
    /// With fewer variances, no typical one can be estimated.
    const VARIANCES_MIN: usize = 8;
    /// More degrees of freedom make no difference.
    const DEGREES_MAX: f64 = 1e4;

    /// Estimates it from variances with equal degrees of freedom (Smyth 2004, "Linear models and
    /// empirical Bayes methods", section 6.2). The less they vary beyond chance, the larger the
    /// weight of the typical variance.
    pub(crate) fn of(variances: &[f64], degrees: f64) -> Usual {
        let logarithms: Vec<f64> = variances.iter().filter(|of| **of > 1e-20).map(|of| of.ln()).collect();
        let count = logarithms.len() as f64;
        if logarithms.len() < Usual::VARIANCES_MIN || degrees <= 0.0 {
            return Usual::NONE;
        }
        let (first, second) = polygamma(degrees / 2.0);
        let mean = logarithms.iter().sum::<f64>() / count;
        let squares: f64 = logarithms.iter().map(|of| (of - mean).powi(2)).sum();
        let spread = squares / (count - 1.0) - second;
        let of_degrees = |degrees: f64| polygamma(degrees / 2.0);
        let (mut low, mut high) = (1e-3_f64, Usual::DEGREES_MAX);
        if spread > of_degrees(high).1 {
            for _ in 0..100 {
                let middle = (low * high).sqrt();
                if of_degrees(middle).1 > spread { low = middle } else { high = middle }
            }
        }
        let mean = mean - first + (degrees / 2.0).ln();
        let variance = (mean + of_degrees(high).0 - (high / 2.0).ln()).exp();
        Usual { variance, degrees: high }
    }
}

/// The pooled variance of single values on both sides, with its degrees of freedom.
pub(crate) fn pooled(old: Sample, new: Sample) -> Option<(f64, f64)> {
    let squares = |of: Sample| if of.count > 1.0 { of.variance * (of.count - 1.0) } else { 0.0 };
    let degrees = old.count + new.count - 2.0;
    (degrees > 0.0).then(|| ((squares(old) + squares(new)) / degrees, degrees))
}

/// Student's t-test with the variance moderated by the typical one; `None` if both sides are single
/// values.
pub(crate) fn moderated(old: Sample, new: Sample, usual: Usual) -> Option<Difference> {
    let (variance, degrees) = pooled(old, new)?;
    // Constant numbers are exact, whatever the other functions' variances are.
    if variance <= 1e-20 {
        return welch(old, new);
    }
    let all = degrees + usual.degrees;
    let variance = (variance * degrees + usual.variance * usual.degrees) / all;
    let error = (variance * (1.0 / old.count + 1.0 / new.count)).sqrt();
    let difference = new.mean - old.mean;
    let reach = quantile(0.05, all) * error;
    let p = two_sided(difference / error, all);
    Some(Difference { difference, interval: (difference - reach, difference + reach), p })
}

/// A sample: mean, variance and number of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) mean: f64,
    /// Variance of single values.
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
}

/// A difference with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The second mean minus the first.
    pub difference: f64,
    /// The 95 % confidence interval.
    pub interval: (f64, f64),
    /// The probability of such a difference where there is none.
    pub p: f64,
}

/// Welch's t-test. If one side is a single value, the other side's variance is used for both;
/// `None` if both are.
pub(crate) fn welch(old: Sample, new: Sample) -> Option<Difference> {
    let (of_old, of_new, degrees) = match (old.count > 1.0, new.count > 1.0) {
        (true, true) => {
            let (a, b) = (old.variance / old.count, new.variance / new.count);
            let degrees = (a + b).powi(2) / (a * a / (old.count - 1.0) + b * b / (new.count - 1.0));
            (a, b, degrees)
        }
        (true, false) => (old.variance / old.count, old.variance, old.count - 1.0),
        (false, true) => (new.variance, new.variance / new.count, new.count - 1.0),
        (false, false) => return None,
    };
    let difference = new.mean - old.mean;
    let error = (of_old + of_new).sqrt();
    // Rounding: values that differ only in their last bits are equal.
    let is_exact = error <= 1e-12 * old.mean.abs().max(new.mean.abs()).max(1.0);
    if is_exact {
        let p = if difference.abs() <= 1e-9 { 1.0 } else { 0.0 };
        return Some(Difference { difference, interval: (difference, difference), p });
    }
    let degrees = if degrees.is_finite() { degrees.max(1.0) } else { 1.0 };
    let reach = quantile(0.05, degrees) * error;
    let p = two_sided(difference / error, degrees);
    Some(Difference { difference, interval: (difference - reach, difference + reach), p })
}

/// Which p-values are significant, corrected for multiple comparisons (Holm): without any true
/// difference, the probability of a single finding is at most `alpha`.
#[must_use]
pub fn holm(likelihoods: &[f64], alpha: f64) -> Vec<bool> {
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
    fn welch_is_as_calculated_by_hand() {
        let old = Sample::of(&[10.0, 11.0, 12.0, 13.0, 14.0]).unwrap();
        let new = Sample::of(&[20.0, 22.0, 24.0, 26.0, 28.0]).unwrap();
        let difference = welch(old, new).unwrap();
        assert!((difference.difference - 12.0).abs() < 1e-12);
        // Standard error sqrt(2.5 / 5 + 10 / 5), 5.88 degrees of freedom: t = 7.589.
        assert!((difference.p - 0.000_304).abs() < 3e-5, "{difference:?}");
        let reach = (difference.interval.1 - difference.interval.0) / 2.0;
        assert!((reach - 2.459 * 2.5_f64.sqrt()).abs() < 0.01, "{reach}");
        assert!(welch(Sample::of(&[1.0]).unwrap(), Sample::of(&[2.0]).unwrap()).is_none());
        let same = Sample::of(&[7.0, 7.0, 7.0]).unwrap();
        assert_eq!(welch(same, same).unwrap().p, 1.0);
        assert_eq!(welch(same, Sample::of(&[8.0, 8.0]).unwrap()).unwrap().p, 0.0);
    }

    #[test]
    fn derivatives_of_the_gamma_function_are_as_in_tables() {
        // Euler's constant; pi squared by 6; at 5 from Abramowitz and Stegun.
        let (first, second) = polygamma(1.0);
        assert!((first + 0.577_215_664_9).abs() < 1e-9 && (second - 1.644_934_066_8).abs() < 1e-8);
        let (first, second) = polygamma(5.0);
        assert!((first - 1.506_117_668_4).abs() < 1e-9 && (second - 0.221_322_955_7).abs() < 1e-8);
    }

    #[test]
    fn variances_that_are_alike_are_worth_much_and_others_little() {
        // Quantiles of chi-squared with 18 degrees of freedom at equal steps of probability: equal
        // variances.
        let alike: Vec<f64> = [9.39, 10.86, 12.86, 14.44, 15.89, 17.34, 18.87, 20.60, 22.76, 25.99, 28.87]
            .iter()
            .map(|of| of / 18.0)
            .collect();
        let usual = Usual::of(&alike, 18.0);
        assert!(usual.degrees > 100.0 && (usual.variance - 1.0).abs() < 0.1, "{usual:?}");
        let unlike: Vec<f64> = (0..12).map(|power| 10_f64.powi(power - 6)).collect();
        assert!(Usual::of(&unlike, 18.0).degrees < 1.0);
        assert_eq!(Usual::of(&[1.0; 3], 18.0), Usual::NONE);
    }

    #[test]
    fn holm_takes_all_together() {
        assert_eq!(holm(&[0.02, 0.001, 0.04], 0.05), [true, true, true]);
        assert_eq!(holm(&[0.03, 0.001, 0.04], 0.05), [false, true, false]);
        assert_eq!(holm(&[0.02, 0.02, 0.02], 0.05), [false; 3]);
        assert!(holm(&[], 0.05).is_empty());
    }
}
