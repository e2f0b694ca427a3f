//! Programs that show whether hooks leave calls unchanged: generated ones that pass and return
//! values of every class of the ABI, and a hand-written one that compares every register.
//!
//! The generated program's output depends on each byte of each argument and result, so it is the
//! same with and without hooks if, and practically only if, no hook has changed any.

mod program;
mod random;
mod types;

pub use program::{Dialect, generate};

/// The hand-written program's C part: patterns, comparison, and the functions that the compiler
/// instruments.
pub const PROBE_C: &str = include_str!("probe.c");
/// Its assembly part: loads and stores every register.
pub const PROBE_ASSEMBLY: &str = include_str!("probe.S");
/// Hooks that do what the macro `BREAK` says.
pub const PROBE_BROKEN: &str = include_str!("probe_broken.S");
/// Functions that call and jump to each other.
pub const CALLERS_C: &str = include_str!("callers.c");
/// Has gdb stop at every instruction of the hooks, and print the callers that it finds.
pub const BACKTRACE_PY: &str = include_str!("backtrace.py");
