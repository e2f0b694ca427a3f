//! Counts of calls by their values: how often functions were called with the same values, in the
//! arena of a process that counts them instead of recording events.
//!
//! ```text
//! values_offset of the arena's header
//!   ValueCountsHeader, one page
//!   ValueCount[PLACES]    a hash table; a place is found by the hash of its id and bytes
//! ```
//!
//! A thread takes a free place by exchanging its state for [`ValueCount::WRITING`] with the hash,
//! writes the rest, and stores [`ValueCount::READY`] with the hash. Two threads may take a place
//! each for the same bytes; readers add such places. Values that find no place within [`TRIES`] are
//! counted in the header. Counts only grow.

use crate::wire::{PAGE, wire_struct};

/// Places for different values, a power of two.
pub const PLACES: u32 = 4096;
/// Places that are looked at for a value.
pub const TRIES: u32 = 64;
/// Limit on the bytes of a capture that is counted by its values.
pub const BYTES_MAX: usize = 224;
/// Bytes of all of this in the arena.
pub const SIZE: u64 = PAGE + PLACES as u64 * size_of::<ValueCount>() as u64;

wire_struct! {
    /// The counts that concern all values.
    pub struct ValueCountsHeader [64] {
        /// Calls whose values found no place.
        pub others: u64,
        /// Calls of these whose captures had more than [`BYTES_MAX`] bytes.
        pub too_long: u64,
        /// Zero.
        pub reserved: [u64; 6],
    }
}

wire_struct! {
    /// Calls with the same values.
    pub struct ValueCount [256] {
        /// 0 if the place is free; else the hash, and in the low bits the state.
        pub state: u64,
        /// Calls.
        pub calls: u64,
        /// The id of the capture.
        pub id: u32,
        /// Bytes of the capture.
        pub length: u32,
        /// Zero.
        pub reserved: u64,
        /// The capture.
        pub bytes: [u8; BYTES_MAX],
    }
}

impl ValueCount {
    /// A thread is writing the place.
    pub const WRITING: u64 = 1;
    /// The place is complete.
    pub const READY: u64 = 2;
    /// The bits of the state.
    pub const STATE: u64 = 3;

    /// Whether there is something to read.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.state & Self::STATE == Self::READY && self.length as usize <= BYTES_MAX
    }

    /// The capture.
    #[must_use]
    pub fn capture(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or(&[])
    }
}

/// The hash of a capture, with the bits of a state left free.
#[must_use]
pub fn hash(id: u32, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    // Both halves of the product, so that each bit of a word counts everywhere.
    let add = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = add(bytes.len() as u64, id.into());
    for word in words {
        hash = add(hash, u64::from_le_bytes(*word));
    }
    hash = add(hash, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    add(hash, FACTOR) & !ValueCount::STATE
}

/// The first place to look at for a hash.
#[must_use]
pub const fn first_place(hash: u64) -> u32 {
    (hash >> 48) as u32 & (PLACES - 1)
}

/// Where a place is, from the header on.
#[must_use]
pub const fn place_at(place: u32) -> u64 {
    PAGE + place as u64 * size_of::<ValueCount>() as u64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn hashes_are_spread() {
        let texts = (0..20_000_u32).map(|number| std::format!("/path/{number}"));
        let hashes: HashSet<u64> = texts.map(|text| hash(7, text.as_bytes())).collect();
        assert_eq!(hashes.len(), 20_000);
        let places: HashSet<u32> = hashes.iter().map(|hash| first_place(*hash)).collect();
        assert!(places.len() > 4000, "{}", places.len());
        assert_ne!(hash(1, b""), hash(2, b""));
        assert_ne!(hash(1, b"\0"), hash(1, b""));
    }
}
