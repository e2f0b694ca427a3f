//! Converts addresses to code offsets, and back.

use crate::state::process::Process;
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed};
use everycall_format::arena::{ModuleEntry, module_state};
use everycall_hooks::ModuleDescriptor;

/// The place of an event's address.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In a module, at this code offset.
    Offset(u32),
    /// In no module.
    Unknown(u64),
}

/// The place of an address that a hook of `module` reports. `anywhere`: the address may be in
/// another module.
pub(crate) fn of_hook(process: &Process, module: &ModuleDescriptor, address: u64, anywhere: bool) -> Place {
    if !anywhere || within(module.start.load(Relaxed), module.size.load(Relaxed), address) {
        return Place::Offset((address as u32).wrapping_sub(module.bias_entry.load(Relaxed)));
    }
    of(process, address)
}

fn within(start: u64, size: u64, address: u64) -> bool {
    address.wrapping_sub(start) < size
}

/// Whether a range of this length lies in one loaded object.
pub(crate) fn is_within_module(process: &Process, address: u64, size: u64) -> bool {
    let arena = process.arena();
    let count = arena.module_count().load(Acquire);
    (0..count).filter_map(|index| arena.module(index)).any(|entry| {
        entry.state == module_state::COMPLETE
            && entry.unloaded_ticks == 0
            && within(entry.start, entry.end.wrapping_sub(entry.start), address)
            && within(entry.start, entry.end.wrapping_sub(entry.start), address.wrapping_add(size - 1))
    })
}

/// The place of any address.
pub(crate) fn of(process: &Process, address: u64) -> Place {
    let arena = process.arena();
    let count = arena.module_count().load(Acquire);
    let found = (0..count)
        .rev()
        .filter_map(|index| arena.module(index))
        .filter(|entry| entry.state == module_state::COMPLETE && entry.unloaded_ticks == 0)
        .find(|entry| within(entry.start, entry.end.wrapping_sub(entry.start), address));
    found.map_or(Place::Unknown(address), |entry| {
        Place::Offset((address - entry.start) as u32 + entry.code_start)
    })
}

/// The address at a code offset, and the end of its object. `None` if no loaded object has this
/// offset.
pub(crate) fn address(process: &Process, code: u32) -> Option<(u64, u64)> {
    let arena = process.arena();
    let count = arena.module_count().load(Acquire);
    let offset = |entry: &ModuleEntry| u64::from(code.wrapping_sub(entry.code_start));
    (0..count)
        .rev()
        .filter_map(|index| arena.module(index))
        .filter(|entry| entry.state == module_state::COMPLETE && entry.unloaded_ticks == 0)
        .find(|entry| code >= entry.code_start && offset(entry) < entry.end.wrapping_sub(entry.start))
        .map(|entry| (entry.start + offset(&entry), entry.end))
}
