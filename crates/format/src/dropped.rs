//! Calls that are counted and not recorded: how many there were of each function, as both sides see
//! it in the arena. These are the short calls, which are dropped, or, in a process that only counts,
//! all calls.
//!
//! ```text
//! dropped_offset of the arena's header
//!   DroppedHeader, one page
//!   DroppedFunction[FUNCTIONS]    place 0 is nobody's
//! behind the open-call stacks
//!   counts: for each thread slot u64[FUNCTIONS]; that at place 0 is the sum of the others
//! ```
//!
//! A function gets a place when its first short call ends, which is recorded. From then on, its
//! short calls are counted there: each thread counts in its own slot's array, with one addition for
//! each call, so the sums are right wherever it is interrupted. A slot's next thread continues the
//! same array. The arrays are address space; only used parts take memory.
//!
//! In a process that only counts ([`DroppedHeader::counting`]), a function gets its place with its
//! first call. The functions that find none share the last one, [`OTHERS`]; place 0 is unused.
//!
//! Code offsets may be given to another module. Its functions get places of their own; by the time
//! of its first short call, a place's function is known.

use crate::wire::{PAGE, wire_struct};

/// Functions that may have places, and place 0. Short calls of further functions are recorded.
pub const FUNCTIONS: u32 = 1 << 14;
/// Where the functions begin, from the header.
const FUNCTIONS_OFFSET: u64 = PAGE;
/// In a process that only counts: the place of all functions that found none.
pub const OTHERS: u32 = FUNCTIONS - 1;
/// Bytes of the header and the functions.
pub(crate) const TABLE_SIZE: u64 = FUNCTIONS_OFFSET + FUNCTIONS as u64 * size_of::<DroppedFunction>() as u64;
/// Bytes of a slot's counts.
pub const COUNTS_SIZE: u64 = FUNCTIONS as u64 * size_of::<u64>() as u64;
/// The longest threshold, in ticks: hooks compare 32 bits, and only check calls within one upper
/// half of the clock.
pub const TICKS_MAX: u64 = 1 << 31;
/// The longest threshold, in nanoseconds.
pub const NS_MAX: u64 = 100_000_000;
/// What it may be, for messages.
pub const ALLOWED: &str = "a time up to 100ms, such as 500ns, or 0 to record every call";

const _: () = assert!(TABLE_SIZE.is_multiple_of(PAGE) && COUNTS_SIZE.is_multiple_of(PAGE));

wire_struct! {
    /// What belongs to all functions.
    pub struct DroppedHeader [64] {
        /// Calls that took less, in ticks, and contain no recorded call are dropped; 0 if every
        /// call is recorded. Threads follow a change within two seconds.
        pub threshold: u64,
        /// The same in nanoseconds, as requested.
        pub threshold_ns: u64,
        /// Places that were given to functions, with place 0.
        pub places: u32,
        /// Not 0 once a function found no place.
        pub is_full: u32,
        /// The highest threshold so far, in nanoseconds.
        pub highest_ns: u64,
        /// One of [`counting`]; set before the process begins.
        pub counting: u32,
        /// Zero.
        pub reserved: [u32; 7],
    }
}

wire_struct! {
    /// A function whose short calls are counted.
    pub struct DroppedFunction [16] {
        /// Code offset of its entries.
        pub code: u32,
        /// Zero.
        pub reserved: u32,
        /// When its first short call ended.
        pub ticks: u64,
    }
}

/// [`DroppedHeader::counting`]: what becomes of calls.
pub mod counting {
    /// They are recorded, but for short ones.
    pub const OFF: u32 = 0;
    /// They are counted, and not recorded.
    pub const CALLS: u32 = 1;
}

/// Reads what `EVERYCALL_COUNT` says: one of [`counting`].
#[must_use]
pub fn parse_counting(text: &[u8]) -> Option<u32> {
    match text {
        b"calls" => Some(counting::CALLS),
        _ => None,
    }
}

/// Where the function at `place` is, from the header.
pub(crate) const fn function_at(place: u32) -> u64 {
    FUNCTIONS_OFFSET + place as u64 * size_of::<DroppedFunction>() as u64
}

/// The ticks that a threshold of `nanoseconds` has, by a clock that ran `ticks` in `elapsed_ns`:
/// rounded up, as calls that took exactly so long are recorded, and within [`TICKS_MAX`].
#[must_use]
pub fn threshold(nanoseconds: u64, ticks: u64, elapsed_ns: u64) -> u64 {
    // Both within 2^31 each, so that the product fits.
    let excess = (u64::BITS - ticks.max(elapsed_ns).leading_zeros()).saturating_sub(31);
    let (ticks, elapsed) = (ticks >> excess, (elapsed_ns >> excess).max(1));
    let nanoseconds = nanoseconds.min(NS_MAX);
    (nanoseconds.saturating_mul(ticks).div_ceil(elapsed)).min(TICKS_MAX)
}

/// Reads a threshold from text, in nanoseconds.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u64> {
    everycall_units::parse_time_bytes(text).ok().filter(|nanoseconds| *nanoseconds <= NS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_exact_enough() {
        for (nanoseconds, ticks, elapsed) in [
            (500, 2_400_000_000, 1_000_000_000),
            (1, 750_000, 300_000),
            (100_000_000, u64::MAX / 4, u64::MAX / 10),
            (7, 1 << 40, 1 << 39),
        ] {
            let exact = u128::from(nanoseconds) * u128::from(ticks);
            let exact = exact.div_ceil(u128::from(elapsed));
            let found = u128::from(threshold(nanoseconds, ticks, elapsed));
            assert!(found.abs_diff(exact) <= exact / 10_000 + 1, "{nanoseconds}: {found} {exact}");
        }
        assert_eq!(threshold(0, 5, 5), 0);
        assert_eq!(threshold(u64::MAX, u64::MAX, 1), TICKS_MAX);
    }

    #[test]
    fn text_is_a_time_within_limits() {
        assert_eq!(parse(b"500ns"), Some(500));
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"100ms"), Some(NS_MAX));
        for bad in [&b"101ms"[..], b"", b"ns", b"-5us", b"500", b"1s", b"0.5ns"] {
            assert_eq!(parse(bad), None, "{:?}", core::str::from_utf8(bad));
        }
    }
}
