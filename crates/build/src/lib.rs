//! The compiler prefix of everycall: builds that can be traced, from the user's own compiler commands.
//!
//! Arguments in, the compiler's own behaviour plus sites out. This crate knows how gcc and clang are told to call
//! hooks, how hook calls become patchable sites ([`as_main`]), and what a link needs so that the hooks are there. It
//! knows nothing of rings, traces or the inside of the runtime, whose objects it takes from a folder, the *kit*.
//!
//! | entry point | for |
//! |---|---|
//! | [`cc_main`] | `everycall cc [--mode M] -- COMPILER ARGS...` |
//! | [`named_compiler_main`] | `everycall-gcc`, `-g++`, `-clang`, `-clang++`, with version suffixes |
//! | [`as_main`] | `as`, run by gcc |
//! | [`write_integration`] | pkg-config files and a CMake package, for builds without any prefix |
//!
//! Nothing in the environment changes object code; it only says where programs and the cache folder lie.

// Messages go through `everycall_messages`: these macros panic where nobody can read them.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod args;
mod assembler;
mod compiler;
mod integration;
mod mode;
mod prefix;
mod response;
mod toolbox;
mod wrap;

pub use assembler::{as_main, is_assembler_name, rewrite};
pub use compiler::Family;
pub use integration::write_integration;
pub use mode::Mode;
pub use prefix::{Kit, cc_main, is_compiler_name, named_compiler_main};

/// The kit's object for executables: the runtime and the hooks.
pub const RUNTIME_OBJECT: &str = "everycall-rt.o";
/// The kit's object for shared objects: the hooks, and what finds the runtime of the process.
pub const MODULE_OBJECT: &str = "everycall-module.o";
/// The kit's object that tells of jumps; kits may lack it. Of this and the next seven there is another one for executables: [`for_executable`].
pub const JUMPS_OBJECT: &str = "everycall-jumps.o";
/// The object that makes stacks of fibers known.
pub const FIBERS_OBJECT: &str = "everycall-fibers.o";
/// The same for those of Boost.Context.
pub const BOOST_CONTEXT_OBJECT: &str = "everycall-boost-context.o";
/// The object that keeps the runtime's memory from being locked.
pub const MEMORY_LOCK_OBJECT: &str = "everycall-memory-lock.o";
/// The kit's object that tells of C++ exceptions; kits may lack it.
pub const EXCEPTIONS_OBJECT: &str = "everycall-exceptions.o";
/// The object that says that compilers tell of the ends of inlined calls also where exceptions leave them.
pub const CLEANED_OBJECT: &str = "everycall-cleaned.o";
/// The archive with the object that tells of C's cleanups, for programs that have some.
pub const CLEANUPS_ARCHIVE: &str = "everycall-cleanups.a";
/// The object instead of one of these, where an executable is linked: its wrappers are visible, as they may have to be where shared libraries on the
/// command line use the same functions.
#[must_use]
pub fn for_executable(object: &str) -> String {
    let (name, extension) = object.rsplit_once('.').unwrap_or((object, "o"));
    format!("{name}-executable.{extension}")
}
/// The kit's folder of headers.
pub const INCLUDE_FOLDER: &str = "include";
/// In it, the folder of headers that map other tracers' names to ours.
pub const COMPAT_FOLDER: &str = "compat";
/// The one symbol that a traced executable exports, by which shared objects find its runtime.
pub const RUNTIME_SYMBOL: &str = "everycall_runtime_v1";

/// Exit code where the request can't be done: wrong arguments, or a mode that the compiler can't do.
pub const EXIT_REFUSED: u8 = 2;
/// Exit code where the compiler or the kit is there but couldn't be used.
pub const EXIT_NOT_RUN: u8 = 126;
/// Exit code where the compiler isn't found.
pub const EXIT_NOT_FOUND: u8 = 127;
