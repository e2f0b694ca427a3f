//! Converts between nanoseconds and ticks before the clock has been measured for long: the first
//! measurement takes some milliseconds, and is improved while the program runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use everycall_format::arena::ClockReading;
use everycall_machine::clock;

/// Duration of the first measurement.
const FIRST: Duration = Duration::from_millis(20);

/// The rate of the counter.
#[derive(Debug)]
pub struct Rate {
    first: ClockReading,
    ticks: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Rate {
    /// Measures for some milliseconds.
    #[must_use]
    pub fn measure() -> Rate {
        let rate = Rate { first: clock::read(), ticks: AtomicU64::new(1), nanoseconds: AtomicU64::new(1) };
        std::thread::sleep(FIRST);
        rate.improve();
        rate
    }

    /// Measures from the beginning until now.
    pub fn improve(&self) {
        let now = clock::read();
        let ticks = now.ticks.saturating_sub(self.first.ticks);
        let nanoseconds = now.monotonic_raw_ns.saturating_sub(self.first.monotonic_raw_ns);
        if ticks > 0 && nanoseconds > 0 {
            self.ticks.store(ticks, Relaxed);
            self.nanoseconds.store(nanoseconds, Relaxed);
        }
    }

    /// Converts nanoseconds to ticks.
    #[must_use]
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        scale(nanoseconds, self.ticks.load(Relaxed), self.nanoseconds.load(Relaxed))
    }

    /// Converts ticks to nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        scale(ticks, self.nanoseconds.load(Relaxed), self.ticks.load(Relaxed))
    }
}

fn scale(value: u64, by: u64, from: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(from.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        let rate = Rate::measure();
        let ticks = rate.ticks(1_000_000_000);
        assert!((100_000_000..20_000_000_000).contains(&ticks), "{ticks} ticks in a second");
        assert!(rate.nanoseconds(ticks).abs_diff(1_000_000_000) < 100);
        assert_eq!(rate.ticks(u64::MAX), u64::MAX);
    }
}
