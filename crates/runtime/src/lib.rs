//! What lives in the traced process.
//!
//! Layers, each of which imports downwards only (a test keeps that):
//!
//! ```text
//! entry      hooks' slow path, start, what the program asks for
//! features   snapshots, triggers without a recorder, crash files, forks, pauses, modules
//! threads    stacks, contexts, open calls, what is recorded of them
//! state      plain structures of the process, its arena, threads and modules
//! sys        system calls, files, mappings, locks
//! ```
//!
//! It allocates nothing after its start, takes no lock that a hook could wait for, needs no other
//! library, and never unwinds. There is no one to report to: what it could not do, it counts in the
//! arena.
//!
//! `unsafe` is opened file by file: for shared memory, system calls, and pointers that the assembly
//! hands over.
#![no_std]
// What a form of the runtime doesn't need, the linker leaves out.
#![cfg_attr(not(any(feature = "executable", feature = "shared")), allow(dead_code))]

mod entry;
mod features;
mod state;
mod sys;
#[cfg(test)]
mod tests;
mod threads;
