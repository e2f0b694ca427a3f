//! Times of jitdump files as ticks.

use everycall_format::arena::ClockReading;

/// The ticks at a time of `CLOCK_MONOTONIC`, between the readings around it. 0 without two
/// readings.
#[must_use]
pub fn ticks_of_monotonic(readings: &[ClockReading], ns: u64) -> u64 {
    let behind = readings.partition_point(|reading| reading.monotonic_ns <= ns);
    // Before the first and behind the last one, the rate is that of the two next to it.
    let second = behind.clamp(1, readings.len().saturating_sub(1).max(1));
    let (Some(from), Some(to)) = (readings.get(second - 1), readings.get(second)) else { return 0 };
    let span = i128::from(to.monotonic_ns.saturating_sub(from.monotonic_ns)).max(1);
    let ticks = i128::from(to.ticks.saturating_sub(from.ticks));
    let distance = i128::from(ns) - i128::from(from.monotonic_ns);
    u64::try_from(i128::from(from.ticks) + distance * ticks / span).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_between_readings() {
        let at = |monotonic_ns, ticks| ClockReading { monotonic_ns, ticks, ..ClockReading::default() };
        let readings = [at(1_000, 5_000), at(2_000, 8_000), at(4_000, 13_000)];
        let ticks = |ns| ticks_of_monotonic(&readings, ns);
        assert_eq!([500, 1_000, 1_500, 3_000, 6_000].map(ticks), [3_500, 5_000, 6_500, 10_500, 18_000]);
        assert_eq!(ticks_of_monotonic(&readings[..1], 1_500), 0);
        assert_eq!(ticks_of_monotonic(&[], 1_500), 0);
        assert_eq!(
            ticks(u64::MAX),
            u64::try_from((i128::from(u64::MAX) - 2_000) * 5 / 2 + 8_000).unwrap_or(0)
        );
    }
}
