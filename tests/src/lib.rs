//! Shared parts of end-to-end tests: a place to work in, the `everycall` binary, traced programs,
//! and their traces as call trees with function names.
//!
//! A test builds a program through the compiler prefix, records it and looks at the trace:
//!
//! ```no_run
//! use everycall_tests::{Mode, Place};
//! let place = Place::new("hello");
//! let program = place.build(Mode::GCC_NOPS, &["-O2", "hello.c"], "hello");
//! let recording = place.record(&[], &program, &[]);
//! assert_eq!(recording.trace().calls("main"), 1);
//! ```

pub mod abi;
mod built;
pub mod callgrind;
pub mod debian;
pub mod generated;
pub mod imports;
pub mod journal;
pub mod memory_limit;
mod mount;
pub mod outline;
pub mod own_calls;
mod place;
pub mod python;
pub mod rust;
pub mod selections;
pub mod slow;
mod standing;
mod trace;
pub mod viewer;
pub mod wait;
pub mod workloads;

pub use mount::Mount;
pub use place::{Mode, Place, Recording, everycall, found, programs, successful};
pub use standing::{Standing, Waiting};
pub use trace::{Call, Tally, ThreadTrace, TraceView, all, text, unsure};

/// Whether tests take every combination of modes, levels and tools (`EVERYCALL_FULL`). Otherwise
/// the largest take some of them, so that each mode and each tool is tried.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("EVERYCALL_FULL").is_some()
}

/// A number from an environment variable.
#[must_use]
pub fn number_asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
