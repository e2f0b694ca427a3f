//! Snapshots that the program takes of itself.
//!
//! ```text
//! take       pins the segments of all threads: no thread waits, nothing is copied
//! code_files what perf would read of just-in-time compilers
//! write      the trace file, written straight from the pinned segments
//! new_file   a file that gets its name when it is complete
//! sink       where its bytes go: a descriptor, a file, a callback of the program
//! ```
//!
//! A snapshot consists of an entry in the arena's table of pinners, a list of the threads in
//! private memory, and a bit in each segment that it pins. It allocates only that memory, from the
//! kernel, and takes no lock. So it may be taken in a signal handler, even in one that interrupts
//! another snapshot.

mod code_files;
mod new_file;
mod sink;
mod take;
mod write;

pub(crate) use new_file::write_new;
pub(crate) use sink::Sink;
pub(crate) use take::{free, leave_rings, take};
pub(crate) use write::{Moment, write, write_file, write_moment};
