//! Labels, instants, spans and counters of the program, and events that the runtime notes, such as
//! exceptions.
//!
//! One record of kind [`kind::LABEL`] each:
//!
//! ```text
//! first word   ticks, count, detail = class | flags
//! payload 1, 2 the value, low half first; 0 if there is none
//! payload 3..  the name, four bytes each, little endian, padded with zeros
//! ```
//!
//! A name has at most [`NAME_MAX`] bytes and ends before its first zero byte.

use crate::event::{kind, payload_word, record_word};

/// A task is woken: its next step may begin. The low half of the value is the task's number, the
/// upper half which of its steps that is, from 1; the name is the task's. Since version 2.12.
pub const TASK_WAKE: u8 = 0;
/// A named value of the innermost open call.
pub const LABEL: u8 = 1;
/// Something that happened at one moment.
pub const INSTANT: u8 = 2;
/// A span begins. Spans belong to their thread, and may overlap calls and each other.
pub const SPAN_BEGIN: u8 = 3;
/// The innermost open span with the same name, and the same value or lack of one, ends.
pub const SPAN_END: u8 = 4;
/// Written by the runtime: the module with this file name was loaded.
pub const MODULE_LOADED: u8 = 5;
/// Written by the runtime: the module with this file name was unloaded.
pub const MODULE_UNLOADED: u8 = 6;
/// An exception is thrown. The name is that of its type, as the C++ ABI writes it; empty if
/// unknown. It may be followed by [`TEXT`] or [`CUT_TEXT`] and what the exception says.
pub const THROW: u8 = 7;
/// A handler is entered, in the innermost open call or in a function without hooks that it called.
/// The name is as for [`THROW`].
pub const CATCH: u8 = 8;
/// The *value* innermost open calls, which share a frame, are being unwound by an exception, and
/// the frame cleans up.
pub const CLEANUP: u8 = 9;
/// The thread is ending, and its open calls with it.
pub const THREAD_END: u8 = 10;
/// After a cleanup, a handler begins. The *value* innermost open calls share its frame and
/// continue.
pub const HANDLER: u8 = 11;
/// A value of a time series of the process, signed.
pub const COUNTER: u8 = 12;
/// A value of a time series of the process, as the bits of a double.
pub const COUNTER_REAL: u8 = 13;
/// A step of a task begins on this thread: until its end, what the thread does is the task's. The
/// low half of the value is the task's number in its process, the upper half which of its steps it
/// is, from 1, or 0 if that isn't known; the name is the task's. Since version 2.12.
pub const TASK_BEGIN: u8 = 14;
/// A step ends. The low half of the value is the task's number. The upper half is how many calls,
/// whose exits come directly before, were suspended instead of ended: the task's next step resumes
/// them. There is no name. Since version 2.12.
pub const TASK_END: u8 = 15;
/// The bits of the detail that contain the class.
pub const CLASS_MASK: u8 = 0x0f;
/// Set in the detail if the program gave no value.
pub const NO_VALUE: u8 = 0x80;

/// Whether a detail is that of a task's step.
#[must_use]
pub const fn is_task(detail: u8) -> bool {
    matches!(detail & CLASS_MASK, TASK_BEGIN | TASK_END)
}

/// Whether a mark is the begin of a step that says which one of its task it is.
#[must_use]
pub const fn is_numbered_step(detail: u8, value: u64) -> bool {
    detail & CLASS_MASK == TASK_BEGIN && value >> 32 != 0
}

/// In the name of a [`THROW`], between its type and its text (`what()`). Since version 2.15.
pub const TEXT: u8 = 0x1f;
/// As [`TEXT`], if the text's end is missing.
pub const CUT_TEXT: u8 = 0x1e;
/// With less room than this, there is no text.
const TEXT_LEAST: usize = 8;

/// Limit on the bytes of a name; longer names are truncated.
pub const NAME_MAX: usize = 64;
/// Payloads before the name.
const VALUE_PAYLOADS: usize = 2;
/// The most words of a record, the first one included.
pub const WORDS_MAX: usize = 1 + VALUE_PAYLOADS + NAME_MAX / 4;

/// A record in slots: `words[..len]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRecord {
    words: [u64; WORDS_MAX],
    len: usize,
}

impl LabelRecord {
    /// The words, first one first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&self.words)
    }
}

/// The record of a label, instant or span (`class`) at `ticks`. The name ends before its first zero
/// byte; a name that doesn't fit is truncated, between characters if it is UTF-8.
#[must_use]
pub const fn record(class: u8, ticks: u64, value: Option<u64>, name: &[u8]) -> LabelRecord {
    let length = kept_length(name, NAME_MAX);
    let count = VALUE_PAYLOADS + length.div_ceil(4);
    let (value, flags) = match value {
        Some(value) => (value, 0),
        None => (0, NO_VALUE),
    };
    let mut words = [0; WORDS_MAX];
    words[0] = record_word(ticks, kind::LABEL, count as u8, class & CLASS_MASK | flags);
    words[1] = payload_word(value as u32, kind::LABEL, 1);
    words[2] = payload_word((value >> 32) as u32, kind::LABEL, 2);
    let mut rest = name;
    let mut left = length;
    let mut index = 1 + VALUE_PAYLOADS;
    while left > 0 && index < WORDS_MAX {
        let mut four = 0;
        let mut place = 0;
        while place < 4 && left > 0 {
            let [first, others @ ..] = rest else { break };
            four |= (*first as u32) << (8 * place);
            rest = others;
            left -= 1;
            place += 1;
        }
        words[index] = payload_word(four, kind::LABEL, index as u8);
        index += 1;
    }
    LabelRecord { words, len: 1 + count }
}

/// The number of bytes of a name that are recorded, of at most `most`.
const fn kept_length(name: &[u8], most: usize) -> usize {
    let mut length = 0;
    // Start of the last character.
    let mut character = 0;
    let mut rest = name;
    while let [first, others @ ..] = rest {
        if *first == 0 {
            return length;
        }
        let continues = *first & 0xc0 == 0x80;
        if length == most {
            // If no character begins near its end, the text isn't UTF-8.
            return if continues && most - character < 4 { character } else { most };
        }
        if !continues {
            character = length;
        }
        length += 1;
        rest = others;
    }
    length
}

/// A name that was decoded from payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_MAX],
    len: usize,
}

impl Name {
    /// That of a [`THROW`]: the type, and as much of the text as there is room for. `text` ends
    /// where it ends, or is longer than [`NAME_MAX`].
    #[must_use]
    pub fn of_throw(type_name: &[u8], text: &[u8]) -> Name {
        let mut name = Name { bytes: [0; NAME_MAX], len: 0 };
        let mut add = |from: &[u8]| {
            let into = name.bytes.iter_mut().skip(name.len);
            name.len += into.zip(from).map(|(to, from)| *to = *from).count();
            NAME_MAX - name.len
        };
        let room = add(type_name).saturating_sub(1);
        if room >= TEXT_LEAST.min(text.len().max(1)) {
            let kept = text.get(..kept_length(text, room)).unwrap_or(text);
            add(&[if kept.len() == text.len() { TEXT } else { CUT_TEXT }]);
            add(kept);
        }
        name
    }

    /// Decodes the payloads after the value; those beyond [`NAME_MAX`] bytes are ignored.
    #[must_use]
    pub fn from_payloads(payloads: impl Iterator<Item = u32>) -> Name {
        let mut bytes = [0; NAME_MAX];
        for (place, payload) in bytes.chunks_exact_mut(4).zip(payloads) {
            place.copy_from_slice(&payload.to_le_bytes());
        }
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_MAX);
        Name { bytes, len }
    }

    /// Its bytes, without padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::event::Word;
    use std::format;

    fn name_of(record: &LabelRecord) -> Name {
        Name::from_payloads(record.words().iter().skip(3).map(|word| (word >> 32) as u32))
    }

    #[test]
    fn throws_have_their_text() {
        let of = |kind: &[u8], text: &[u8]| std::vec::Vec::from(Name::of_throw(kind, text).bytes());
        assert_eq!(of(b"St13runtime_error", b"no key"), b"St13runtime_error\x1fno key");
        assert_eq!(of(b"E", b""), b"E\x1f");
        let long = [b'x'; 100];
        assert_eq!(of(&long, b"text"), &long[..64]);
        assert_eq!(of(&long[..60], b"a text"), &long[..60]);
        assert_eq!(of(&long[..60], b"ab"), [&long[..60], b"\x1fab"].concat());
        assert_eq!(of(b"E", &long), [b"E\x1e", &long[..62]].concat());
        let characters = "\u{e4}".repeat(40);
        assert_eq!(of(b"EE", characters.as_bytes()), [b"EE\x1e", &characters.as_bytes()[..60]].concat());
    }

    #[test]
    fn words_are_the_documented_ones() {
        const RECORD: LabelRecord = record(LABEL, 0x1_0000_0005, Some(0x2_0000_0003), b"abcde");
        let wanted = [
            0x0000_0005_7f0a_0401,
            0x0000_0003_ff0a_0100,
            0x0000_0002_ff0a_0200,
            0x6463_6261_ff0a_0300,
            0x0000_0065_ff0a_0400,
        ];
        assert_eq!(RECORD.words(), wanted);
        let bare = record(INSTANT, 5, None, b"");
        assert_eq!(bare.words(), [0x0000_0005_7f0a_0282, 0xff0a_0100, 0xff0a_0200]);
    }

    #[test]
    fn names_come_back_and_long_ones_are_cut_between_characters() {
        let long = "x".repeat(70);
        let two = format!("{}é{}", "x".repeat(63), "y");
        let four = format!("{}😀", "x".repeat(61));
        for (name, kept) in [
            (&b""[..], &b""[..]),
            (b"r", b"r"),
            (b"request", b"request"),
            (b"a\0b", b"a"),
            (long.as_bytes(), &long.as_bytes()[..64]),
            ("é".repeat(32).as_bytes(), "é".repeat(32).as_bytes()),
            ("é".repeat(40).as_bytes(), "é".repeat(32).as_bytes()),
            (two.as_bytes(), &two.as_bytes()[..63]),
            (four.as_bytes(), &four.as_bytes()[..61]),
            (&[0x80; 70], &[0x80; 64]),
        ] {
            let record = record(SPAN_BEGIN, 1, Some(7), name);
            assert_eq!(name_of(&record).bytes(), kept);
            assert_eq!(record.words().len(), 3 + kept.len().div_ceil(4));
            for (index, word) in record.words().iter().enumerate() {
                match Word::decode(*word) {
                    Word::Record { count, .. } => {
                        assert_eq!((index, count as usize + 1), (0, record.words().len()))
                    }
                    Word::Payload { kind: of, index: at, .. } => {
                        assert_eq!((of, at as usize), (kind::LABEL, index))
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
