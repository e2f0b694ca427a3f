//! The compiler prefix of everycall: builds that can be traced, from the user's own compiler commands.
//!
//! Arguments in, the compiler's own behaviour plus sites out. This crate knows the options by which
//! gcc and clang call hooks, how hook calls become patchable sites ([`as_main`]), and what a link
//! needs so that the hooks are there. It knows nothing of rings, traces or the inside of the
//! runtime, whose objects it takes from a folder, the *kit*.
//!
//! | entry point | for |
//! |---|---|
//! | [`cc_main`] | `everycall cc [--mode M] -- COMPILER ARGS...` |
//! | [`named_compiler_main`] | `everycall-gcc`, `-g++`, `-clang`, `-clang++`, with version suffixes |
//! | [`as_main`] | `as`, run by gcc |
//! | [`rustc_main`], [`linker_main`] | rustc, run by cargo, and the linker, run by rustc |
//! | [`write_integration`] | pkg-config files and a CMake package, for builds without any prefix |
//!
//! Nothing in the environment changes what the prefix makes; it only says where programs and the
//! cache folder lie. The wrappers of rustc and of build scripts' compilers, which cargo runs, read
//! there which crates are traced.
//!
//! Not here: rings, traces, the runtime's insides.
//!
//! Checked by: matrix of modes, flags and linkers; a Rust workspace's own counters.

// Messages go through `everycall_io::messages`: these macros panic if standard error is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Input from outside causes an error, never a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod arch;
mod args;
mod assembler;
mod compiler;
mod exit_code;
mod integration;
mod kit_files;
mod mode;
mod obstacles;
mod prefix;
mod probe;
mod response;
mod rust;
mod start;
mod toolbox;
mod weak;
mod wrap;

pub use assembler::{as_main, is_assembler_name, rewrite};
pub use compiler::Family;
pub use exit_code::{EXIT_NOT_FOUND, EXIT_NOT_RUN, EXIT_REFUSED};
pub use integration::write_integration;
pub use kit_files::{
    BOOST_CONTEXT_OBJECT, CLEANED_OBJECT, CLEANUPS_ARCHIVE, COMPAT_FOLDER, EXCEPTIONS_OBJECT, EXPORTS_LIST,
    FRAMES_ARCHIVE, INCLUDE_FOLDER, Kit, MODULE_OBJECT, RUNTIME_OBJECT, RUNTIME_SYMBOL, for_executable,
};
pub use mode::Mode;
pub use prefix::{cc_main, is_compiler_name, named_compiler_main};
pub use rust::{
    CRATES_VARIABLE, INNER_VARIABLE, RustCrates, START_VARIABLE, build_compiler_main, compilers,
    is_build_compiler_path, is_linker_path, is_rustc_name, linker_main, rustc_main,
};
pub use start::Start;
pub use toolbox::Toolbox;
