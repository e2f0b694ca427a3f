//! Triggers, and the calls that they keep.

mod live_triggers;
mod site_sets;
mod slow_stacks;
mod triggers;
mod triggers_late;
