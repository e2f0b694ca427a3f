//! Bytes of a process that change together.

use std::ops::Range;

/// Bytes that are replaced. Addresses are those of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub at: u64,
    /// The bytes that must be there.
    pub old: Vec<u8>,
    /// As many bytes. The first one begins an instruction, which does what the old bytes did.
    pub new: Vec<u8>,
}

impl Patch {
    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.at.saturating_add(self.old.len() as u64)
    }
}

/// Where a thread goes on that was stopped before a replaced instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The instruction.
    pub from: u64,
    /// The address of the code that runs instead.
    pub to: u64,
}

/// A function's patches, which are changed together or left alone together.
///
/// Code that patches jump to has to be mapped already, and to work without the patches. A patch
/// that another one jumps to stands before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchSet {
    /// Disjoint, in the order in which they are written.
    pub patches: Vec<Patch>,
    /// Instructions inside of them, and others that a thread has to leave all the same, as those of
    /// a function that goes on in a copy. Where a patch begins, no thread is moved.
    pub moves: Vec<Move>,
}

impl PatchSet {
    /// An address strictly inside of replaced bytes. Their first one stays an instruction's begin.
    pub(crate) fn is_inside(&self, address: u64) -> bool {
        self.patches.iter().any(|patch| patch.at != address && patch.range().contains(&address))
    }

    /// A thread mustn't go on there: inside of replaced bytes, or where the set says so.
    pub(crate) fn is_to_leave(&self, address: u64) -> bool {
        self.is_inside(address)
            || (self.destination(address).is_some() && !self.patches.iter().any(|patch| patch.at == address))
    }

    pub(crate) fn touches(&self, address: u64) -> bool {
        self.patches.iter().any(|patch| patch.range().contains(&address))
    }

    pub(crate) fn destination(&self, address: u64) -> Option<u64> {
        self.moves.iter().find(|entry| entry.from == address).map(|entry| entry.to)
    }
}

/// The outcome for a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written, or written back; or it was so already.
    Done,
    /// A thread is inside of the replaced bytes and can't be moved, or will return there from a
    /// signal handler. Nothing of the set was changed: let the threads go on, and try again.
    InUse,
    /// Other bytes were there than expected: somebody else's, which stay. When undoing, the others
    /// of the set are written back.
    Foreign,
}
