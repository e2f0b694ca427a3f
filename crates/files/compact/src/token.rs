//! First bytes of encoded words. All numbers are little endian.
//!
//! | first byte | then | words |
//! |---|---|---|
//! | `00..=bf` | | as `recent` says, so many ticks later |
//! | `c0..=df` | | 1 to 32, each as `recent` says and as much later as the one before was |
//! | `e0..=ee` | 1 byte | as `recent` says, 192 + (low 4 bits of the first byte)·256 + byte ticks later |
//! | `ef` | 2 bytes | 1 + number times the word before |
//! | `f0..=ff` | difference, low half | bits 1..0: encoding of the difference; bits 3..2: of the low half |

/// As predicted: one byte encodes differences below this.
pub const SHORT: u32 = 0xc0;
/// Repeats of "as predicted, with the difference of the word before".
pub const AGAIN: u8 = 0xc0;
/// The most words of one [`AGAIN`].
pub const AGAIN_MAX: u32 = 32;
/// As predicted, with a difference of 12 bits.
pub const LONG: u8 = 0xe0;
/// One more than the largest difference of [`LONG`]: [`SHORT`] and 15 times 256.
pub const LONG_END: u32 = SHORT + 15 * 256;
/// The word before, once more.
pub const SAME: u8 = 0xef;
/// The most words of one [`SAME`].
pub const SAME_MAX: usize = 1 << 16;
/// Anything else.
pub const PLAIN: u8 = 0xf0;

/// How a difference is written, in bits 1..0 of [`PLAIN`].
pub mod difference {
    /// Not at all: it is that of the word before.
    pub const SAME: u8 = 0;
    /// In 1 byte.
    pub const BYTE: u8 = 1;
    /// In 2 bytes.
    pub const TWO: u8 = 2;
    /// In 4 bytes.
    pub const FOUR: u8 = 3;
}

/// How a low half is written, in bits 3..2 of [`PLAIN`].
pub mod low {
    /// Not at all: as `recent` says.
    pub const RECENT: u8 = 0;
    /// Not at all: as `called` says.
    pub const CALLED: u8 = 1;
    /// As its place in `known`, in 2 bytes.
    pub const KNOWN: u8 = 2;
    /// As it is, in 4 bytes.
    pub const ITSELF: u8 = 3;
}
