//! Tests of the runtime without a traced program: the slow path, the threads, the open-call stack
//! and the ring are those that ship. The hooks are written in Rust and do what the assembly does,
//! one instruction at a time.
//!
//! `machine` runs such hooks on simulated stacks, and lets signal handlers run between any two
//! instructions. `signals` tries all places, `scripts` random programs.

mod machine;
mod marks;
mod scripts;
mod signals;
mod switch;
