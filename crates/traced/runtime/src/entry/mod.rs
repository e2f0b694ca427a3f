//! How the program enters the runtime: its hooks, its start, and the functions that it calls.
//!
//! ```text
//! start       reads arguments and environment, maps the arena, switches tracing on
//! slow        everything that a hook can't finish alone
//! api         the functions of `everycall.h`; fibers, log_lines: those for fibers and log lines
//! frames      calls of the program about frames by id
//! memory      allocations, reported by a preloaded library
//! xray        requests of the kit's XRay interface
//! unwinding   calls from the wrappers around throws, landing pads and jumps
//! modules     traced objects are loaded and unloaded
//! roots       the three forms: in executables, in modules, preloaded
//! ```

pub(crate) mod api;
#[cfg(feature = "module")]
mod base_namespace;
mod environment;
pub(crate) mod fibers;
pub(crate) mod frames;
pub(crate) mod log_lines;
pub(crate) mod memory;
pub(crate) mod modules;
mod roots;
pub(crate) mod slow;
pub(crate) mod start;
pub(crate) mod unwinding;
pub(crate) mod xray;
