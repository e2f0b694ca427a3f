//! Effects of the hooks on a program, and the events that they write.

mod abi;
mod clocks;
mod contexts;
mod generated_programs;
mod hooks_disassembly;
mod hooks_unwinding;
mod min_duration;
mod random_scripts;
mod scribbles;
mod second_machine;
mod signals;
mod stamps;
mod switching;
mod tail_calls;
mod values;
