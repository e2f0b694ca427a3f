//! Clock readings.

use crate::sys::system::{self, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME};
use everycall_format::arena::ClockReading;

/// Reads all clocks. Of a few tries, the one with the smallest bracket counts.
pub(crate) fn reading() -> ClockReading {
    let mut best = ClockReading { bracket: u64::MAX, ..ClockReading::default() };
    for _ in 0..3 {
        let before = everycall_hooks::ticks();
        let monotonic_raw_ns = system::clock_ns(CLOCK_MONOTONIC_RAW);
        let after = everycall_hooks::ticks();
        let bracket = after.wrapping_sub(before);
        if bracket < best.bracket {
            best = ClockReading { ticks: before + bracket / 2, monotonic_raw_ns, bracket, ..best };
        }
    }
    best.monotonic_ns = system::clock_ns(CLOCK_MONOTONIC);
    best.realtime_ns = system::clock_ns(CLOCK_REALTIME);
    best
}
