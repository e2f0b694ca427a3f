//! The ways to hook a function, in the order in which they are tried.

use std::fmt;

/// From the cheapest to the most expensive. A function has that of its worst entry or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tactic {
    /// A tail call's jump gets another displacement, or jumps to a return do.
    Retarget,
    /// A jump of five bytes takes the place of whole instructions.
    Displace,
    /// Of whole instructions, and of padding behind the function or an unconditional jump.
    Padding,
    /// A jump of two bytes leads to one of five in padding nearby.
    Short,
    /// The whole function, which calls nothing, is copied, and only its entry is patched.
    Copy,
    /// A jump of two bytes leads to one of five, for which other code nearby made place.
    Evict,
    /// A jump whose displacement ends with bytes of the next instruction.
    Pun,
    /// The first call, before which there are only pushes, goes by way of a trampoline, which calls
    /// the hook with the stack as it was at the entry, and then makes it what it was.
    Call,
}

impl Tactic {
    /// All.
    pub const ALL: [Self; 8] = [
        Self::Retarget,
        Self::Displace,
        Self::Padding,
        Self::Short,
        Self::Copy,
        Self::Evict,
        Self::Pun,
        Self::Call,
    ];

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retarget => "retarget",
            Self::Displace => "displace",
            Self::Padding => "padding",
            Self::Short => "short",
            Self::Copy => "copy",
            Self::Evict => "evict",
            Self::Pun => "pun",
            Self::Call => "call",
        }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retarget => "by jumps that they have already",
            Self::Displace => "in the place of their own instructions",
            Self::Padding => "with the help of padding behind them",
            Self::Short => "by way of padding nearby",
            Self::Copy => "as a copy of all of the function, which calls nothing",
            Self::Evict => "by way of other code nearby, which makes place",
            Self::Pun => "by jumps whose displacement ends with the next instruction",
            Self::Call => "by way of their first call",
        })
    }
}
