//! Event words in about one byte each, without loss, for any sequence of 64-bit words.
//!
//! A program repeats itself: most words are those that followed the same few words the last time, a few ticks
//! later. So a word is foretold from its context, and mostly one byte says "that one, so many ticks later".
//!
//! ```text
//! word = high half (ticks) | low half (function)
//!
//! low half    followed the last words the last time   `recent`
//!             else: the last word, in this open call   `called`
//!             else: its place in a dictionary          `known`
//!             else: itself
//! high half   difference to the last time
//! ```
//!
//! Encoder and decoder keep the same tables, which begin empty with each call: what was encoded together is
//! decoded together, and nothing else is needed for it. `docs/format.md` has the layout byte by byte; if you
//! change it, what was written before can't be read any more, so give it another number in
//! `everycall_format::ect::encoding`.
// What comes from outside ends in an error, never in a panic.
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
