//! The runtime on the host, without a traced program: the slow path, the threads, the open-call
//! stack and the ring that ship, under hooks in Rust that do what the assembly does, one
//! instruction at a time.
//!
//! `machine` runs such hooks on pretended stacks and lets signal handlers in between any two
//! instructions; `signals` tries all places, `scripts` random programs.

mod machine;
mod scripts;
mod signals;
mod switch;
