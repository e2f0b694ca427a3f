//! Recorders, snapshots and crash files, whatever happens to the program.

mod budget;
mod c_api;
mod c_api_snapshots;
mod crash_files;
mod faults;
mod forks_and_snapshots;
mod kills;
mod large_files;
mod lifetimes;
mod limits;
mod many_threads;
mod process_trees;
mod recorder_signals;
mod seccomp;
mod security;
mod snapshot_signals;
mod snapshots;
mod soak;
mod streaming;
mod unloading;
