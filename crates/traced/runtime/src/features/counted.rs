//! Where a module's hooks find the counts of its functions: those of all calls beside the ring, or,
//! in a process that counts calls instead of recording them, those or the functions' times.
#![allow(unsafe_code)] // A table that is mapped here.

use crate::state::places::Place;
use crate::state::process::Process;
use crate::state::{dropped, stamps, times};
use crate::sys::wiped;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use everycall_hooks::ModuleDescriptor;

/// Bytes of a module's table: an entry may begin at each byte.
fn size(module: &ModuleDescriptor) -> u64 {
    module.size.load(Relaxed) + size_of::<u32>() as u64
}

/// Where the module has the address of the table.
fn table_of(module: &ModuleDescriptor) -> &AtomicU64 {
    if dropped::is_counting() { &module.places } else { &module.recorded_places }
}

/// Makes the table of a module whose place in memory is known. Returns whether its functions can be
/// counted. Only what is used of the table takes memory. A forked child, which has other places for
/// functions, finds it empty.
pub(crate) fn begin(module: &ModuleDescriptor) -> bool {
    let Some(table) = wiped::map_table(size(module)) else { return false };
    module.times.store(dropped::is_timing().into(), Relaxed);
    table_of(module).store((table as u64).wrapping_sub(module.start.load(Relaxed)), Relaxed);
    true
}

/// The module is about to be unloaded: its hooks don't run any more.
pub(crate) fn end(module: &ModuleDescriptor) {
    let table = table_of(module).swap(0, Relaxed);
    if table != 0 {
        wiped::unmap_table(table.wrapping_add(module.start.load(Relaxed)) as *mut u8, size(module));
    }
}

/// The function at `place`, whose hook in `module` was called at `address`, has a place among those
/// whose calls are timed.
pub(crate) fn note_timed(process: &Process, module: &ModuleDescriptor, address: u64, place: Place) {
    let code = if let Place::Offset(code) = place { Some(code) } else { None };
    note(module, address, dropped::place_of(process, code).0);
}

/// The function that `module`'s hook has found at `address` has this place.
pub(crate) fn note(module: &ModuleDescriptor, address: u64, place: u32) {
    let offset = address.wrapping_sub(module.start.load(Relaxed));
    let table = table_of(module).load(Relaxed);
    if table == 0 || offset >= module.size.load(Relaxed) {
        return;
    }
    let offset = match dropped::is_timing() {
        true => times::offset_of_place(place),
        false => place * size_of::<u64>() as u32,
    };
    let entry = table.wrapping_add(address) as *mut u32;
    if !dropped::is_counting() {
        stamps::counts_at(module, (address as u32).wrapping_sub(module.bias_entry.load(Relaxed)), offset);
    }
    // SAFETY: within the module's table; the module is loaded, as its hook runs. Other threads write
    // the same value.
    unsafe { entry.write_unaligned(offset) };
}
