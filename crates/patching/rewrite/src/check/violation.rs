//! Rules that a plan must keep, and violations of them.

use std::fmt;

/// A rule that a plan must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The file can be read.
    File,
    /// The region and islands lie beside the file and each other.
    Places,
    /// Patches are sorted and disjoint.
    Disjoint,
    /// Each patch is on one page, so that it is written as a whole or not at all.
    Pages,
    /// The file has the bytes that are replaced.
    OldBytes,
    /// New bytes are jumps that lead to trampolines.
    NewBytes,
    /// No known target is strictly within a patch.
    Targets,
    /// Trampolines do what the code did.
    Trampoline,
    /// Each entry and return of a hooked function is hooked, and each call of a hook is reached.
    Complete,
    /// Threads go on where they were.
    Moves,
    /// The displacements that lead from trampolines to the module are known.
    Displacements,
    /// Unwind rows are sorted, within the region, and have states.
    Rows,
}

/// A rule that a plan breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// An address of the module.
    pub at: u64,
    what: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, at: u64, what: &str) -> Self {
        Self { rule, at, what: what.to_owned() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:#x}: {}", self.rule, self.at, self.what)
    }
}
