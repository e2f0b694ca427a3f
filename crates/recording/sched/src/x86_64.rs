//! The kernel's names of what is of one architecture.

/// The clock of tracefs that is the counter which hooks read.
pub(crate) const COUNTER_CLOCK: &str = "x86-tsc";
