//! Where the program comes in: its hooks, its start, and what it asks for.
//!
//! ```text
//! start       arguments and environment in, arena mapped, tracing on
//! slow        everything that a hook doesn't do itself
//! api         what the program itself asks for: `everycall.h`; fibers: what it tells of them
//! unwinding   what the wrappers around throws, landing pads and jumps tell
//! modules     traced objects come and go
//! roots       the three forms: in executables, in modules, preloaded
//! ```

pub(crate) mod api;
#[cfg(feature = "module")]
mod base_namespace;
mod environment;
pub(crate) mod fibers;
pub(crate) mod modules;
mod roots;
pub(crate) mod slow;
pub(crate) mod start;
pub(crate) mod unwinding;
