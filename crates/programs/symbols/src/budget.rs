//! Bounds on what one input may cost: units of work, so that the same input always ends the same
//! way.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;

use crate::source::CompiledSource;

/// Memory, in bytes, that a module may use beyond four times the size of its files.
pub const MEMORY_BASE_BYTES: u64 = 64 << 20;

/// Everything that can be said about why debugging information could not be read.
#[derive(Debug)]
pub(crate) enum DebugError {
    /// The data contradicts the format.
    Malformed(gimli::Error),
    /// The data needs more work than its size can justify.
    Exhausted,
}

impl From<gimli::Error> for DebugError {
    fn from(error: gimli::Error) -> Self {
        Self::Malformed(error)
    }
}

/// Work left for one module's debugging information; a unit is about one byte read or one entry
/// visited.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<u64>,
    /// Checksums and folders of the source files named so far, by path.
    pub(crate) sources: RefCell<HashMap<PathBuf, CompiledSource>>,
}

impl Budget {
    /// A budget for inputs of `size` bytes in total. Honest files use less than two units per byte:
    /// each byte is read once, and some again for references between units.
    pub(crate) fn for_input(size: u64) -> Self {
        Self {
            left: Cell::new(size.saturating_mul(16).saturating_add(MEMORY_BASE_BYTES)),
            sources: RefCell::default(),
        }
    }

    /// Adds what a further file of `size` bytes justifies.
    pub(crate) fn grant(&self, size: u64) {
        self.left.set(self.left.get().saturating_add(size.saturating_mul(16)));
    }

    /// Takes `units` out of the budget.
    pub(crate) fn spend(&self, units: u64) -> Result<(), DebugError> {
        match self.left.get().checked_sub(units) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(DebugError::Exhausted)
            }
        }
    }
}
