//! The kit: the folder of objects, archives and headers that compilations and links refer to.

use std::io;
use std::path::PathBuf;

/// Gives the kit's folder, and unpacks it first if need be. Called only when something is compiled or linked.
pub type Kit<'a> = &'a dyn Fn() -> io::Result<PathBuf>;

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
