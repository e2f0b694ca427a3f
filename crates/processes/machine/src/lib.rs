//! Facts of this machine and of processes on it, for whoever records them or looks at traces.
//!
//! - [`clock`]: the counter that hooks read, and the system's clocks beside it.
//! - [`host`]: texts about the machine, for traces.
//! - [`proc_files`]: processes and threads as `/proc` has them.
//! - [`build_id_of`]: build ids of ELF files.
//! - [`vdso`]: the code that the kernel puts into each process.
//! - [`CodeFiles`]: the files by which just-in-time compilers name their code; [`open_code_file`]
//!   opens one that was left.
//!
//! All of it is read; nothing is changed.
//!
//! Not here: changing anything, what is recorded.
//!
//! Checked by: its unit tests; every recording end to end.

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
mod build_id;
pub mod clock;
mod code_files;
pub mod host;
pub mod proc_files;
mod vdso;

pub use build_id::{build_id, build_id_of};
pub use code_files::{CodeFiles, CodeNames, EndedProcess, NameSet, open_code_file};
pub use vdso::vdso;
