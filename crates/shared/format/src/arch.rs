//! Numbers of each architecture. The traced side takes the numbers of the machine that it is
//! compiled for, which this module has as its own. Hosts ask a [`Machine`], because a program or a
//! trace may be of another machine than theirs.

#[path = "aarch64.rs"]
pub mod aarch64;
#[path = "x86_64.rs"]
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(not(target_arch = "aarch64"))]
pub use x86_64::*;

/// A machine whose programs can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit Arm, little endian.
    Aarch64,
}

/// The bytes of sites, of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sites {
    /// Bytes of a site of mode `nops`. Its call of a hook is the last instruction in it.
    pub size: usize,
    /// Bytes of a direct call.
    pub call: usize,
    /// Bytes of one of XRay's sites.
    pub sled: usize,
    /// Bytes from the begin of XRay's site of an entry or a tail exit to its call.
    pub sled_call: usize,
}

impl Machine {
    /// Every machine.
    pub const ALL: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];
    /// The machine that this code is compiled for.
    pub const OWN: Machine = if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };

    /// The machine with this number in headers of ELF files.
    #[must_use]
    pub const fn of_elf(number: u16) -> Option<Machine> {
        match number {
            x86_64::ELF_MACHINE => Some(Machine::X86_64),
            aarch64::ELF_MACHINE => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// The machine that a record of a trace or an arena names; `None` if it names none, as older
    /// records do, or one that isn't known.
    #[must_use]
    pub const fn of_record(number: u32) -> Option<Machine> {
        if number > u16::MAX as u32 { None } else { Machine::of_elf(number as u16) }
    }

    /// Its number in headers of ELF files.
    #[must_use]
    pub const fn elf(self) -> u16 {
        match self {
            Machine::X86_64 => x86_64::ELF_MACHINE,
            Machine::Aarch64 => aarch64::ELF_MACHINE,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Machine::X86_64 => x86_64::NAME,
            Machine::Aarch64 => aarch64::NAME,
        }
    }

    /// Its name in targets of compilers, in names of tools and of folders.
    #[must_use]
    pub const fn target(self) -> &'static str {
        match self {
            Machine::X86_64 => x86_64::TARGET,
            Machine::Aarch64 => aarch64::TARGET,
        }
    }

    /// The bytes of its sites.
    #[must_use]
    pub const fn sites(self) -> Sites {
        match self {
            Machine::X86_64 => Sites {
                size: x86_64::SITE_SIZE,
                call: x86_64::CALL_SIZE,
                sled: x86_64::SLED_SIZE,
                sled_call: x86_64::SLED_CALL,
            },
            Machine::Aarch64 => Sites {
                size: aarch64::SITE_SIZE,
                call: aarch64::CALL_SIZE,
                sled: aarch64::SLED_SIZE,
                sled_call: aarch64::SLED_CALL,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_found_by_their_numbers() {
        for machine in Machine::ALL {
            assert_eq!(Machine::of_elf(machine.elf()), Some(machine));
            assert_eq!(Machine::of_record(machine.elf().into()), Some(machine));
            let Sites { size, call, sled, sled_call } = machine.sites();
            assert!(call <= size && sled_call + call <= sled);
        }
        assert_eq!(Machine::of_elf(40), None);
        assert_eq!(Machine::of_elf(0), None);
        assert_eq!(Machine::of_record(0), None);
        assert_eq!(Machine::of_record(0x1_003e), None);
        assert_eq!(u32::from(Machine::OWN.elf()), u32::from(ELF_MACHINE));
    }
}
