//! The data that answers are made with.

use std::cell::RefCell;

use everycall_analysis::{SymbolNames, TraceView};

use crate::file::File;
use crate::read::Numbers;

/// The data of a worker.
pub(crate) struct Context<'w> {
    pub file: &'w File,
    pub view: &'w TraceView<'w>,
    pub names: &'w SymbolNames<'w>,
    pub numbers: RefCell<Numbers<'w>>,
}
