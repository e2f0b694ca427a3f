//! The object's own descriptor, and addresses that its linker provides.
#![allow(unsafe_code)] // Assembly, and the object's descriptor by its address.

use crate::descriptor::ModuleDescriptor;
use core::arch::{asm, global_asm};
#[cfg(not(feature = "shared"))]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Hooks address the descriptor by its page, so it lies within one.
const _: () = assert!(size_of::<ModuleDescriptor>() <= 512);

global_asm!(
    "
    .section .bss.everycall_module, \"aw\", @nobits
    .p2align 9
    .type   everycall_module, @object
    .size   everycall_module, {SIZE}
    .globl  everycall_module
    .hidden everycall_module
everycall_module:
    .zero   {SIZE}

    .weak   __start_everycall_sites, __stop_everycall_sites, __start_xray_instr_map, __stop_xray_instr_map
    .hidden __start_everycall_sites, __stop_everycall_sites, __start_xray_instr_map, __stop_xray_instr_map
    .weak   __ehdr_start
    .hidden __ehdr_start
    .text
    ",
    SIZE = const size_of::<ModuleDescriptor>(),
);

#[cfg(not(feature = "shared"))]
/// The address of a symbol of this object, or 0 if the symbol isn't defined. (It is read from the
/// global offset table: linkers support only that for weak hidden symbols.)
macro_rules! address_of_symbol {
    ($name:literal) => {{
        let address: u64;
        // SAFETY: loads an address that the linker has stored.
        unsafe {
            asm!(
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, #:got_lo12:", $name, "]"),
                address = out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        address
    }};
}

/// Whether the program was linked with an object that says that tracing is off at its start.
#[cfg(feature = "executable")]
#[must_use]
pub fn starts_off() -> bool {
    let address: u64;
    // SAFETY: loads an address that the linker has stored.
    unsafe {
        asm!(
            // Weak here alone: other forms of the runtime must not refer to it.
            ".weak everycall_starts_off",
            ".hidden everycall_starts_off",
            "adrp {address}, :got:everycall_starts_off",
            "ldr {address}, [{address}, #:got_lo12:everycall_starts_off]",
            address = out(reg) address,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    address != 0
}

/// The descriptor of the object into which this code was linked.
#[must_use]
pub fn own_descriptor() -> &'static ModuleDescriptor {
    let module: *const ModuleDescriptor;
    // SAFETY: a valid address; the object is `{SIZE}` zeroed bytes that hold only atomics.
    unsafe {
        asm!(
            "adrp {module}, everycall_module",
            "add {module}, {module}, #:lo12:everycall_module",
            module = out(reg) module,
            options(nostack, nomem, preserves_flags)
        );
        &*module
    }
}

/// The descriptor of the object into which this code was linked, with what the object knows filled
/// in.
#[cfg(not(feature = "shared"))]
#[must_use]
pub fn describe_object(abi: u32) -> &'static ModuleDescriptor {
    let module = own_descriptor();
    let set = |field: &AtomicU64, value: u64| field.store(value, Relaxed);
    module.abi.store(abi, Relaxed);
    set(&module.elf_header, address_of_symbol!("__ehdr_start"));
    set(&module.sites[0], address_of_symbol!("__start_everycall_sites"));
    set(&module.sites[1], address_of_symbol!("__stop_everycall_sites"));
    set(&module.sleds[0], address_of_symbol!("__start_xray_instr_map"));
    set(&module.sleds[1], address_of_symbol!("__stop_xray_instr_map"));
    let (entry, exit) = (address_of_symbol!("everycall_entry"), address_of_symbol!("everycall_exit"));
    set(&module.entry_hook, entry);
    set(&module.exit_hook, exit);
    set(&module.tail_exit_hook, address_of_symbol!("everycall_tail_exit"));
    set(&module.count_hook, address_of_symbol!("everycall_count_entry"));
    set(&module.time_entry_hook, address_of_symbol!("everycall_slow_entry_hook"));
    set(&module.time_exit_hook, address_of_symbol!("everycall_slow_exit_hook"));
    // No event goes without a stamp, as there is no guard.
    set(&module.unstamped_entry_hook, entry);
    set(&module.unstamped_exit_hook, exit);
    set(&module.capture_entry_hook, address_of_symbol!("everycall_slow_entry_hook"));
    set(&module.capture_exit_hook, address_of_symbol!("everycall_slow_exit_hook"));
    set(&module.called_exit_hook, exit);
    set(&module.sled_hooks[0], entry);
    set(&module.sled_hooks[1], exit);
    module
}
