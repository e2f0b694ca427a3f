//! Writes the trace file from the arenas, at the end or while the program runs.

pub mod log_files;
mod records;
mod rings;
pub mod rotation;
mod sampled;
pub mod stream;
pub mod streams;
pub mod trace_writer;
