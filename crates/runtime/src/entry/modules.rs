//! Registers traced objects that are loaded, and unregisters those that are unloaded.
#![allow(unsafe_code)] // Called by objects through a table, with their descriptors.

use crate::entry::slow::slow_path;
use crate::features::modules;
use everycall_hooks::ModuleDescriptor;

/// See [`everycall_hooks::RuntimeTable::register`].
///
/// # Safety
/// `module` is the descriptor of a loaded object, filled in by its initialiser.
pub(crate) unsafe extern "C" fn register(module: *const ModuleDescriptor) {
    // SAFETY: by contract.
    modules::register(unsafe { &*module }, slow_path);
}

/// Lets an object's hooks find the slow path, and nothing else.
#[cfg(feature = "shared")]
pub(crate) fn prepare(module: &ModuleDescriptor) {
    modules::prepare(module, slow_path);
}

/// See [`everycall_hooks::RuntimeTable::unregister`].
///
/// # Safety
/// As [`register`].
pub(crate) unsafe extern "C" fn unregister(module: *const ModuleDescriptor) {
    // SAFETY: by contract.
    modules::unregister(unsafe { &*module });
}
