//! The threads of the viewer.

use std::io;

/// Bytes of a thread's stack: call paths are nested, and so are answers with them.
const STACK: usize = 16 << 20;

/// Starts a thread with room for deep recursion.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).map(drop)
}
