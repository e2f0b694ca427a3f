//! The kit: the folder of objects, archives and headers that compilations and links refer to.

use std::io;
use std::path::PathBuf;

/// Returns the kit's folder, and unpacks it first if necessary. Called only when something is
/// compiled or linked.
pub type Kit<'a> = &'a dyn Fn() -> io::Result<PathBuf>;

/// The kit's object for executables: the runtime and the hooks.
pub const RUNTIME_OBJECT: &str = "everycall-rt.o";
/// The kit's object for shared objects: the hooks, and what finds the runtime of the process.
pub const MODULE_OBJECT: &str = "everycall-module.o";
/// The kit's list of what an executable exports.
pub const EXPORTS_LIST: &str = "everycall-exports.list";
/// The kit's archive with an object for each function that leaves frames, prepares a stack or locks
/// memory; kits may lack it. This and the next eight have another form for executables:
/// [`for_executable`].
pub const FRAMES_ARCHIVE: &str = "everycall-frames.a";
/// The object that registers the stacks of Boost.Context.
pub const BOOST_CONTEXT_OBJECT: &str = "everycall-boost-context.o";
/// The kit's object that reports C++ exceptions; kits may lack it.
pub const EXCEPTIONS_OBJECT: &str = "everycall-exceptions.o";
/// The object that reports Rust's panics.
pub const RUST_OBJECT: &str = "everycall-rust.o";
/// The object that makes tokio's tasks known.
pub const TOKIO_OBJECT: &str = "everycall-tokio.o";
/// The object that marks a link whose code reports the exits of inlined calls also when exceptions
/// leave them.
pub const CLEANED_OBJECT: &str = "everycall-cleaned.o";
/// The object by which a program starts with tracing off.
pub const START_OFF_OBJECT: &str = "everycall-start-off.o";
/// The archive with the object that reports C's cleanups, for programs that have some.
pub const CLEANUPS_ARCHIVE: &str = "everycall-cleanups.a";
/// The archive with XRay's interface, for programs that use it.
pub const XRAY_ARCHIVE: &str = "everycall-xray.a";
/// Name of an object's form for executables. Its wrappers are visible, because shared libraries on the
/// command line may refer to the same functions.
#[must_use]
pub fn for_executable(object: &str) -> String {
    let (name, extension) = object.rsplit_once('.').unwrap_or((object, "o"));
    format!("{name}-executable.{extension}")
}
/// The kit's folder of headers.
pub const INCLUDE_FOLDER: &str = "include";
/// The folder in it with headers that map other tracers' names to ours.
pub const COMPAT_FOLDER: &str = "compat";
/// The one symbol that a traced executable exports, by which shared objects find its runtime.
pub const RUNTIME_SYMBOL: &str = "everycall_runtime_v1";
