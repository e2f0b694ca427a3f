//! Why there is no plan.

use std::fmt;

/// Why a file can't be analysed or planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteError {
    /// Not an ELF file of 64 bits, or damaged.
    NotElf,
    /// Code of another processor.
    OtherMachine,
    /// An object file or a core.
    NotLinked,
    /// No section with code: section headers were removed, or a file with debugging information
    /// only.
    NoCode,
    /// Larger than what displacements of 32 bits reach with their trampolines.
    TooLarge,
    /// The trampolines can't be at the place that was asked for: it isn't a page's, overlaps the
    /// module or an island, or isn't in reach.
    NoPlace,
    /// The checker found the plan wrong. That is a defect of everycall.
    Wrong(String),
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => f.write_str("not an ELF file for 64 bits, or damaged"),
            Self::OtherMachine => f.write_str("not code for x86-64"),
            Self::NotLinked => f.write_str("neither a program nor a shared library"),
            Self::NoCode => f.write_str("no section with code (removed section headers?)"),
            Self::TooLarge => f.write_str("larger than 1 GiB in memory"),
            Self::NoPlace => f.write_str("the trampolines can't be there"),
            Self::Wrong(what) => {
                write!(f, "the plan is wrong, which is a defect of everycall; please report it: {what}")
            }
        }
    }
}

impl std::error::Error for RewriteError {}
