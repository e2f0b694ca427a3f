//! Parts of `record` that other verbs need, too: its options, the program, files, and what is said
//! of a new trace.

pub mod captures;
pub mod ended;
pub mod grown;
pub mod kept_calls;
pub mod log_files;
pub mod log_format;
pub mod observed;
pub mod only;
pub mod preload;
pub mod program;
pub mod progress;
pub mod ring_size;
pub mod rotation;
pub mod written;
