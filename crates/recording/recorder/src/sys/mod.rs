//! Access to the system: signals, limits, and how a program is found and started.

pub mod error;
pub mod launch;
pub mod lock;
pub mod signals;
pub mod usage;
