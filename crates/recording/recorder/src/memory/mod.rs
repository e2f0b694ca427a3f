//! The memory shared with the traced processes. Everything read from it is checked, because they
//! may have overwritten it.

pub mod arena;
pub mod capacity;
pub mod contents;
pub mod frame_rules;
pub mod hub;
pub(crate) mod hub_page;
pub mod kept_states;
pub mod memory_file;
pub mod open_calls;
pub mod scan;
pub mod shared_pool;
pub mod shared_triggers;
