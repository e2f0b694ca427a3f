//! Log lines of the program: the format's address and the raw arguments. They are formatted when
//! they are shown.
//!
//! One record of kind [`kind::LOG`](crate::event::kind::LOG) each:
//!
//! ```text
//! first word   ticks, count
//! payload 1    types: three bits for each argument, the first one lowest; COPIED_FORMAT
//! next         the format: its address, low half first; with COPIED_FORMAT a text
//! following    the arguments: 32 bits one payload, 64 bits two, low half first; texts
//! ```
//!
//! A text is a payload with the number of its bytes and flags ([`TEXT_CUT`], [`TEXT_NULL`]), then
//! the bytes, four each, little endian, padded with zeros.

use crate::event::RECORD_MAX_PAYLOAD;

/// The most arguments of a line.
pub const ARGUMENTS_MAX: usize = 10;
/// Bits of an argument's type.
pub const TYPE_BITS: u32 = 3;
/// In the types: the record has the format's text, because it isn't a literal.
pub const COPIED_FORMAT: u32 = 1 << 31;
/// In the types: the line is output of the program, since version 2.9. Its arguments are an
/// [`INT32`](argument::INT32), one of [`stream`]; an [`INT64`](argument::INT64), the number of the
/// line in the stream; another one, the bytes of the line that are not kept; then texts, which
/// follow each other without anything in between.
pub const OUTPUT: u32 = 1 << 30;
/// Limit on the recorded bytes of a text argument.
pub const TEXT_MAX: usize = 96;
/// Limit on the recorded bytes of a format, with [`COPIED_FORMAT`].
pub const FORMAT_MAX: usize = 256;
/// In a text's length: the text was truncated.
pub const TEXT_CUT: u32 = 1 << 31;
/// In a text's length: there is no text, because the pointer was null.
pub const TEXT_NULL: u32 = 1 << 30;

/// Where a line of [`OUTPUT`] was written.
pub mod stream {
    /// Standard output.
    pub const STDOUT: u32 = 1;
    /// Standard error.
    pub const STDERR: u32 = 2;
    /// A file of the program, which the recorder has read.
    pub const FILE: u32 = 3;
}

/// Types of arguments.
pub mod argument {
    /// There is no such argument, and none after it.
    pub const NONE: u32 = 0;
    /// An integer of at most 32 bits.
    pub const INT32: u32 = 1;
    /// An integer of 64 bits.
    pub const INT64: u32 = 2;
    /// A double.
    pub const DOUBLE: u32 = 3;
    /// A pointer.
    pub const POINTER: u32 = 4;
    /// The text of a C string. When passed to the runtime: a pointer to characters, whether or not
    /// the format converts it to text.
    pub const TEXT: u32 = 5;
}

/// The type of the argument at `index`.
#[must_use]
pub const fn type_of(types: u32, index: usize) -> u32 {
    if index < ARGUMENTS_MAX {
        types >> (index as u32 * TYPE_BITS) & ((1 << TYPE_BITS) - 1)
    } else {
        argument::NONE
    }
}

/// `types`, with the type `to` for the argument at `index`.
#[must_use]
pub const fn with_type(types: u32, index: usize, to: u32) -> u32 {
    let shift = index as u32 * TYPE_BITS;
    if index < ARGUMENTS_MAX { types & !(((1 << TYPE_BITS) - 1) << shift) | to << shift } else { types }
}

/// The number of a text's bytes that fit if `used` payloads precede it and `after` arguments
/// follow.
#[must_use]
pub const fn text_room(used: usize, after: usize) -> usize {
    RECORD_MAX_PAYLOAD.saturating_sub(used + 1 + 2 * after) * 4
}

/// The number of payloads of a text with this many bytes.
#[must_use]
pub const fn text_payloads(bytes: usize) -> usize {
    1 + bytes.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_stand_side_by_side() {
        let mut types = COPIED_FORMAT;
        for index in 0..ARGUMENTS_MAX {
            types = with_type(types, index, argument::TEXT - (index % 5) as u32);
        }
        for index in 0..ARGUMENTS_MAX {
            assert_eq!(type_of(types, index), argument::TEXT - (index % 5) as u32);
        }
        assert_ne!(types & COPIED_FORMAT, 0);
        assert_eq!(type_of(types, ARGUMENTS_MAX), argument::NONE);
        assert_eq!(with_type(types, ARGUMENTS_MAX, 7), types);
        assert_eq!(type_of(with_type(types, 9, argument::INT32), 9), argument::INT32);
    }

    #[test]
    fn the_longest_line_fits() {
        let format = 1 + text_payloads(FORMAT_MAX);
        let mut used = format;
        for after in (0..ARGUMENTS_MAX).rev() {
            used += text_payloads(TEXT_MAX.min(text_room(used, after)));
        }
        assert!(used <= RECORD_MAX_PAYLOAD, "{used}");
    }
}
