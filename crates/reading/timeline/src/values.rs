//! Values of calls: each different capture is kept once and numbered. Their layouts are the
//! recording's; whoever shows them turns them into text. The names of exceptions are captures, too,
//! because a call that an exception leaves has that in the place of a result.

use std::collections::HashMap;

use everycall_calls::ValuesNumber;
use everycall_format::label::{CUT_TEXT, TEXT};
use everycall_reader::event::label_name;
use everycall_reader::values::capture_of;

/// Different captures that are kept.
const CAPTURES_MAX: usize = 1 << 22;

/// In the place of a layout's id, which is never 0: the capture's bytes are the name of a thrown
/// exception, as marks have it.
pub const EXCEPTION: u32 = 0;

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
    /// Whether there are values, or exceptions by which calls may have ended.
    #[must_use]
    pub fn are_any(&self) -> bool {
        self.count > 0 || !self.captures.is_empty()
    }

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
        if !self.keep(key) {
            self.left_out += 1;
        }
    }

    /// Adds the name of an exception that is thrown, and that of its type alone. The record of the
    /// throw begins at `slot` of `words`.
    pub(crate) fn add_exception(&mut self, words: &[u64], slot: u32) {
        let (whole, of_type) = keys_of_exception(words, slot);
        whole.into_iter().chain(of_type).for_each(|key| {
            self.keep(key);
        });
    }

    /// Keeps a capture, unless there are too many.
    fn keep(&mut self, key: Vec<u8>) -> bool {
        if self.numbers.contains_key(&*key) {
            return true;
        }
        if self.captures.len() >= CAPTURES_MAX {
            return false;
        }
        let index = self.forgotten.checked_add(self.captures.len() as u32);
        let Some(number) = index.and_then(ValuesNumber::of_index) else { return false };
        self.numbers.insert(key.clone().into(), number);
        self.captures.push(key.into());
        true
    }

    /// The exception in the record of a throw or catch that begins at `slot` of `words`.
    pub(crate) fn exception(&self, words: &[u64], slot: u32) -> Exception {
        let (whole, of_type) = keys_of_exception(words, slot);
        let number = |key: Option<Vec<u8>>| self.numbers.get(&*key?).copied();
        Exception { whole: number(whole), of_type: number(of_type) }
    }

    /// The number of a capture that was counted; `None` if it isn't kept.
    pub(crate) fn number(&self, words: &[u64], slot: u32) -> Option<ValuesNumber> {
        self.numbers.get(&*key(words, slot)?).copied()
    }
}

/// An exception, by the numbers of captures that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exception {
    /// Its type with its text, if that was recorded.
    pub whole: Option<ValuesNumber>,
    /// Its type.
    pub of_type: Option<ValuesNumber>,
}

/// The captures of an exception and of its type; none if the type isn't known.
fn keys_of_exception(words: &[u64], slot: u32) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let name = label_name(words, slot);
    let whole = name.bytes();
    let of_type = whole.split(|byte| matches!(*byte, TEXT | CUT_TEXT)).next().unwrap_or_default();
    if of_type.is_empty() {
        return (None, None);
    }
    let key = |bytes: &[u8]| Some([&EXCEPTION.to_le_bytes(), bytes].concat());
    (key(whole), key(of_type))
}

fn key(words: &[u64], slot: u32) -> Option<Vec<u8>> {
    let (id, bytes) = capture_of(words, slot)?;
    let mut key = id.to_le_bytes().to_vec();
    key.extend_from_slice(&bytes);
    Some(key)
}
