//! Converts the trace's time to calendar time, by the recording's readings of `CLOCK_REALTIME`, in
//! exact integer arithmetic.
//!
//! Ticks follow the hardware. `CLOCK_REALTIME` is steered: it runs slightly faster or slower to
//! stay right, and may be set. Between two readings, it is assumed to run evenly, so both are met
//! exactly. If it was set in between, it is assumed to run as the hardware up to the later reading,
//! and to jump there, because the time at which it was set isn't known.

use everycall_format::arena::ClockReading;

/// Kernels steer a clock by up to 500 millionths, and by as much again while they slew it. A larger
/// difference means that it was set.
const STEERED_MILLIONTHS: u64 = 1_100;
/// Readings are further apart than they are long by this at most.
const NOISE_NS: u64 = 1_000_000;

/// The trace's time (nanoseconds since its origin) to nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// By time; not empty.
    points: Vec<Point>,
    error_ns: u64,
    drift_ns: u64,
    set_by_ns: u64,
}

/// A reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    ns: u64,
    realtime_ns: u64,
    /// Nanoseconds of real time until the next reading, where the clock ran evenly until then.
    until_next_ns: Option<u64>,
}

impl WallClock {
    /// `readings` with their times since the origin, in their order; `None` without any. `bracket_ns` is the length of the
    /// longest reading.
    pub(crate) fn new(readings: &[(u64, ClockReading)], bracket_ns: u64) -> Option<WallClock> {
        readings.first().filter(|(_, first)| first.realtime_ns != 0)?;
        let mut wall = WallClock {
            points: Vec::with_capacity(readings.len()),
            error_ns: bracket_ns.saturating_add(2),
            drift_ns: 0,
            set_by_ns: 0,
        };
        for (index, (ns, reading)) in readings.iter().enumerate() {
            let until_next_ns = readings.get(index + 1).and_then(|(next_ns, next)| {
                let passed = next_ns.saturating_sub(*ns);
                let realtime = next.realtime_ns.checked_sub(reading.realtime_ns);
                let drift = realtime.map_or(u64::MAX, |realtime| realtime.abs_diff(passed));
                if drift > NOISE_NS.saturating_add(passed / 1_000_000 * STEERED_MILLIONTHS) {
                    let by =
                        i128::from(next.realtime_ns) - i128::from(reading.realtime_ns) - i128::from(passed);
                    let by = u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX);
                    wall.set_by_ns = wall.set_by_ns.max(by);
                    return None;
                }
                wall.drift_ns = wall.drift_ns.max(drift);
                realtime
            });
            wall.points.push(Point { ns: *ns, realtime_ns: reading.realtime_ns, until_next_ns });
        }
        Some(wall)
    }

    /// Nanoseconds since 1970 at a moment of the trace, rounded down.
    #[must_use]
    pub fn realtime_ns(&self, ns: u64) -> u64 {
        let behind = self.points.partition_point(|point| point.ns <= ns);
        let Some(point) = self.points.get(behind.saturating_sub(1)) else { return 0 };
        let Some(passed) = ns.checked_sub(point.ns) else {
            return point.realtime_ns.saturating_sub(point.ns - ns);
        };
        let passed = match (point.until_next_ns, self.points.get(behind)) {
            (Some(realtime), Some(next)) if next.ns > point.ns => {
                let scaled = u128::from(passed) * u128::from(realtime) / u128::from(next.ns - point.ns);
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
            _ => passed,
        };
        point.realtime_ns.saturating_add(passed)
    }

    /// The first moment of the trace at which it was this time, or later; 0 if it was so from the origin on. Times
    /// behind the last reading go on evenly.
    #[must_use]
    pub fn ns(&self, realtime_ns: u64) -> u64 {
        // The first stretch that gets so far, or the last one.
        let gets_there = |index: &usize| {
            self.points
                .get(index + 1)
                .is_none_or(|next| self.realtime_ns(next.ns.saturating_sub(1)) >= realtime_ns)
        };
        let index = (0..self.points.len()).find(gets_there).unwrap_or(0);
        let Some(point) = self.points.get(index) else { return 0 };
        let until = self.points.get(index + 1).map_or(u64::MAX, |next| next.ns);
        let mut from = if index == 0 { 0 } else { point.ns };
        let mut to = until;
        // Within a stretch, a later moment is never an earlier time.
        while from < to {
            let middle = from + (to - from) / 2;
            if self.realtime_ns(middle) >= realtime_ns {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        from
    }

    /// By how much times may be wrong where the clock was read, in nanoseconds: it took so long.
    #[must_use]
    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// By how much the system's clock drifted from the hardware's between two readings, at most. It is spread evenly, so times
    /// in between are wrong by no more than this, and as a rule by a small part of it.
    #[must_use]
    pub fn drift_ns(&self) -> u64 {
        self.drift_ns
    }

    /// By how much the clock was set during the recording, at most; 0 if it wasn't. Times between the readings around that
    /// may be wrong by so much.
    #[must_use]
    pub fn set_by_ns(&self) -> u64 {
        self.set_by_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(readings: &[(u64, u64)]) -> WallClock {
        let reading = |(ns, realtime_ns): &(u64, u64)| {
            (*ns, ClockReading { realtime_ns: *realtime_ns, ..ClockReading::default() })
        };
        WallClock::new(&readings.iter().map(reading).collect::<Vec<_>>(), 40).unwrap()
    }

    #[test]
    fn readings_are_met_exactly_and_found_again() {
        let day = 1_700_000_000_000_000_000;
        // It runs 100 millionths too fast, then evenly.
        let wall =
            wall(&[(50, day), (1_000_000_050, day + 1_000_100_000), (2_000_000_050, day + 2_000_100_000)]);
        assert_eq!(wall.realtime_ns(0), day - 50);
        assert_eq!(wall.realtime_ns(50), day);
        assert_eq!(wall.realtime_ns(500_000_050), day + 500_050_000);
        assert_eq!(wall.realtime_ns(1_000_000_050), day + 1_000_100_000);
        assert_eq!(wall.realtime_ns(3_000_000_050), day + 3_000_100_000, "behind the last one");
        assert_eq!((wall.error_ns(), wall.drift_ns(), wall.set_by_ns()), (42, 100_000, 0));
        for ns in [0, 49, 50, 51, 499_999_999, 1_000_000_049, 1_000_000_050, 1_999_999_999, 5_000_000_000] {
            assert_eq!(wall.ns(wall.realtime_ns(ns)), ns);
        }
        assert_eq!(wall.ns(0), 0, "before the origin");
        let mut last = 0;
        for step in 0..100_000 {
            let now = wall.realtime_ns(step * 30_011);
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn clocks_that_are_set() {
        let day = 1_700_000_000_000_000_000;
        let hour = 3_600_000_000_000;
        // Back by an hour.
        let back = wall(&[(0, day), (1_000_000_000, day + 1_000_000_000 - hour)]);
        assert_eq!(back.set_by_ns(), hour);
        assert_eq!(back.realtime_ns(999_999_999), day + 999_999_999);
        assert_eq!(back.realtime_ns(1_000_000_000), day + 1_000_000_000 - hour);
        assert_eq!(back.ns(day + 500), 500, "the first of two");
        let ahead = wall(&[(0, day), (1_000_000_000, day + hour)]);
        assert_eq!(ahead.set_by_ns(), hour - 1_000_000_000);
        assert_eq!(ahead.ns(day + hour / 2), 1_000_000_000, "a time that never was");
        assert!(WallClock::new(&[], 0).is_none());
        assert!(WallClock::new(&[(0, ClockReading::default())], 0).is_none());
    }
}
