//! The interface to triggers: which functions they name, and which calls are kept.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use everycall_format::arena::ModuleEntry;
use everycall_format::trigger::{FrameRule, ThrownType, TriggerSite};
use everycall_tracefile::WriteChunk;

use crate::memory::contents::ArenaContents;
use crate::memory::shared_triggers::SharedTriggers;

/// The exceptions that triggers wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thrown {
    /// Rules for exceptions of any type, a bit for each.
    pub any: u32,
    /// Rules for exceptions thrown anywhere, a bit for each; the others apply to calls of their
    /// functions.
    pub anywhere: u32,
    /// Types that rules wait for. New ones come at the end.
    pub types: Vec<ThrownType>,
}

/// Finds the functions of a module that triggers name.
pub trait FindSites: Send {
    /// The sites of a module as code offsets, sorted. `file` is the module's file, if it could be
    /// opened. The program waits for a few seconds at most; a later result still applies to later
    /// calls.
    fn sites(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) -> Vec<TriggerSite>;

    /// The rules of triggers on frames by id, in the order of the triggers: written into each arena
    /// before its process runs.
    fn frames(&self) -> Vec<FrameRule<'_>> {
        Vec::new()
    }

    /// The exceptions that triggers wait for, according to the known modules; `None` if they don't.
    fn thrown(&self) -> Option<&Thrown> {
        None
    }

    /// Called for sites that have no room in the process: their calls are never compared.
    fn not_armed(&mut self, sites: &[TriggerSite]);

    /// Called for sites that the program didn't wait for: earlier calls weren't compared.
    fn late(&mut self, sites: &[TriggerSite]);
}

/// A process with triggers.
#[derive(Clone, Debug)]
pub struct TriggeredProcess {
    /// Its number in the file.
    pub number: u32,
    /// Its process id.
    pub pid: u32,
    /// Its arena.
    pub arena: Arc<dyn ArenaContents>,
    /// The triggers in it.
    pub triggers: Arc<SharedTriggers>,
    /// If the process has ended, the time in ticks after which no call can follow: it isn't passed
    /// again.
    pub over: Option<u64>,
}

/// Keeps calls.
pub trait KeepCalls: Send {
    /// Called when calls may have been posted in one of these processes. Returns the longest time
    /// until the next call. An ended process is passed once more, and then never again. `signals`
    /// were received since.
    fn look(&mut self, processes: &[TriggeredProcess], signals: &[i32]) -> Duration;

    /// Called when all processes have ended and are in the file: writes the kept calls.
    ///
    /// # Errors
    ///
    /// Those of `write`, and of reading what was kept.
    fn write(&mut self, write: &mut WriteChunk<'_>) -> io::Result<()>;
}

/// The parts of a recording that serve triggers.
pub struct Triggers {
    /// Bytes that threads may use beyond their rings while calls are open that may be kept.
    pub memory: u64,
    /// Signals to this process that are passed to `keep`.
    pub signals: Vec<i32>,
    /// Finds the functions.
    pub sites: Box<dyn FindSites>,
    /// Keeps the calls.
    pub keep: Box<dyn KeepCalls>,
}

impl std::fmt::Debug for Triggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers").field("memory", &self.memory).finish_non_exhaustive()
    }
}
