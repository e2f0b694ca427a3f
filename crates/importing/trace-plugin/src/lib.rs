//! A plugin for `qemu-x86_64` that is the device of `everycall-trace-device`: it writes the file
//! that `everycall import` reads, when the program ends. `docs/design/trace-instruction.md` says
//! how to run it.
//!
//! ```text
//! qemu-x86_64 -plugin libeverycall_trace_plugin.so,out=app.device ./app
//! ```
//!
//! | argument | |
//! |---|---|
//! | `out=FILE` | where to write it; `everycall.device` otherwise |
//! | `blocks=N` | blocks of a thread's ring; 1024 (64 MiB) otherwise |
//! | `branches=on` | counts branches, too |
//!
//! The interface of version 1 (QEMU 7 and 8) shows no registers. So the stack pointer is that of
//! the last call that hasn't returned: `machine` follows calls and returns by the memory that they
//! access. Children of `fork` write nothing.
//!
//! Not here: the encoding (`trace-device`).
//!
//! Checked by: trees of programs against those of hooks.

mod machine;
mod qemu;
