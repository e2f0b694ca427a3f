//! What a recording asks of whoever knows triggers: which functions they name, and which calls are kept.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use everycall_format::arena::ModuleEntry;
use everycall_format::trigger::{ThrownType, TriggerSite};

use crate::memory::contents::ArenaContents;
use crate::memory::shared_triggers::SharedTriggers;

/// For which exceptions triggers wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thrown {
    /// Rules that wait for those of any type, a bit for each.
    pub any: u32,
    /// Rules that wait for them wherever they are thrown, a bit for each; the others do in calls of their functions.
    pub anywhere: u32,
    /// Types that rules wait for. New ones come at the end.
    pub types: Vec<ThrownType>,
}

/// Knows which functions of a module triggers name.
pub trait FindSites: Send {
    /// The sites of a module, as code offsets, in order. `file` is the module's, where it could be opened. The program waits for some
    /// seconds at most; what comes later is still good for later calls.
    fn sites(&mut self, module: &ModuleEntry, path: &[u8], file: Option<&File>) -> Vec<TriggerSite>;

    /// For which exceptions triggers wait, as far as modules are known; `None` where they don't.
    fn thrown(&self) -> Option<&Thrown> {
        None
    }

    /// There is no room for these in the process: their calls are never looked at.
    fn not_armed(&mut self, sites: &[TriggerSite]);

    /// The program didn't wait for these: calls before weren't looked at.
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
    /// When nothing more can come of it, in ticks: it isn't given again.
    pub over: Option<u64>,
}

/// A chunk of a process: its number, the chunk's kind and payload.
pub type WriteChunk<'a> = dyn FnMut(u32, u32, &[u8]) -> io::Result<()> + 'a;

/// Keeps calls.
pub trait KeepCalls: Send {
    /// Something may have been posted, in one of these processes. How long it may take until the next look. A process that has ended
    /// is given once more afterwards, and then never again. `signals` came since.
    fn look(&mut self, processes: &[TriggeredProcess], signals: &[i32]) -> Duration;

    /// All processes are over, and in the file: writes what was kept.
    ///
    /// # Errors
    ///
    /// Those of `write`, and where what was kept can't be read.
    fn write(&mut self, write: &mut WriteChunk<'_>) -> io::Result<()>;
}

/// What a recording does for triggers.
pub struct Triggers {
    /// Bytes that threads may take beyond their rings while calls are open that may be kept.
    pub memory: u64,
    /// Signals to this process that are handed to whoever keeps calls.
    pub signals: Vec<i32>,
    /// Which functions.
    pub sites: Box<dyn FindSites>,
    /// Which calls.
    pub keep: Box<dyn KeepCalls>,
}

impl std::fmt::Debug for Triggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers").field("memory", &self.memory).finish_non_exhaustive()
    }
}
