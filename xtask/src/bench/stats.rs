//! Medians and spreads.

/// The distribution of many measurements of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The figure.
    pub median: f64,
    /// A quarter of the measurements is below.
    pub low: f64,
    /// A quarter lies above.
    pub high: f64,
    /// Of how many.
    pub count: usize,
}

impl Spread {
    /// Of measurements in any order.
    ///
    /// # Errors
    /// There are no measurements.
    pub fn of(mut samples: Vec<f64>) -> Result<Spread, String> {
        samples.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (samples.len().saturating_sub(1)) as f64;
            let (below, above) = (samples.get(place.floor() as usize)?, samples.get(place.ceil() as usize)?);
            Some(below + (above - below) * place.fract())
        };
        match (at(0.5), at(0.25), at(0.75)) {
            (Some(median), Some(low), Some(high)) => Ok(Spread { median, low, high, count: samples.len() }),
            _ => Err("nothing was measured".to_owned()),
        }
    }

    /// This spread in another unit.
    pub fn scaled(self, factor: f64) -> Spread {
        Spread {
            median: self.median * factor,
            low: self.low * factor,
            high: self.high * factor,
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_odd_even_one_none() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 4.0, count: 5 });
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(vec![7.0]).unwrap().high, 7.0);
        assert!(Spread::of(vec![]).is_err());
    }
}
