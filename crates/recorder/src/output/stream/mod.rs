//! Everything of a run, stored while it runs.

pub mod arena_stream;
mod modules;
mod thread;
mod waiting;
