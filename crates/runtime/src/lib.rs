//! What lives in the traced process.
//!
//! ```text
//! start      arguments and environment in, arena mapped, tracing on
//! process    the process's state, private, gone in a forked child
//! arena      typed access to the shared memory
//! modules    traced objects come and go: their place in the code space, their sites
//! module_table  which entry and range of the code space they get, and get again
//! live       the modules that are there, and their sites as tracing is
//! sites      the sites that a module lists; switch: writes them while all threads run
//! image      an object in memory: its code, its build id
//! mapped_file   the file that lies at an address
//! threads    a thread's first event gives it a slot
//! slow       everything that a hook doesn't do itself
//! contexts   which stack a thread runs: its own, or a fiber's; stacks: their bounds; ranges: those that are known
//! nested     stacks in local variables, and when they are over
//! interrupted  which stack a signal interrupted
//! mapping    where a mapping begins and ends
//! memory_lock  `mlockall`, without the runtime's own memory
//! open_calls the open-call stack: dead frames, frames that match an exit
//! hub        where the recorder's arenas are found
//! pause      recording off and on again, of one thread or all
//! api        what the program itself asks for: `everycall.h`
//! fibers     what the program tells of them
//! signal     snapshots that a signal asks for
//! helper     threads of ours that write a file
//! snapshot   what the program keeps and writes of its own rings
//! triggers   calls of certain functions that took long, told to whoever keeps them
//! site_set   which functions those are, where no recorder says it; keeper: keeps the calls there
//! crash      the arena in a file that outlives the process
//! fork       a forked child gets an arena of its own
//! system     system calls, nothing else of the operating system; file: those about files, disk: about mapped ones; folder: paths and names
//! roots      the three forms: in executables, in modules, preloaded
//! ```
//!
//! It allocates nothing after its start, takes no lock that a hook could wait for, needs no other library,
//! and never unwinds. There is no one to report to: what it could not do, it counts in the arena.
//!
//! `unsafe` is opened in each file: all of it is raw shared memory, system calls and pointers that the
//! assembly hands over.
#![no_std]
#![allow(unsafe_code)]
// What a form of the runtime doesn't need, the linker leaves out.
#![cfg_attr(not(any(feature = "executable", feature = "shared")), allow(dead_code))]

mod api;
mod arena;
#[cfg(feature = "module")]
mod base_namespace;
mod beginning;
mod cancellation;
mod contexts;
mod crash;
mod deep_calls;
mod disk;
mod fibers;
mod file;
mod folder;
mod fork;
mod graveyard;
mod helper;
mod hub;
mod image;
mod interrupted;
mod keeper;
mod live;
mod lock;
mod mapped_file;
mod mapping;
mod memory_lock;
mod module_table;
mod modules;
mod nested;
mod open_calls;
mod pause;
mod process;
mod ranges;
mod roots;
mod shared_frames;
mod signal;
mod site_set;
mod sites;
mod slow;
mod slow_stacks;
mod snapshot;
mod stacks;
mod start;
mod switch;
mod system;
#[cfg(test)]
mod tests;
mod threads;
mod triggers;
mod unwinding;
