//! Distributions in little memory, with percentiles within 1 %.
//!
//! Up to [`FEW`] values are stored, so their percentiles are exact. More values are counted in
//! buckets, [`PER_OCTAVE`] for each power of two, as in an HDR histogram. Values below 128 have
//! buckets of their own; a larger value differs by at most 1/128 (0.79 %) from the middle of its
//! bucket. Sketches are added by adding their buckets, so the result doesn't depend on the order of
//! values.

/// Largest number of values that are stored exactly.
const FEW: usize = 32;
/// Binary logarithm of the number of buckets per power of two.
const PRECISION: u32 = 6;
/// Buckets per power of two.
const PER_OCTAVE: usize = 1 << PRECISION;
/// Number of buckets that are allocated at a time.
const AT_ONCE: usize = 16;
/// Number of buckets: enough for every value.
const BUCKETS: usize = (64 - PRECISION as usize + 1) * PER_OCTAVE;

/// The distribution of values, such as the durations of a function's calls in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    /// All values, while there are few.
    few: Vec<u64>,
    /// Number of the first allocated bucket.
    first: usize,
    /// The counts from that bucket on; empty while there are few values.
    buckets: Vec<u64>,
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < 2 << PRECISION {
        return value as usize;
    }
    let shift = 63 - PRECISION - value.leading_zeros();
    ((shift as usize) << PRECISION) + (value >> shift) as usize
}

/// The value that represents a bucket.
fn middle(bucket: usize) -> u64 {
    if bucket < 2 * PER_OCTAVE {
        return bucket as u64;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let first = ((bucket - shift * PER_OCTAVE) as u64) << shift;
    first + (1 << shift) / 2
}

impl Sketch {
    /// Adds a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        if self.buckets.is_empty() {
            if self.few.len() < FEW {
                self.few.push(value);
                return;
            }
            self.spill();
        }
        self.put(bucket(value), 1);
    }

    /// The distribution of values of which only these are known: their sum, the smallest and the
    /// largest one, and how many lie near which value. Empty without any.
    #[must_use]
    pub fn of_groups((sum, min, max): (u64, u64, u64), groups: impl Iterator<Item = (u64, u64)>) -> Sketch {
        let mut sketch = Sketch::default();
        for (value, count) in groups.filter(|(_, count)| *count > 0) {
            sketch.count = sketch.count.saturating_add(count);
            sketch.put(bucket(value), count);
        }
        if sketch.count > 0 {
            (sketch.sum, sketch.min, sketch.max) = (sum, min.min(max), max);
        }
        sketch
    }

    /// The values added since an earlier reading. The smallest and the largest one are
    /// those of buckets, unless they are among them for sure.
    pub(crate) fn since(&self, before: &Sketch) -> Sketch {
        let values_before: std::collections::BTreeMap<u64, u64> = before
            .buckets
            .iter()
            .enumerate()
            .map(|(at, count)| ((before.first + at) as u64, *count))
            .collect();
        let mut since = Sketch::default();
        for (at, count) in self.buckets.iter().enumerate() {
            let at = self.first + at;
            let count = count.saturating_sub(values_before.get(&(at as u64)).copied().unwrap_or(0));
            if count > 0 {
                since.count = since.count.saturating_add(count);
                since.put(at, count);
                let value = middle(at).clamp(self.min, self.max);
                since.min = if since.min == 0 { value } else { since.min.min(value) };
                since.max = since.max.max(value);
            }
        }
        if since.count > 0 {
            since.sum = self.sum.saturating_sub(before.sum);
            since.min = if self.min < before.min { self.min } else { since.min };
            since.max = if self.max > before.max { self.max } else { since.max };
        }
        since
    }

    /// Adds all values of another sketch.
    pub fn add(&mut self, other: &Sketch) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        if self.buckets.is_empty() && other.buckets.is_empty() && self.few.len() + other.few.len() <= FEW {
            self.few.extend_from_slice(&other.few);
            return;
        }
        self.spill();
        other.few.iter().for_each(|value| self.put(bucket(*value), 1));
        let counted = other.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.for_each(|(index, count)| self.put(other.first + index, *count));
    }

    /// Converts stored values to buckets.
    #[cold]
    fn spill(&mut self) {
        for value in std::mem::take(&mut self.few) {
            self.put(bucket(value), 1);
        }
    }

    #[inline]
    fn put(&mut self, bucket: usize, count: u64) {
        let index = bucket.wrapping_sub(self.first);
        match self.buckets.get_mut(index) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => self.put_outside(bucket, count),
        }
    }

    #[cold]
    fn put_outside(&mut self, bucket: usize, count: u64) {
        if bucket >= BUCKETS {
            return;
        }
        let aligned = bucket - bucket % AT_ONCE;
        if self.buckets.is_empty() {
            self.first = aligned;
        } else if aligned < self.first {
            let more = self.first - aligned;
            self.buckets.splice(0..0, std::iter::repeat_n(0, more));
            self.first = aligned;
        }
        let needed = aligned + AT_ONCE - self.first;
        if self.buckets.len() < needed {
            self.buckets.resize(needed, 0);
        }
        self.buckets[bucket - self.first] += count;
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Their mean, rounded down; `None` without values.
    #[must_use]
    pub fn average(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The smallest value, exactly.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, exactly.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The percentile by nearest rank: the smallest value that at least `ten_thousandths` of 10,000
    /// values don't exceed, such as 9,990 for p99.9. Within 1 %.
    #[must_use]
    pub fn percentile(&self, ten_thousandths: u32) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(ten_thousandths)).div_ceil(10_000).max(1);
        let mut below = 0_u128;
        for (value, count) in self.values() {
            below += u128::from(count);
            if below >= rank {
                return Some(value);
            }
        }
        self.max()
    }

    /// All values with their counts, sorted: exact values if there are few, otherwise the middles
    /// of buckets.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut few: Vec<_> = self.few.iter().map(|value| (*value, 1)).collect();
        few.sort_unstable();
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets =
            counted.map(|(index, count)| (middle(self.first + index).clamp(self.min, self.max), *count));
        few.into_iter().chain(buckets)
    }

    /// The value that [`Sketch::values`] returns for a recorded one.
    #[must_use]
    pub fn shown(&self, value: u64) -> u64 {
        if self.buckets.is_empty() { value } else { middle(bucket(value)).clamp(self.min, self.max) }
    }

    /// The number of values in each power of two, as (lowest value, count), sorted, without empty
    /// ones.
    #[must_use]
    pub fn octaves(&self) -> Vec<(u64, u64)> {
        let mut octaves: Vec<(u64, u64)> = Vec::new();
        for (value, count) in self.values() {
            let from = value.checked_ilog2().map_or(0, |power| 1 << power);
            match octaves.last_mut() {
                Some((last, sum)) if *last == from => *sum = sum.saturating_add(count),
                _ => octaves.push((from, count)),
            }
        }
        octaves
    }

    /// The mean of the middle fifth of the values: as little moved as the median by values that are
    /// far away, and finer than the values are rounded. `None` without values.
    #[must_use]
    pub fn middle_mean(&self) -> Option<f64> {
        let below = self.count / 5 * 2 + self.count % 5 * 2 / 5;
        let (mut place, mut sum) = (0, 0.0);
        let above = self.count - below;
        for (value, count) in self.values() {
            let end = place + count;
            let taken = end.min(above).saturating_sub(place.max(below));
            sum += value as f64 * taken as f64;
            place = end;
        }
        (self.count > 0).then(|| sum / (above - below) as f64)
    }

    /// Its parts, for storing it.
    #[must_use]
    pub fn parts(&self) -> SketchParts {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        SketchParts {
            sum: self.sum,
            min: self.min,
            max: self.max,
            few: self.few.clone(),
            buckets: counted.map(|(index, count)| ((self.first + index) as u64, *count)).collect(),
        }
    }

    /// Creates it from stored parts; `None` if they contradict each other.
    #[must_use]
    pub fn from_parts(parts: &SketchParts) -> Option<Sketch> {
        if parts.few.len() > FEW || !parts.few.is_empty() && !parts.buckets.is_empty() {
            return None;
        }
        let mut sketch = Sketch { few: parts.few.clone(), ..Sketch::default() };
        sketch.count = parts.few.len() as u64;
        for &(bucket, count) in &parts.buckets {
            let bucket = usize::try_from(bucket).ok().filter(|bucket| *bucket < BUCKETS)?;
            sketch.count = sketch.count.checked_add(count)?;
            sketch.put(bucket, count);
        }
        if parts.min > parts.max {
            return None;
        }
        if sketch.count > 0 {
            (sketch.sum, sketch.min, sketch.max) = (parts.sum, parts.min, parts.max);
        }
        Some(sketch)
    }
}

/// The stored form of a [`Sketch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SketchParts {
    /// The sum of all values.
    pub sum: u64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// The values, if there are few.
    pub few: Vec<u64>,
    /// Number and count.
    pub buckets: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers, the same in each run of the test.
    fn random(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
    }

    fn exact(sorted: &[u64], ten_thousandths: u64) -> u64 {
        let rank = (sorted.len() as u64 * ten_thousandths).div_ceil(10_000).max(1);
        sorted[rank as usize - 1]
    }

    const PERCENTILES: [u32; 6] = [1, 5_000, 9_000, 9_900, 9_990, 10_000];

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        let edges = (0..64).flat_map(|power| {
            let power = 1_u64 << power;
            [power - 1, power, power + 1, power + power / 3, power + (power - 1)]
        });
        for value in edges.chain([u64::MAX]).chain(random(1).take(10_000)) {
            let bucket = bucket(value);
            assert!(bucket < BUCKETS, "{value}");
            let error = middle(bucket).abs_diff(value);
            assert!(u128::from(error) * 128 <= u128::from(value), "{value} {}", middle(bucket));
        }
        assert!((0..BUCKETS).map(middle).is_sorted());
    }

    #[test]
    fn values_are_found_as_they_are_shown() {
        for count in [FEW, 3 * FEW] {
            let mut sketch = Sketch::default();
            let recorded: Vec<u64> = random(7).map(|value| value % 1_000_000).take(count).collect();
            recorded.iter().for_each(|value| sketch.record(*value));
            let shown: Vec<u64> = sketch.values().map(|(value, _)| value).collect();
            assert!(recorded.iter().all(|value| shown.contains(&sketch.shown(*value))));
        }
    }

    #[test]
    fn percentiles_of_few_values_are_exact_and_of_many_within_one_percent() {
        for seed in 0..50 {
            for count in [1, 2, 31, 32, 33, 100, 5_000] {
                let mut values: Vec<u64> = random(seed * 7 + count as u64)
                    .map(|bits| bits >> (20 + bits % 40))
                    .take(count)
                    .collect();
                let mut sketch = Sketch::default();
                values.iter().for_each(|value| sketch.record(*value));
                values.sort_unstable();
                for percentile in PERCENTILES {
                    let (is, told) =
                        (exact(&values, percentile.into()), sketch.percentile(percentile).unwrap());
                    assert!(is.abs_diff(told) * 100 <= is, "{count} {percentile}: {is} {told}");
                    assert!(count > FEW || is == told);
                }
                assert_eq!((sketch.min(), sketch.max()), (Some(values[0]), values.last().copied()));
                assert_eq!(sketch.sum(), values.iter().sum::<u64>());
                assert_eq!(sketch.octaves().iter().map(|(_, count)| count).sum::<u64>(), count as u64);
            }
        }
        assert_eq!(Sketch::default().percentile(5_000), None);
    }

    #[test]
    fn sums_are_the_same_in_whichever_order() {
        for sizes in [[0, 5, 20], [20, 20, 3], [1_000, 0, 7], [16, 16, 1]] {
            let parts = sizes.map(|size| {
                let mut sketch = Sketch::default();
                random(size as u64).take(size).for_each(|value| sketch.record(value >> 30));
                sketch
            });
            let sum = |order: [usize; 3]| {
                let mut sum = Sketch::default();
                order.iter().for_each(|part| sum.add(&parts[*part]));
                let values: Vec<_> = sum.values().collect();
                (sum.count(), sum.sum(), sum.min(), sum.max(), values)
            };
            assert_eq!(sum([0, 1, 2]), sum([2, 0, 1]));
            assert_eq!(sum([0, 1, 2]), sum([1, 2, 0]));
        }
    }

    #[test]
    fn sketches_survive_storing_and_invalid_parts_are_refused() {
        for size in [0, 1, 32, 33, 1_000] {
            let mut sketch = Sketch::default();
            random(3).take(size).for_each(|value| sketch.record(value >> 25));
            let again = Sketch::from_parts(&sketch.parts()).unwrap();
            assert_eq!(again.values().collect::<Vec<_>>(), sketch.values().collect::<Vec<_>>());
            assert_eq!(again.parts(), sketch.parts());
        }
        let parts = SketchParts::default();
        assert!(Sketch::from_parts(&SketchParts { few: vec![1; 33], ..parts.clone() }).is_none());
        assert!(Sketch::from_parts(&SketchParts { buckets: vec![(1 << 40, 1)], ..parts.clone() }).is_none());
        assert!(Sketch::from_parts(&SketchParts { buckets: vec![(1, u64::MAX), (2, 1)], ..parts }).is_none());
    }

    #[test]
    fn groups_have_their_sum_and_their_ends() {
        let before = Sketch::of_groups((1_000, 90, 300), [(100, 5), (150, 0), (250, 2)].into_iter());
        assert_eq!(
            (before.count(), before.sum(), before.min(), before.max()),
            (7, 1_000, Some(90), Some(300))
        );
        assert!(before.percentile(5_000).unwrap().abs_diff(100) <= 1);
        assert_eq!(Sketch::of_groups((5, 6, 7), std::iter::empty()), Sketch::default());
        let after = Sketch::of_groups((1_900, 90, 800), [(100, 6), (250, 2), (800, 1)].into_iter());
        let since = after.since(&before);
        assert_eq!((since.count(), since.sum(), since.max()), (2, 900, Some(800)));
        assert!(since.min().unwrap().abs_diff(100) <= 1);
        assert_eq!(before.since(&before), Sketch::default());
    }

    #[test]
    fn preemptions_do_not_move_the_middle() {
        let middle = |values: &[u64]| {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.record(*value));
            sketch.middle_mean()
        };
        assert_eq!(middle(&[]), None);
        assert_eq!(middle(&[7]), Some(7.0));
        assert_eq!(middle(&[10, 20]), Some(15.0));
        assert_eq!(middle(&[1_000_000, 10, 20]), Some(20.0));
        // The two in the middle of ten; of buckets, too.
        assert_eq!(middle(&[1, 2, 3, 4, 50, 60, 7_000, 7_000, 7_000, 7_000]), Some(55.0));
        let many: Vec<u64> = (0..1_000).map(|place| [3, 5, 500, 100_000, 9_000_000][place % 5]).collect();
        assert!((middle(&many).unwrap() - 500.0).abs() < 5.0);
        // Long times are never subtracted: their buckets are exact to 0.8 % only, 4 us of 0.5 ms.
        let preempted: Vec<u64> =
            (0..1_000).map(|place| if place % 50 == 0 { 507_123 } else { 250 }).collect();
        assert!((middle(&preempted).unwrap() - 250.0).abs() < 2.0);
    }
}
