//! The loaded modules, and whether their sites are off or on.
//!
//! Which sites should be on follows from the state of the process and the sites' marks
//! ([`crate::features::marks`]): [`mark_sites`] and [`mark_addresses`] switch single functions.
//!
//! ```text
//! registry    the modules that are loaded
//! lines       whether a module's sites should be on, and switching them so
//! selecting   which of its functions are recorded
//! tails       tail exits of functions that triggers follow
//! following   brings all modules into line with what is to be recorded
//! marking     functions that go off or on by themselves
//! ```

#![allow(unsafe_code)] // Descriptors of modules that are loaded.

mod following;
mod lines;
mod marking;
mod registry;
mod selecting;
mod tails;

pub(crate) use following::{
    add, begin_child, choose_stamps, count_not_selected, follow, follow_to_end, is_filtered, is_followed,
    request, select_again, set_handled,
};
pub(crate) use lines::OUTCOME;
pub(crate) use marking::{
    ADDRESSES_MAX, COSTLY_MAX, Costly, Marked, Refused, lock_patiently, mark_addresses, mark_costly,
    mark_sites,
};
pub(crate) use registry::{has_module_of, marks_of, module_of, remove};
pub(crate) use tails::{follow_new_tails, follow_tails, switch_tails};
