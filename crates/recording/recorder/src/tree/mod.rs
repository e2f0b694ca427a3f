//! The recorded program and its descendants, from their claims of arenas to their ends.

mod arenas;
pub mod doorbell;
mod ends;
pub mod hooking;
pub mod keeper;
mod lineage;
mod listener;
pub mod process_tree;
pub mod sampler;
mod silent;
