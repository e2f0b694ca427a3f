//! Snapshots that the program takes of itself.
//!
//! ```text
//! take    holds the segments of all threads: nobody waits, nothing is copied
//! write   the trace file, straight from the segments that are held
//! new_file   a file that has its name when it is whole
//! sink    where its bytes go: a descriptor, a file, a function of the program's
//! ```
//!
//! A snapshot is an entry in the arena's table of holders, a list of the threads in memory of its
//! own, and a bit in each segment that it holds. It allocates nothing but that memory, from the
//! kernel, and takes no lock, so it may be taken in a signal handler, also one that interrupts
//! another snapshot.

mod new_file;
mod sink;
mod take;
mod write;

pub(crate) use new_file::write_new;
pub(crate) use sink::Sink;
pub(crate) use take::{free, leave_rings, take};
pub(crate) use write::{Moment, write, write_file, write_moment};
