//! Lossless compression of event words to about one byte each. Accepts any sequence of 64-bit
//! words.
//!
//! Programs repeat themselves: most words equal the word that followed the same few words the last
//! time, a few ticks later. So each word is predicted from its context, and mostly one byte
//! suffices: "as predicted, so many ticks later".
//!
//! ```text
//! word = high half (ticks) | low half (function)
//!
//! low half    followed the last words the last time   `recent`
//!             or: the last word, in this open call     `called`
//!             or: its place in a dictionary            `known`
//!             or: itself
//! high half   difference to the last time
//! ```
//!
//! Encoder and decoder build the same tables, which are empty at the beginning of each call: words
//! that were encoded together must be decoded together, and need nothing else. `docs/format.md` has
//! the layout byte by byte. If you change it, existing files can't be read any more, so give the
//! new layout another number in `everycall_format::ect::encoding`.
//!
//! Not here: files, what a word means beyond foretelling it.
//!
//! Checked by: round trips of anything, a second decoder written from `docs/format.md`, fuzzing.
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod decode;
mod encode;
mod model;
mod token;

pub use decode::{Error, decode};
pub use encode::{encode, encoded_max};
