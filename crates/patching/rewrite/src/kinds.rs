//! Kinds of hooks and patches.

/// Which hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookKind {
    /// The function was entered.
    Entry,
    /// It is about to return.
    Exit,
    /// It is about to jump into another one.
    TailExit,
}

/// The kind of code that a patch replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Whole instructions, and padding behind them, by a jump.
    Window,
    /// The entry of a function that is copied as a whole.
    Copy,
    /// Padding, by a jump that shorter ones lead to.
    Slot,
    /// The last four bytes of a jump: its displacement.
    Displacement,
    /// The last four bytes of a function's first call: its displacement.
    Call,
}
