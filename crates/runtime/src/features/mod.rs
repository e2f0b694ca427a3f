//! What the runtime does besides recording, one file for each.
//!
//! ```text
//! snapshot         what the program keeps and writes of its own rings; snapshot_signal: when a signal asks for it
//! keeper           keeps calls that met a trigger, without a recorder; choice: which ones; site_set: by which set
//! crash            the arena in a file that outlives the process
//! fork             a forked child gets an arena of its own
//! pause            recording off and on again, of one thread or all
//! modules          traced objects come and go; live: those that are there, and their sites as tracing is
//! sites            the sites that a module lists; switch: writes them while all threads run
//! calling          something is done with the calling thread
//! memory_lock      `mlockall`, without the runtime's own memory
//! ```

pub(crate) mod calling;
pub(crate) mod choice;
pub(crate) mod crash;
pub(crate) mod fork;
pub(crate) mod keeper;
pub(crate) mod live;
pub(crate) mod memory_lock;
pub(crate) mod modules;
pub(crate) mod pause;
pub(crate) mod site_set;
pub(crate) mod sites;
pub(crate) mod snapshot;
pub(crate) mod snapshot_signal;
pub(crate) mod switch;
