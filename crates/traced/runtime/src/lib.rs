//! The part of everycall that runs inside the traced process.
//!
//! Each layer imports downwards only (a test checks this):
//!
//! ```text
//! entry      hooks' slow path, start, functions that the program calls
//! features   snapshots, triggers without a recorder, crash files, forks, pauses, modules
//! threads    stacks, contexts, open calls, and recording their events
//! state      plain structures of the process, its arena, threads and modules
//! sys        system calls, files, mappings, locks
//! ```
//!
//! The runtime allocates nothing after its start, takes no lock that a hook could wait for, needs
//! no other library, and never unwinds. It has nowhere to report errors, so it counts failures in
//! the arena.
//!
//! `unsafe` is allowed file by file: for shared memory, system calls, and pointers that the
//! assembly passes.
//!
//! Not here: symbols, text (but the lines of `perf-PID.map`, where triggers need them), unwinding;
//! a register or an offset of one architecture, which `hooks::arch` has.
//!
//! Checked by: programs end to end, scripts against a model; a test of its imports.
#![no_std]
// The linker removes what a form of the runtime doesn't use.
#![cfg_attr(not(any(feature = "executable", feature = "shared")), allow(dead_code))]

mod entry;
mod features;
mod state;
mod sys;
#[cfg(test)]
mod tests;
mod threads;
