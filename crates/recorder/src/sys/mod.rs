//! Access to the system: clocks, processes, signals, and how a program is found and started.

pub mod clock;
mod counter;
pub mod error;
pub mod host;
pub mod launch;
pub mod lock;
pub mod proc_files;
pub mod signals;
pub mod usage;
