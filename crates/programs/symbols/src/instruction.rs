//! Properties of an instruction that callers ask for, whatever the architecture.

/// How an instruction leaves its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It returns.
    Returns,
    /// It jumps to an image address.
    JumpsTo(u64),
    /// It jumps to the address in a slot.
    JumpsThrough(u64),
    /// It jumps to an address that it computes.
    JumpsAnywhere,
}

/// A call, or a jump out of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// To an image address.
    Address(u64),
    /// To the address in a slot.
    Slot(u64),
}
