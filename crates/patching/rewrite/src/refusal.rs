//! Why functions get no hooks.

use std::fmt;

/// Why a function is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Bytes that are no instructions.
    Data,
    /// An indirect jump whose targets aren't known.
    UnknownJump,
    /// Jumps into another function, or another one into it.
    SharedCode,
    /// Runs over its end into what follows, or is run into.
    FallsThrough,
    /// Symbols that overlap, or a part of several functions.
    Overlap,
    /// Assembler without unwind information, whose conventions aren't known.
    NoUnwind,
    /// Expects flags that code before it has set.
    ReadsFlags,
    /// Returns twice or not as others do, starts the program, or returns from a signal handler.
    Special,
    /// Jumps to its own entry: it would be entered again by each.
    EntryLoop,
    /// An entry or exit without enough bytes that can be moved.
    TooSmall,
}

impl Refusal {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::UnknownJump,
        Self::SharedCode,
        Self::FallsThrough,
        Self::Overlap,
        Self::NoUnwind,
        Self::ReadsFlags,
        Self::Special,
        Self::EntryLoop,
        Self::TooSmall,
    ];

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::UnknownJump => "unknown_jump",
            Self::SharedCode => "shared_code",
            Self::FallsThrough => "falls_through",
            Self::Overlap => "overlap",
            Self::NoUnwind => "no_unwind",
            Self::ReadsFlags => "reads_flags",
            Self::Special => "special",
            Self::EntryLoop => "entry_loop",
            Self::TooSmall => "too_small",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "contain bytes that are no instructions",
            Self::UnknownJump => "contain an indirect jump whose targets are unknown",
            Self::SharedCode => "share code with another function",
            Self::FallsThrough => "run into the next function, or are run into",
            Self::Overlap => "overlap another function, or share a part with one",
            Self::NoUnwind => "have no unwind information (assembler)",
            Self::ReadsFlags => "expect flags of the code before them",
            Self::Special => "return twice, start the program, or return from signal handlers",
            Self::EntryLoop => "jump to their own entry",
            Self::TooSmall => "have an entry or exit of too few bytes",
        })
    }
}
