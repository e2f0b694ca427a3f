//! All that differs between architectures. The machine of a command is known from its compiler's name and its
//! options. The assembler step of mode `nops` has a text of its own for each machine.

#[path = "aarch64/mod.rs"]
mod aarch64;
#[path = "x86_64/mod.rs"]
mod x86_64;

use everycall_format::arch::Machine;

pub(crate) use aarch64::text as marked;
pub(crate) use x86_64::{
    OTHER_MACHINE_OPTIONS as X86_64_OTHER, RUST_TARGET, is_rust_target, text, trace_insn,
};

/// Options of gcc and clang that compile for another machine, with the machine whose compilers have
/// them.
pub(crate) fn is_other_machine_option(option: &str) -> bool {
    X86_64_OTHER.contains(&option) || aarch64::OTHER_MACHINE_OPTIONS.contains(&option)
}

/// Target prefixes of cross-compilers' names whose programs can't be traced. The first word of a
/// target is compared as a whole with those that can.
const OTHER_MACHINES: [&str; 13] = [
    "aarch64_be",
    "arm",
    "i386",
    "i486",
    "i586",
    "i686",
    "riscv",
    "powerpc",
    "s390x",
    "mips",
    "sparc",
    "loongarch",
    "m68k",
];

/// The machine that a target names, such as `aarch64-linux-gnu`; `None` if programs for it can't be
/// traced, or it names none.
pub(crate) fn machine_of(target: &str) -> Option<Machine> {
    let cpu = target.split('-').next().unwrap_or_default();
    Machine::ALL.into_iter().find(|machine| match machine {
        Machine::X86_64 => x86_64::is_cpu(cpu),
        Machine::Aarch64 => aarch64::is_cpu(cpu),
    })
}

/// Whether gcc calls hooks at entries and exits of functions for this machine. Otherwise it marks
/// entries.
pub(crate) fn has_hook_calls(machine: Machine) -> bool {
    match machine {
        Machine::X86_64 => true,
        Machine::Aarch64 => false,
    }
}

/// Whether the runtime can switch the sleds that clang makes for this machine.
pub(crate) fn has_sleds(machine: Machine) -> bool {
    match machine {
        Machine::X86_64 => true,
        Machine::Aarch64 => false,
    }
}

/// The target of rustc's for which a machine's runtime is built.
pub(crate) fn runtime_target(machine: Machine) -> &'static str {
    match machine {
        Machine::X86_64 => RUST_TARGET,
        Machine::Aarch64 => aarch64::RUNTIME_TARGET,
    }
}

/// Whether a target, or a compiler's name that begins with one, is of a machine whose programs
/// can't be traced.
pub(crate) fn is_other_machine(target: &str) -> bool {
    machine_of(target).is_none() && OTHER_MACHINES.iter().any(|known| target.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_machines() {
        for (target, machine) in [
            ("x86_64-pc-linux-gnu", Some(Machine::X86_64)),
            ("amd64-linux", Some(Machine::X86_64)),
            ("aarch64-linux-gnu-gcc-12", Some(Machine::Aarch64)),
            ("arm64-linux-gnu", Some(Machine::Aarch64)),
            ("aarch64_be-linux-gnu", None),
            ("arm-linux-gnueabihf", None),
            ("gcc", None),
        ] {
            assert_eq!(machine_of(target), machine, "{target}");
        }
        assert!(is_other_machine("arm-linux-gnueabihf-gcc") && is_other_machine("aarch64_be-none"));
        assert!(!is_other_machine("arm64-linux-gnu") && !is_other_machine("aarch64-linux-gnu-gcc"));
        assert!(!is_other_machine("clang"));
    }
}
