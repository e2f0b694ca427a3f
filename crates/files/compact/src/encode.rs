//! Words to bytes.

use alloc::vec::Vec;

use crate::model::Model;
use crate::token::{self, AGAIN, AGAIN_MAX, LONG, LONG_END, PLAIN, SAME, SAME_MAX, SHORT, difference};

/// Bytes of the longest word.
const WORD_MAX: usize = 9;
/// Words between two checks of the output's capacity.
const BLOCK: usize = 128;
/// Bytes of a block: its words, those held back before it, and what [`Block::put`] writes behind
/// the end.
const ROOM: usize = BLOCK * WORD_MAX + 8;
/// Shorter runs of one word are encoded word by word.
const SAME_MIN: usize = 4;

/// The largest encoded size of so many words, in bytes.
#[must_use]
pub const fn encoded_max(words: usize) -> usize {
    words.saturating_mul(WORD_MAX)
}

/// Appends the encoded `words` to `out`: at most [`encoded_max`] bytes. Takes time linear in the
/// words, and 64 KiB besides the output.
pub fn encode(words: &[u64], out: &mut Vec<u8>) {
    let mut model = Model::new();
    let mut again = 0;
    let mut block = Block { bytes: [0; ROOM], length: 0 };
    let mut rest = words;
    while !rest.is_empty() {
        block.length = 0;
        rest = encode_block(rest, &mut model, &mut again, &mut block);
        if rest.is_empty() {
            block.again(&mut again);
        }
        out.extend_from_slice(block.bytes.get(..block.length).unwrap_or_default());
    }
}

/// Encodes about [`BLOCK`] words; returns the rest.
fn encode_block<'w>(words: &'w [u64], model: &mut Model, again: &mut u32, block: &mut Block) -> &'w [u64] {
    let (now, rest) = words.split_at(words.len().min(BLOCK));
    for (index, word) in now.iter().copied().enumerate() {
        let (low, high) = (word as u32, (word >> 32) as u32);
        let difference = high.wrapping_sub(model.base(low));
        if model.recent() == low {
            if difference == model.last_difference() {
                *again += 1;
                if *again == AGAIN_MAX {
                    block.again(again);
                }
            } else {
                block.again(again);
                block.recent(difference);
            }
            model.advance(low, difference);
            continue;
        }
        block.again(again);
        if word == model.word() {
            // Fillers and unwritten words, at the ends of segments.
            let words = &words[index..];
            let run = words.iter().take(SAME_MAX).take_while(|other| **other == word).count();
            if run >= SAME_MIN {
                block.same(run);
                return &words[run..];
            }
        }
        block.plain(model, low, difference);
        model.correct(low);
        model.advance(low, difference);
    }
    rest
}

/// Bytes on their way out.
struct Block {
    bytes: [u8; ROOM],
    length: usize,
}

impl Block {
    /// Appends the first `length` of four bytes.
    #[inline(always)]
    fn put(&mut self, bytes: u32, length: usize) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + 4) {
            place.copy_from_slice(&bytes.to_le_bytes());
        }
        self.length += length;
    }

    #[inline(always)]
    fn again(&mut self, count: &mut u32) {
        if *count > 0 {
            self.put(u32::from(AGAIN) + *count - 1, 1);
            *count = 0;
        }
    }

    #[inline(always)]
    fn recent(&mut self, difference: u32) {
        if difference < SHORT {
            self.put(difference, 1);
        } else if difference < LONG_END {
            let above = difference - SHORT;
            self.put((u32::from(LONG) + (above >> 8)) | (above & 0xff) << 8, 2);
        } else {
            self.with_difference(token::low::RECENT, difference, None);
        }
    }

    fn same(&mut self, count: usize) {
        self.put(u32::from(SAME) | (count as u32 - 1) << 8, 3);
    }

    fn plain(&mut self, model: &Model, low: u32, difference: u32) {
        let same = (difference == model.last_difference()).then_some(difference::SAME);
        if model.called() == low {
            return self.with_difference(token::low::CALLED, difference, same);
        }
        let place = Model::known_place(low);
        if model.known(place) == low {
            self.with_difference(token::low::KNOWN, difference, same);
            self.put(place as u32, 2);
        } else {
            self.with_difference(token::low::ITSELF, difference, same);
            self.put(low, 4);
        }
    }

    fn with_difference(&mut self, low: u8, difference: u32, same: Option<u8>) {
        let (how, length) = match difference {
            _ if same.is_some() => (difference::SAME, 0),
            0..=0xff => (difference::BYTE, 1),
            0x100..=0xffff => (difference::TWO, 2),
            _ => (difference::FOUR, 4),
        };
        self.put(u32::from(PLAIN | low << 2 | how), 1);
        self.put(difference, length);
    }
}
