//! Instructions, by the machine of a file.

#[path = "aarch64.rs"]
mod aarch64;
#[path = "x86_64.rs"]
mod x86_64;

use everycall_format::arch::Machine;

use crate::code::Code;

/// Possible calls in bytes at this address: where each is, and where it leads. One may be part of
/// another instruction.
pub(crate) fn possible_calls(machine: Machine, bytes: &[u8], start: u64) -> Vec<(u64, u64)> {
    match machine {
        Machine::X86_64 => x86_64::possible_calls(bytes, start).collect(),
        Machine::Aarch64 => aarch64::possible_calls(bytes, start).collect(),
    }
}

/// Decodes a function's bytes at this address. `site`: the bytes of the site that begins at an
/// address, if one does, and how many instructions of the function's own it replaces.
pub(crate) fn code_of(
    machine: Machine,
    bytes: &[u8],
    start: u64,
    site: impl Fn(u64) -> Option<(u64, u32)>,
) -> Code {
    match machine {
        Machine::X86_64 => x86_64::code_of(bytes, start, site),
        Machine::Aarch64 => aarch64::code_of(bytes, start, site),
    }
}

/// Bytes of a site of mode `nops`, with what the function has only because of it.
pub(crate) fn site_size(machine: Machine, kind: u32) -> u64 {
    match machine {
        Machine::X86_64 => machine.sites().size as u64,
        Machine::Aarch64 => aarch64::site_size(kind),
    }
}
