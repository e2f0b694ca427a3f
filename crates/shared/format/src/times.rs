//! Times of calls that are counted and not recorded, for each function and thread slot, in the
//! arena of a process whose [`crate::dropped::counting`] is TIMES.
//!
//! ```text
//! times_offset of the arena's header
//!   for each thread slot TimeSums[functions]
//! ```
//!
//! Functions have the same places as in [`crate::dropped`]; those that find no free place share
//! [`crate::dropped::OTHERS`]. Each thread adds to its own slot's sums, each by one
//! instruction. A slot's next thread continues the same sums. Only used parts take memory.
//!
//! A call adds to `calls` when it begins, and to everything else when it ends. So calls that are
//! open, or whose end wasn't seen, are counted and have no time.

use crate::dropped::FUNCTIONS_MAX;
use crate::memory;
use crate::wire::{PAGE, wire_struct};

/// Number of a histogram's buckets.
pub const BUCKETS: usize = 48;
/// Bytes of the sums of one function in one slot.
pub const TIME_SUMS_SIZE: u64 = size_of::<TimeSums>() as u64;

/// Bits of an open call's stamp in such a process: where its function's sums are, from those of its
/// slot on.
pub const STAMP_PLACE: u32 = FUNCTIONS_MAX * TIME_SUMS_SIZE as u32 - 1;
/// Bit of a stamp: memory was allocated or freed in the call.
pub const STAMP_VISITED: u32 = 1 << 31;
/// Bit of a stamp: and the call's end closes the totals of its function.
pub const STAMP_OPENED: u32 = 1 << STAMP_OPENED_BIT;
/// The number of that bit.
pub const STAMP_OPENED_BIT: u32 = 30;

const _: () = assert!((STAMP_PLACE + 1).is_power_of_two() && STAMP_PLACE < STAMP_OPENED);
const _: () = assert!(PAGE.is_multiple_of(TIME_SUMS_SIZE) && TIME_SUMS_SIZE == 512);

/// Bytes of a slot's sums, with that many places.
pub(crate) const fn slot_size(functions: u32) -> u64 {
    functions as u64 * TIME_SUMS_SIZE
}

wire_struct! {
    /// The calls of a function by the threads of one slot. Times are in ticks.
    pub struct TimeSums [512] {
        /// Calls that have begun.
        pub calls: u64,
        /// Time in calls that have ended, with what they called. A call within another one of the
        /// same function adds nothing.
        pub total: u64,
        /// Time in calls that have ended, without the calls in them that have ended. (Wrapping: it
        /// may be below 0 while a call ends.)
        pub own: u64,
        /// Complement of the shortest call's time; 0 if none has ended. (A call of the longest
        /// possible time isn't.)
        pub shortest: u64,
        /// The longest call's time.
        pub longest: u64,
        /// Time in calls that have ended within another call of the same function: what `total`
        /// lacks.
        pub nested: u64,
        /// For the hooks: where on its stack the outermost open call of the function is, or was.
        pub outermost: u64,
        /// Memory that the calls have allocated and freed themselves: see [`crate::memory`].
        pub memory_own: [u64; memory::NUMBERS],
        /// Memory of the calls with what they called, where recursion counts once, in the form of
        /// [`memory::total`].
        pub memory_total: [u64; memory::NUMBERS],
        /// For the hooks: a bucket. Most calls are in it or in the next one.
        pub usual: u64,
        /// Number of calls that ended, by the binary logarithm of their time, rounded down; those
        /// of 0 ticks are in the first bucket, those beyond the last one in that.
        pub histogram: [u64; BUCKETS],
    }
}

/// The bucket of a time.
#[must_use]
pub const fn bucket(ticks: u64) -> usize {
    let power = (ticks | 1).ilog2() as usize;
    if power < BUCKETS { power } else { BUCKETS - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let found = [0, 1, 2, 3, 4, 1023, 1024, (1 << 47) - 1, 1 << 47, u64::MAX].map(bucket);
        assert_eq!(found, [0, 0, 1, 1, 2, 9, 10, 46, 47, 47]);
    }
}
