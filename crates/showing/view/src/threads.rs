//! The threads of the viewer.

use std::io;

/// Bytes of a thread's stack: call paths are nested, and so are answers with them.
const STACK: usize = 16 << 20;

/// How much less often a background thread runs: others that have something to do get three times
/// as much.
const NICE: i32 = 5;

/// Lets this thread give way to those that answer. Where the system doesn't allow it, it does not.
pub(crate) fn give_way() {
    // In Linux, it is the thread's own.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Starts a thread with room for deep recursion.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).map(drop)
}
