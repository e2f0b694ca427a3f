//! Values of calls: each different capture is kept once and numbered. Their layouts are the
//! recording's; whoever shows them turns them into text.

use std::collections::HashMap;

use everycall_calls::ValuesNumber;
use everycall_reader::values::capture_of;

/// Different captures that are kept.
const CAPTURES_MAX: usize = 1 << 22;

/// The captures of a trace.
#[derive(Clone, Debug, Default)]
pub struct CapturedValues {
    /// By the layout's id and the bytes.
    numbers: HashMap<Box<[u8]>, ValuesNumber>,
    /// The keys of `numbers`, by number, without the first ones, which were forgotten.
    captures: Vec<Box<[u8]>>,
    forgotten: u32,
    count: u64,
    /// Captures of calls that aren't kept, because there are too many different ones.
    left_out: u64,
}

impl CapturedValues {
    /// How many calls have values; a call with arguments and a result counts twice.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of these are missing, because there are too many different ones.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Layout id and bytes of a capture.
    #[must_use]
    pub fn get(&self, number: ValuesNumber) -> Option<(u32, &[u8])> {
        let index = number.index().checked_sub(self.forgotten as usize)?;
        let (id, bytes) = self.captures.get(index)?.split_first_chunk()?;
        Some((u32::from_le_bytes(*id), bytes))
    }

    /// The numbers of the captures that are kept.
    pub fn numbers(&self) -> impl Iterator<Item = ValuesNumber> + use<> {
        let indices = self.forgotten..self.forgotten.saturating_add(self.captures.len() as u32);
        indices.filter_map(ValuesNumber::of_index)
    }

    /// Forgets the captures, if there are many: whoever needs their text has made it.
    pub(crate) fn forget_old(&mut self) {
        const MANY: usize = 1 << 12;
        if self.captures.len() >= MANY {
            self.forgotten = self.forgotten.saturating_add(self.captures.len() as u32);
            self.captures.clear();
            self.numbers.clear();
        }
    }

    /// Counts the capture in the record that begins at `slot` of `words`.
    pub(crate) fn add(&mut self, words: &[u64], slot: u32) {
        let Some(key) = key(words, slot) else { return };
        self.count += 1;
        if self.numbers.contains_key(&*key) {
            return;
        }
        if self.captures.len() >= CAPTURES_MAX {
            self.left_out += 1;
            return;
        }
        let index = self.forgotten.checked_add(self.captures.len() as u32);
        let Some(number) = index.and_then(ValuesNumber::of_index) else {
            self.left_out += 1;
            return;
        };
        self.numbers.insert(key.clone().into(), number);
        self.captures.push(key.into());
    }

    /// The number of a capture that was counted; `None` if it isn't kept.
    pub(crate) fn number(&self, words: &[u64], slot: u32) -> Option<ValuesNumber> {
        self.numbers.get(&*key(words, slot)?).copied()
    }
}

fn key(words: &[u64], slot: u32) -> Option<Vec<u8>> {
    let (id, bytes) = capture_of(words, slot)?;
    let mut key = id.to_le_bytes().to_vec();
    key.extend_from_slice(&bytes);
    Some(key)
}
