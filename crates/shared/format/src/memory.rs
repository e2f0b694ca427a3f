//! Memory that calls allocate and free, in a process whose [`crate::dropped::counting`] is MEMORY:
//! four numbers, for a call itself (own) and for a call with what it called (total).
//!
//! ```text
//! [0] bytes allocated   [1] blocks allocated   [2] bytes freed   [3] blocks freed
//! ```
//!
//! They are in [`crate::times::TimeSums`] of the function and the thread slot. The sums at place 0
//! belong to no function: own is what the slot's threads have allocated outside of all open calls,
//! and total is all that they have allocated, the slot's *meter*.
//!
//! A total in the arena is a word that is right at every moment, also while calls are open, though
//! only their begin and end write it. With the meter's word M (twice its number):
//!
//! ```text
//! even: twice the total; no call of the function is open in which something was allocated
//! odd:  M + 1 minus the word is twice the total
//! ```
//!
//! Both ways are the same step, word = M + 1 - word, which one store does. So a process that is
//! killed between any two instructions leaves totals that are right.

use crate::wire::wire_struct;

/// How many numbers there are.
pub const NUMBERS: usize = 4;

/// A total, as its word in the arena says it. `meter`: the word of the slot's meter, read later.
#[must_use]
pub const fn total(word: u64, meter: u64) -> u64 {
    if is_open(word) { turned(word, meter) / 2 } else { word / 2 }
}

/// As [`total`], where the word's thread runs and may just have opened or closed a call, or where
/// it was overwritten: not less than `own`, the number of the calls themselves, nor more than the
/// meter.
#[must_use]
pub fn total_now(word: u64, meter: u64, own: u64) -> u64 {
    total(word, meter).min(meter / 2).max(own.min(meter / 2))
}

/// Whether a call is open that adds to this total.
#[must_use]
pub const fn is_open(word: u64) -> bool {
    word & 1 == 1
}

/// The word when such a call begins or ends.
#[must_use]
pub const fn turned(word: u64, meter: u64) -> u64 {
    meter.wrapping_add(1).wrapping_sub(word)
}

/// Facts about the allocator.
pub mod facts {
    /// A library that sees allocations was loaded.
    pub const SEEN: u32 = 1;
    /// The allocator doesn't say how large a block is: bytes allocated are those that were asked
    /// for, and bytes freed aren't known.
    pub const NO_SIZES: u32 = 2;
    /// The program's own file defines `malloc`: only what it takes from the next allocator is seen.
    pub const OWN_ALLOCATOR: u32 = 4;
}

wire_struct! {
    /// Memory that a process had allocated and freed when a snapshot was taken.
    pub struct MemoryRecord [64] {
        /// Number of the snapshot.
        pub snapshot: u32,
        /// A set of [`facts`].
        pub facts: u32,
        /// By threads that have no slot, or before they had one.
        pub elsewhere: [u64; NUMBERS],
        /// Zero.
        pub reserved: [u64; 3],
    }
}

wire_struct! {
    /// Memory that the calls of one function have allocated and freed in one thread slot.
    pub struct MemoryCalls [88] {
        /// Code offset of its entries; 0 if it isn't known.
        pub code: u32,
        /// The thread slot.
        pub slot: u32,
        /// When the process first called it, ticks: this shows which module the code offset is in.
        pub ticks: u64,
        /// In the calls themselves.
        pub own: [u64; NUMBERS],
        /// With what they called.
        pub total: [u64; NUMBERS],
        /// One of [`whose`].
        pub whose: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// [`MemoryCalls::whose`].
pub mod whose {
    /// The calls of a function.
    pub const FUNCTION: u32 = 0;
    /// No call: own is what was allocated outside of all calls, total what the slot's threads have
    /// allocated in all.
    pub const THREAD: u32 = 1;
    /// The calls of functions that found no place.
    pub const OTHERS: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_right_at_every_step() {
        // Allocations, some of them while a call of the function is open.
        let (mut meter, mut word, mut expected) = (0_u64, 0_u64, 0_u64);
        for (step, bytes) in [3_u64, 5, 0, 7, u64::from(u32::MAX), 11].into_iter().enumerate() {
            let opens = step % 2 == 1;
            if opens {
                word = turned(word, meter);
                assert!(is_open(word) && total(word, meter) == expected);
                expected += bytes;
            }
            meter = meter.wrapping_add(2 * bytes);
            assert_eq!(total(word, meter), expected);
            if opens {
                word = turned(word, meter);
                assert!(!is_open(word) && total(word, meter) == expected);
            }
        }
    }
}
