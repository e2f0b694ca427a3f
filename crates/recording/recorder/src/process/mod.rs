//! Observes one traced process while it runs.

pub mod armed;
pub mod member;
pub mod module_files;
pub mod modules;
pub mod names;
pub mod samples;
pub mod selector;
pub mod triggers;
