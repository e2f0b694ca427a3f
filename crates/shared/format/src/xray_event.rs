//! XRay's custom and typed events, which the program emits by clang's builtins.
//!
//! One record of kind [`kind::XRAY_CUSTOM_EVENT`] or [`kind::XRAY_TYPED_EVENT`] each:
//!
//! ```text
//! first word   ticks, count
//! payload 1    typed events only: the type's number
//! next         number of bytes of the program's data
//! following    the first of these bytes, four each, little endian, padded with zeros
//! ```
//!
//! At most [`DATA_MAX`] bytes of the data are recorded.

use crate::event::{kind, payload_word, record_word};

/// Limit on the recorded bytes of an event's data.
pub const DATA_MAX: usize = 64;
/// The most words of a record, the first one included.
pub const WORDS_MAX: usize = 3 + DATA_MAX / 4;

/// A record in slots: `words[..len]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    words: [u64; WORDS_MAX],
    len: usize,
}

impl EventRecord {
    /// The words, first one first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&self.words)
    }
}

/// The record of an event at `ticks`: a typed event if `of_type` is given, otherwise a custom
/// event. `length` is the length of all data, of which `data` is the beginning.
#[must_use]
pub fn record(ticks: u64, of_type: Option<u32>, length: u32, data: &[u8]) -> EventRecord {
    let kind = if of_type.is_some() { kind::XRAY_TYPED_EVENT } else { kind::XRAY_CUSTOM_EVENT };
    let data = data.get(..DATA_MAX).unwrap_or(data);
    let four =
        data.chunks(4).map(|bytes| bytes.iter().rev().fold(0_u32, |four, byte| four << 8 | u32::from(*byte)));
    let mut words = [0; WORDS_MAX];
    let mut len = 1;
    for (payload, word) in of_type.into_iter().chain([length]).chain(four).zip(words.iter_mut().skip(1)) {
        *word = payload_word(payload, kind, len as u8);
        len += 1;
    }
    words[0] = record_word(ticks, kind, len as u8 - 1, 0);
    EventRecord { words, len }
}

/// An event's data that was decoded from payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    bytes: [u8; DATA_MAX],
    len: usize,
}

impl Data {
    /// Decodes the payloads after the length; those beyond [`DATA_MAX`] bytes are ignored.
    #[must_use]
    pub fn from_payloads(length: u32, payloads: impl Iterator<Item = u32>) -> Data {
        let mut bytes = [0; DATA_MAX];
        let mut len = 0;
        for (place, payload) in bytes.chunks_exact_mut(4).zip(payloads) {
            place.copy_from_slice(&payload.to_le_bytes());
            len += 4;
        }
        Data { bytes, len: len.min(length as usize) }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn words_are_the_documented_ones() {
        assert_eq!(
            record(0x1_0000_0005, None, 6, b"abcdef").words(),
            [0x0000_0005_7f13_0300, 0x0000_0006_ff13_0100, 0x6463_6261_ff13_0200, 0x0000_6665_ff13_0300]
        );
        assert_eq!(
            record(5, Some(7), 0, b"").words(),
            [0x0000_0005_7f14_0200, 0x0000_0007_ff14_0100, 0x0000_0000_ff14_0200]
        );
    }

    #[test]
    fn data_comes_back_up_to_its_bound() {
        let all: Vec<u8> = (0..=255).collect();
        for length in [0, 1, 3, 4, 63, 64, 65, 256] {
            for of_type in [None, Some(9)] {
                let record = record(1, of_type, length as u32, &all[..length]);
                let skipped = if of_type.is_some() { 3 } else { 2 };
                let payloads = record.words().iter().skip(skipped).map(|word| (word >> 32) as u32);
                let kept = length.min(DATA_MAX);
                assert_eq!(Data::from_payloads(length as u32, payloads).bytes(), &all[..kept]);
                assert_eq!(record.words().len(), skipped + kept.div_ceil(4));
            }
        }
    }
}
