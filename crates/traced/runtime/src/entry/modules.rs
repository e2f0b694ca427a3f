//! Registers traced objects that are loaded, and unregisters those that are unloaded.
#![allow(unsafe_code)] // Called by objects through a table, with their descriptors.

use crate::entry::slow::slow_path;
use crate::features::modules;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_format::Wire;
use everycall_format::site::RUNTIME_ABI;
use everycall_format::trampoline::{Adopted, hook};
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

/// See [`everycall_hooks::RuntimeTable::adopt`].
///
/// # Safety
/// `what` is an [`Adopted`] with addresses that are mapped as it says, and stay.
pub(crate) unsafe extern "C" fn adopt(what: *const u8) {
    // SAFETY: by contract.
    let bytes = unsafe { core::slice::from_raw_parts(what, Adopted::SIZE) };
    let Some(adopted) = Adopted::read(bytes).filter(|adopted| adopted.record_size as usize >= Adopted::SIZE)
    else {
        return;
    };
    // SAFETY: by contract, zeroed memory: a descriptor holds only atomics.
    let module = unsafe { &*(adopted.descriptor as *const ModuleDescriptor) };
    let set = |field: &AtomicU64, value: u64| field.store(value, Relaxed);
    module.abi.store(RUNTIME_ABI, Relaxed);
    set(&module.elf_header, adopted.elf_header);
    set(&module.sites[0], adopted.sites[0]);
    set(&module.sites[1], adopted.sites[1]);
    set(&module.region[0], adopted.start);
    set(&module.region[1], adopted.end);
    set(&module.trampolines, adopted.trampolines.into());
    for (field, hook) in [
        (&module.entry_hook, hook::ENTRY),
        (&module.exit_hook, hook::EXIT),
        (&module.tail_exit_hook, hook::TAIL_EXIT),
        (&module.count_hook, hook::COUNT_ENTRY),
        (&module.time_entry_hook, hook::TIME_ENTRY),
        (&module.time_exit_hook, hook::TIME_EXIT),
        (&module.unstamped_entry_hook, hook::UNSTAMPED_ENTRY),
        (&module.unstamped_exit_hook, hook::UNSTAMPED_EXIT),
        (&module.capture_entry_hook, hook::CAPTURE_ENTRY),
        (&module.capture_exit_hook, hook::CAPTURE_EXIT),
        (&module.sequence[0], hook::SEQUENCE),
        (&module.sequence[1], hook::SEQUENCE_END),
        (&module.sequence[2], hook::SEQUENCE_ABORT),
    ] {
        set(field, adopted.hooks[hook]);
    }
    let [table, table_end] = adopted.table;
    // SAFETY: by contract.
    let table =
        unsafe { core::slice::from_raw_parts(table as *const u8, table_end.saturating_sub(table) as usize) };
    modules::adopt(module, slow_path, adopted.first, table);
}

/// See [`everycall_hooks::RuntimeTable::unregister`].
///
/// # Safety
/// As [`register`].
pub(crate) unsafe extern "C" fn unregister(module: *const ModuleDescriptor) {
    // SAFETY: by contract.
    modules::unregister(unsafe { &*module });
}
