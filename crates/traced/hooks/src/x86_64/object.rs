//! The object's own descriptor, and addresses that its linker provides.
#![allow(unsafe_code)] // Assembly, and the object's descriptor by its address.

use crate::descriptor::ModuleDescriptor;
use core::arch::{asm, global_asm};
#[cfg(not(feature = "shared"))]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

global_asm!(
    "
    .section .bss.everycall_module, \"aw\", @nobits
    .p2align 6
    .type   everycall_module, @object
    .size   everycall_module, {SIZE}
    .globl  everycall_module
    .hidden everycall_module
everycall_module:
    .zero   {SIZE}

    .weak   __start_everycall_sites, __stop_everycall_sites, __start_xray_instr_map, __stop_xray_instr_map
    .hidden __start_everycall_sites, __stop_everycall_sites, __start_xray_instr_map, __stop_xray_instr_map
    .weak   everycall_xray_entry, everycall_xray_exit, everycall_xray_tail_exit
    .hidden everycall_xray_entry, everycall_xray_exit, everycall_xray_tail_exit
    .weak   __ehdr_start
    .hidden __ehdr_start
    .text
    ",
    SIZE = const size_of::<ModuleDescriptor>(),
    options(att_syntax)
);

#[cfg(not(feature = "shared"))]
/// The address of a symbol of this object, or 0 if the symbol isn't defined. (It is read from the
/// global offset table: all linkers support only that for weak hidden symbols.)
macro_rules! address_of_symbol {
    ($name:literal) => {{
        let address: u64;
        // SAFETY: loads an address that the linker has stored.
        unsafe {
            asm!(
                concat!("movq ", $name, "@GOTPCREL(%rip), {}"),
                out(reg) address,
                options(att_syntax, nostack, pure, readonly, preserves_flags)
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
            "movq everycall_starts_off@GOTPCREL(%rip), {}",
            out(reg) address,
            options(att_syntax, nostack, pure, readonly, preserves_flags)
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
        asm!("leaq everycall_module(%rip), {}", out(reg) module, options(att_syntax, nostack, nomem, preserves_flags));
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
    // Objects that contain XRay's interface have hooks that can call a handler first.
    let or = |xray: u64, usual: u64| if xray == 0 { usual } else { xray };
    let entry = or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_entry"));
    let exit = or(address_of_symbol!("everycall_xray_exit"), address_of_symbol!("everycall_exit"));
    let tail_exit =
        or(address_of_symbol!("everycall_xray_tail_exit"), address_of_symbol!("everycall_tail_exit"));
    set(&module.entry_hook, entry);
    set(&module.exit_hook, exit);
    set(&module.tail_exit_hook, tail_exit);
    // The counting hook calls no handlers, so such objects keep their recording hook.
    set(
        &module.count_hook,
        or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_count_entry")),
    );
    set(
        &module.time_entry_hook,
        or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_time_entry")),
    );
    set(
        &module.time_exit_hook,
        or(address_of_symbol!("everycall_xray_exit"), address_of_symbol!("everycall_time_exit")),
    );
    set(
        &module.unstamped_entry_hook,
        or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_unstamped_entry")),
    );
    set(
        &module.unstamped_exit_hook,
        or(address_of_symbol!("everycall_xray_exit"), address_of_symbol!("everycall_unstamped_exit")),
    );
    set(
        &module.capture_entry_hook,
        or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_capture_entry")),
    );
    set(
        &module.capture_exit_hook,
        or(address_of_symbol!("everycall_xray_exit"), address_of_symbol!("everycall_capture_exit")),
    );
    set(&module.called_exit_hook, address_of_symbol!("everycall_called_exit"));
    set(
        &module.sled_hooks[0],
        or(address_of_symbol!("everycall_xray_entry"), address_of_symbol!("everycall_called_entry")),
    );
    set(
        &module.sled_hooks[1],
        or(address_of_symbol!("everycall_xray_exit"), address_of_symbol!("everycall_called_exit")),
    );
    set(&module.sequence[0], address_of_symbol!("everycall_unstamped_start"));
    set(&module.sequence[1], address_of_symbol!("everycall_unstamped_end"));
    set(&module.sequence[2], address_of_symbol!("everycall_unstamped_abort"));
    module
}
