//! Code and stubs, by the machine of a file.

#[path = "aarch64/mod.rs"]
mod aarch64;
#[path = "x86_64/mod.rs"]
mod x86_64;

use everycall_format::arch::Machine;

use crate::instruction::{Leaves, Target};

/// Bytes that one instruction may have.
pub(crate) const INSTRUCTION_SIZE_MAX: u64 = x86_64::INSTRUCTION_SIZE_MAX;
/// The sections of stubs.
pub(crate) const STUB_SECTIONS: [&str; 3] = x86_64::STUB_SECTIONS;

/// Bytes of the longest call of a hook.
pub(crate) fn longest_call(machine: Machine) -> u64 {
    match machine {
        Machine::X86_64 => x86_64::LONGEST_CALL,
        Machine::Aarch64 => aarch64::INSTRUCTION_SIZE,
    }
}

/// Whether code ends in the call of a hook.
pub(crate) fn ends_in_call(machine: Machine, code: &[u8]) -> bool {
    match machine {
        Machine::X86_64 => x86_64::ends_in_call(code),
        Machine::Aarch64 => aarch64::ends_in_call(code),
    }
}

/// Target of the call that begins a function at `start`, as the call of an entry hook does: an
/// address, or the slot with one.
pub(crate) fn first_call(machine: Machine, code: &[u8], start: u64) -> Option<u64> {
    match machine {
        Machine::X86_64 => x86_64::first_call(code, start),
        Machine::Aarch64 => None,
    }
}

/// Classifies the jump or return at `address`; `None` for any other instruction. Conditional jumps
/// count if `is_untouched`.
pub(crate) fn leaving(machine: Machine, code: &[u8], address: u64, is_untouched: bool) -> Option<Leaves> {
    match machine {
        Machine::X86_64 => x86_64::leaving(code, address, is_untouched),
        Machine::Aarch64 => aarch64::leaving(code, address, is_untouched),
    }
}

/// The targets of all calls in a function's code, and of jumps out of it: `None` where one is
/// computed, or the code can't be decoded.
pub(crate) fn targets(machine: Machine, code: &[u8], start: u64) -> Option<Vec<Target>> {
    match machine {
        Machine::X86_64 => x86_64::targets(code, start),
        Machine::Aarch64 => aarch64::targets(code, start),
    }
}

/// Whether a jump to a function of this name is a return. The names belong to one machine.
pub(crate) fn is_return_thunk(name: &[u8]) -> bool {
    x86_64::is_return_thunk(name)
}

/// Whether a jump to a function of this name continues at an address in a register.
pub(crate) fn is_indirect_thunk(name: &[u8]) -> bool {
    x86_64::is_indirect_thunk(name)
}

/// Bytes before the first stub of a section, and of each stub.
pub(crate) fn stub_sizes(machine: Machine, section: &str, data: &[u8]) -> (usize, usize) {
    match machine {
        Machine::X86_64 => (0, x86_64::stub_size(section, data)),
        Machine::Aarch64 => aarch64::stub_sizes(section, data),
    }
}

/// The address of the slot that a stub at `start` jumps through.
pub(crate) fn jump_slot(machine: Machine, entry: &[u8], start: u64) -> Option<u64> {
    match machine {
        Machine::X86_64 => x86_64::jump_slot(entry, start),
        Machine::Aarch64 => aarch64::jump_slot(entry, start),
    }
}
