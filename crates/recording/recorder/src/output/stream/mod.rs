//! Streams: all events, written while the program runs.

pub mod arena_stream;
mod modules;
mod waiting;
