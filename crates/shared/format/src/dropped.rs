//! Counts of calls that are not recorded, for each function, in the arena. These are the short
//! calls, which are dropped, or all calls in a process that only counts.
//!
//! ```text
//! dropped_offset of the arena's header
//!   DroppedHeader, one page
//!   DroppedFunction[functions]    place 0 belongs to no function
//! behind the open-call stacks
//!   counts: for each thread slot u64[functions]; the one at place 0 is the sum of the others
//! ```
//!
//! A function gets a place when its first short call ends. That call is recorded; later short calls
//! are counted at the function's place. Each thread counts in its own slot's array, by one addition
//! for each call, so the counts are right wherever the thread is interrupted. A slot's next thread
//! continues the same array. Only used parts of the arrays take memory.
//!
//! In a process that only counts ([`DroppedHeader::counting`]), a function gets its place with its
//! first call. Functions that find no free place share the one that no function has, [`OTHERS`].
//! Place 0 is unused. How many places there are is in the arena's header.
//!
//! Code offsets may be given to another module, whose functions then get places of their own. The
//! time of a place's first short call shows to which module its function belongs.

use crate::memory;
use crate::wire::{PAGE, wire_struct};

/// The least number of places, place 0 included. Only functions with a place among these have
/// short calls that are dropped.
pub const FUNCTIONS: u32 = 1 << 14;
/// The highest number of places, which arenas have unless address space or disk space is limited.
pub const FUNCTIONS_MAX: u32 = 1 << 20;
/// As [`FUNCTIONS_MAX`], where calls are [timed](crate::times): sums take more than counts, and
/// some programs can't have mappings of terabytes.
pub const TIMED_FUNCTIONS_MAX: u32 = 1 << 17;
/// Where the functions begin, from the header.
const FUNCTIONS_OFFSET: u64 = PAGE;
/// The place that functions share if they found no free one, whatever the number of places is.
pub const OTHERS: u32 = FUNCTIONS - 1;

/// Bytes of the header and of `functions` functions.
pub(crate) const fn table_size(functions: u32) -> u64 {
    FUNCTIONS_OFFSET + functions as u64 * size_of::<DroppedFunction>() as u64
}

/// Bytes of a slot's counts, with that many places.
pub(crate) const fn counts_size(functions: u32) -> u64 {
    functions as u64 * size_of::<u64>() as u64
}

/// The longest threshold, in ticks: hooks compare 32 bits, and only check calls within one upper
/// half of the clock.
pub const TICKS_MAX: u64 = 1 << 31;
/// The longest threshold, in nanoseconds.
pub const NS_MAX: u64 = 100_000_000;
/// The values that a threshold may have, for messages.
pub const ALLOWED: &str = "a time up to 100ms, such as 500ns, or 0 to record every call";

const _: () =
    assert!(table_size(FUNCTIONS).is_multiple_of(PAGE) && counts_size(FUNCTIONS).is_multiple_of(PAGE));

wire_struct! {
    /// The part that concerns all functions.
    pub struct DroppedHeader [128] {
        /// Calls that took less, in ticks, and contain no recorded call are dropped; 0 if every
        /// call is recorded. Threads adopt a change at their next segment's end, or when the upper
        /// half of ticks changes.
        pub threshold: u64,
        /// The threshold in nanoseconds, as requested.
        pub threshold_ns: u64,
        /// Places that functions have, place 0 included; 0 if none has one.
        pub places: u32,
        /// 1 once a function found no place.
        pub is_full: u32,
        /// The highest threshold so far, in nanoseconds.
        pub highest_ns: u64,
        /// One of [`counting`]; set before the process's first event.
        pub counting: u32,
        /// A set of [`crate::memory::facts`].
        pub memory_facts: u32,
        /// Zero.
        pub reserved: [u32; 6],
        /// Memory that threads without a slot have allocated and freed, or before they had one: see
        /// [`crate::memory`].
        pub memory_elsewhere: [u64; memory::NUMBERS],
        /// Zero.
        pub further: [u64; 4],
    }
}

wire_struct! {
    /// A function whose short calls are counted.
    pub struct DroppedFunction [16] {
        /// Code offset of its entries.
        pub code: u32,
        /// Zero.
        pub reserved: u32,
        /// When its first short call ended (or, if calls are only counted, when it was first
        /// called), ticks.
        pub ticks: u64,
    }
}

/// [`DroppedHeader::counting`]: what is done with calls.
pub mod counting {
    /// They are recorded, except for short ones.
    pub const OFF: u32 = 0;
    /// They are counted, and not recorded.
    pub const CALLS: u32 = 1;
    /// They are counted and [timed](crate::times), and not recorded.
    pub const TIMES: u32 = 2;
    /// As [`TIMES`], with what they [allocate and free](crate::memory).
    pub const MEMORY: u32 = 3;

    /// Whether calls are timed.
    #[must_use]
    pub const fn has_times(counting: u32) -> bool {
        counting == TIMES || counting == MEMORY
    }
}

/// The values of `EVERYCALL_COUNT`, for messages.
pub const COUNTING_ALLOWED: &str = "calls, time or memory";

/// Parses the value of `EVERYCALL_COUNT`: one of [`counting`].
#[must_use]
pub fn parse_counting(text: &[u8]) -> Option<u32> {
    match text {
        b"calls" => Some(counting::CALLS),
        b"time" => Some(counting::TIMES),
        b"memory" => Some(counting::MEMORY),
        _ => None,
    }
}

/// Where the function at `place` is, from the header.
pub(crate) const fn function_at(place: u32) -> u64 {
    FUNCTIONS_OFFSET + place as u64 * size_of::<DroppedFunction>() as u64
}

/// Converts a threshold to ticks, if the clock ran `ticks` in `elapsed_ns`. The result is rounded
/// up, because calls that took exactly the threshold are recorded. It is at most [`TICKS_MAX`].
#[must_use]
pub fn threshold(nanoseconds: u64, ticks: u64, elapsed_ns: u64) -> u64 {
    // Both are reduced to 31 bits, so that the product fits.
    let excess = (u64::BITS - ticks.max(elapsed_ns).leading_zeros()).saturating_sub(31);
    let (ticks, elapsed) = (ticks >> excess, (elapsed_ns >> excess).max(1));
    let nanoseconds = nanoseconds.min(NS_MAX);
    (nanoseconds.saturating_mul(ticks).div_ceil(elapsed)).min(TICKS_MAX)
}

/// Parses a threshold. Returns nanoseconds.
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
