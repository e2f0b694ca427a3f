//! The machine code of a site when off, when on, and in each step between, while threads run it.
//!
//! A site may also change from calling one hook to calling another ([`Site::instead_of`]), through
//! the form between or the off form. [`Site::of_call`] does so with a call that the compiler has
//! left.
//!
//! [`Site::step`] returns what to write next, given the current bytes. Each step leaves a site that
//! any thread can run from any instruction boundary of the form before, and that is off or on.
//! `docs/design/switching.md` says what the vendors guarantee.
//!
//! This crate knows bytes only. The caller decides where and when they are written.
//!
//! Not here: where and when they are written.
//!
//! Checked by: every state in an independent disassembler, from every boundary; strangers refused.
#![no_std]

use everycall_format::arch::SLED_SIZE;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod arch;
#[cfg(not(target_arch = "aarch64"))]
#[path = "x86_64/mod.rs"]
mod arch;

pub use arch::{STEPS_MAX, Site};

/// How many other hooks a site may call so far.
pub const OTHERS: usize = 2;

/// Whether a site is to call its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It costs nothing.
    Off,
    /// It calls.
    On,
}

/// Which change of bytes that others run is seen by them as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// One store within an aligned 8-byte word, and stores are seen in their order.
    Words,
    /// A single byte.
    Bytes,
}

/// Why a site was left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It contains bytes that no compiler and no step wrote.
    UnexpectedBytes,
    /// The hook is further away than a call reaches.
    OutOfReach,
    /// A kind of sled other than entry or exit.
    UnknownKind,
    /// Its alignment is not the one that the assembler step and clang give sites.
    Misplaced,
}

/// The next store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offset from the site's first byte.
    pub at: usize,
    /// Number of bytes.
    pub length: usize,
    /// The bytes, in the first `length` places.
    pub bytes: [u8; SLED_SIZE],
    /// Whether threads run these bytes, so that the store has to be whole: within an aligned 8-byte
    /// word, or a single byte.
    pub is_run: bool,
}

impl Step {
    /// The bytes to write.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    fn new(at: usize, text: &[u8], is_run: bool) -> Step {
        let mut bytes = [0; SLED_SIZE];
        bytes.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Step { at, length: text.len().min(SLED_SIZE), bytes, is_run }
    }
}

/// Whether `length` bytes at `address` are in one aligned 8-byte word.
#[must_use]
pub const fn is_in_word(address: u64, length: usize) -> bool {
    address % 8 + length as u64 <= 8
}
