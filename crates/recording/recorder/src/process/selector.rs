//! The interface to selections that grow while the program runs.

use std::fs::File;

use everycall_format::arena::ModuleEntry;

use crate::process::triggers::FindSites;

/// Adds functions of modules to the selection, or to the capture set, that the processes read.
pub trait SelectFunctions: Send {
    /// Called for each module that a process has loaded, before the process goes on. `file` is the
    /// module's file, if it could be opened. The process waits for a few seconds at most.
    fn look(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>);

    /// Called with the frames by id that a process has named, whose records these are.
    fn look_at_frames(&mut self, records: &[u8]);
}

/// Those who choose functions of modules.
#[derive(Default)]
pub(crate) struct Choosers {
    /// Finds the functions that triggers name.
    pub finder: Option<Box<dyn FindSites>>,
    pub selectors: Vec<Box<dyn SelectFunctions>>,
}
