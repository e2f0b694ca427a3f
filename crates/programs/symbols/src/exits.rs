//! How functions are left: by an exit that returns, or by one that jumps into another function.
//!
//! An exit's address is where its hook returns to. If the module lists its sites, the site says how
//! it leaves; otherwise the instruction at that address does. Exits that are only known by their
//! function show nothing.

use object::read::elf::ProgramHeader;
use object::{LittleEndian, Object, elf};

use everycall_format::arch::Machine;
use everycall_format::site::{NOTE_SECTION, SITES_SECTION, XRAY_SECTION, site_kind, sled_kind};

use crate::arch;
use crate::elf::{CodeSections, Elf, bytes_at, code_symbols, machine_of};
use crate::instruction::Leaves;
use crate::plt;
use crate::sites::{SiteEntry, entries};

/// How a function is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It returns.
    Returns,
    /// It jumps to an image address.
    JumpsTo(u64),
    /// It jumps to the function of this name, wherever that is.
    JumpsToName(Vec<u8>),
    /// It jumps to an address that it computes.
    JumpsAnywhere,
}

/// The exits of one module, as its file describes them.
#[derive(Default)]
pub(crate) struct Exits {
    /// Return addresses of exit hooks, ascending, with the target of a following jump, if any.
    sites: Vec<(u64, Option<u64>)>,
    /// Code in the file: first address, first byte, bytes.
    code: Vec<(u64, u64, u64)>,
    /// Slots that jumps lead through, ascending, with the names of their targets.
    slots: Vec<(u64, Vec<u8>)>,
    /// The file was built without hooks, so exits are known by the instructions by which they
    /// leave.
    is_untouched: bool,
    /// `None` if programs of the file's machine can't be traced.
    machine: Option<Machine>,
}

impl Exits {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let machine = machine_of(elf);
        let bytes = machine.unwrap_or(Machine::OWN).sites();
        // Distance from the XRay sled of a tail exit to its hook's return address.
        let sled_return = (bytes.sled_call + bytes.call) as u64;
        let mut sites = Vec::new();
        for SiteEntry { address, kind, .. } in entries(elf, SITES_SECTION) {
            let behind = address.wrapping_add(bytes.size as u64);
            match kind {
                site_kind::TAIL_EXIT => sites.push((behind, Some(behind))),
                site_kind::EXIT | site_kind::RETURN => sites.push((behind, None)),
                _ => {}
            }
        }
        for SiteEntry { address, kind, .. } in entries(elf, XRAY_SECTION) {
            if kind == u32::from(sled_kind::TAIL_EXIT) {
                let behind = address.wrapping_add(sled_return);
                sites.push((behind, Some(address.wrapping_add(bytes.sled as u64))));
            } else if kind == u32::from(sled_kind::EXIT) {
                sites.push((address.wrapping_add(bytes.call as u64), None));
            }
        }
        sites.sort_unstable();
        let code = elf
            .elf_program_headers()
            .iter()
            .filter(|header| {
                header.p_type(LittleEndian) == elf::PT_LOAD
                    && header.p_flags(LittleEndian).0 & elf::PF_X.0 != 0
            })
            .map(|header| {
                let (offset, size) = header.file_range(LittleEndian);
                (header.p_vaddr(LittleEndian), offset, size)
            })
            .collect();
        let mut slots: Vec<_> =
            plt::slot_targets(elf).into_iter().map(|(slot, name)| (slot, name.to_vec())).collect();
        slots.sort_unstable();
        let is_untouched = sites.is_empty() && elf.section_by_name(NOTE_SECTION).is_none();
        Self { sites, code, slots, is_untouched, machine }
    }

    /// How the exit at `address` leaves its function; `None` if that isn't known. `is_start` says
    /// whether a function begins at an address. `image` is the module's file.
    pub(crate) fn at(&self, image: &[u8], address: u64, is_start: bool) -> Option<Leaving> {
        let at = self.sites.partition_point(|site| site.0 < address);
        if let Some((_, jump)) = self.sites.get(at).filter(|site| site.0 == address) {
            return match jump {
                None => Some(Leaving::Returns),
                Some(jump) => match self.instruction(image, *jump) {
                    Some(Leaving::Returns) | None => Some(Leaving::JumpsAnywhere),
                    jump => jump,
                },
            };
        }
        // An exit's hook returns to the address after a call; a function's first address isn't one.
        // Untouched code has no such calls, and a function may be one jump.
        if !self.is_untouched && (is_start || !self.follows_call(image, address)) {
            return None;
        }
        self.instruction(image, address)
    }

    fn follows_call(&self, image: &[u8], address: u64) -> bool {
        let Some(machine) = self.machine else { return false };
        [machine.sites().call as u64, arch::longest_call(machine)].into_iter().any(|size| {
            let code = address.checked_sub(size).and_then(|from| self.bytes(image, from));
            code.and_then(|code| code.get(..size as usize))
                .is_some_and(|code| arch::ends_in_call(machine, code))
        })
    }

    /// Target of the call that begins the function at `start`, as the call of an entry hook does:
    /// an address, or the slot with one.
    pub(crate) fn first_call(&self, image: &[u8], start: u64) -> Option<u64> {
        arch::first_call(self.machine?, self.bytes(image, start)?, start)
    }

    /// Code from `address` on: as much as an instruction may have, or what there is.
    fn bytes<'i>(&self, image: &'i [u8], address: u64) -> Option<&'i [u8]> {
        self.code.iter().find_map(|&(start, offset, size)| {
            let inside = address.checked_sub(start).filter(|inside| *inside < size)?;
            bytes_at(image, offset.checked_add(inside)?, arch::INSTRUCTION_SIZE_MAX.min(size - inside))
        })
    }

    /// The file's machine, if programs for it can be traced.
    pub(crate) fn machine(&self) -> Option<Machine> {
        self.machine
    }

    /// A function's code.
    pub(crate) fn code_of<'i>(&self, image: &'i [u8], start: u64, size: u64) -> Option<&'i [u8]> {
        self.code.iter().find_map(|&(first, offset, length)| {
            let inside = start.checked_sub(first).filter(|inside| *inside < length)?;
            let size = Some(size).filter(|size| *size <= length - inside)?;
            bytes_at(image, offset.checked_add(inside)?, size)
        })
    }

    /// The name of the function whose address is stored in a slot.
    pub(crate) fn slot_name(&self, slot: u64) -> Option<&[u8]> {
        let at = self.slots.partition_point(|(known, _)| *known < slot);
        self.slots.get(at).filter(|(known, _)| *known == slot).map(|(_, name)| &name[..])
    }

    /// Whether the module lists its exits.
    pub(crate) fn has_sites(&self) -> bool {
        !self.sites.is_empty()
    }

    /// Classifies the jump or return at `address`; `None` for any other instruction.
    fn instruction(&self, image: &[u8], address: u64) -> Option<Leaving> {
        Some(match arch::leaving(self.machine?, self.bytes(image, address)?, address, self.is_untouched)? {
            Leaves::Returns => Leaving::Returns,
            Leaves::JumpsTo(target) => Leaving::JumpsTo(target),
            Leaves::JumpsThrough(slot) => match self.slot_name(slot) {
                Some(name) => Leaving::JumpsToName(name.to_vec()),
                None => Leaving::JumpsAnywhere,
            },
            Leaves::JumpsAnywhere => Leaving::JumpsAnywhere,
        })
    }
}

/// All names of the functions of a module, by address, aliases and indirect functions included.
#[derive(Default)]
pub(crate) struct AllNames {
    /// By address, then by name.
    rows: Vec<NameRow>,
    text: Vec<u8>,
}

struct NameRow {
    start: u64,
    from: u32,
    size: u16,
    /// An indirect function, whose resolver is at that address.
    is_indirect: bool,
}

impl AllNames {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let code = CodeSections::of(elf);
        let (mut rows, mut text) = (Vec::new(), Vec::new());
        for symbol in [false, true].into_iter().flat_map(|is_dynamic| code_symbols(elf, &code, is_dynamic)) {
            // Symbols of a hostile file may share one long name.
            if text.len() + symbol.name.len() > elf.data().len() {
                break;
            }
            let (Ok(from), Ok(size)) = (u32::try_from(text.len()), u16::try_from(symbol.name.len())) else {
                break;
            };
            text.extend_from_slice(symbol.name);
            let is_indirect = symbol.kind == elf::STT_GNU_IFUNC;
            rows.push(NameRow { start: symbol.start, from, size, is_indirect });
        }
        rows.sort_unstable_by(|a, b| (a.start, name_of(&text, a)).cmp(&(b.start, name_of(&text, b))));
        rows.dedup_by(|a, b| (a.start, name_of(&text, a)) == (b.start, name_of(&text, b)));
        Self { rows, text }
    }

    /// The names of functions that begin at `address`, in alphabetical order.
    pub(crate) fn at(&self, address: u64) -> impl Iterator<Item = &[u8]> {
        let from = self.rows.partition_point(|row| row.start < address);
        let here = self.rows[from..].iter().take_while(move |row| row.start == address);
        here.filter(|row| !row.is_indirect).map(|row| name_of(&self.text, row))
    }

    /// Whether an indirect function has this name.
    pub(crate) fn is_indirect(&self, name: &[u8]) -> bool {
        self.rows.iter().any(|row| row.is_indirect && name_of(&self.text, row) == name)
    }
}

fn name_of<'t>(text: &'t [u8], row: &NameRow) -> &'t [u8] {
    &text[row.from as usize..][..row.size.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(bytes: &[u8], is_untouched: bool) -> Exits {
        Exits {
            sites: Vec::new(),
            code: vec![(0x1000, 0, bytes.len() as u64)],
            is_untouched,
            slots: vec![(0x2000, b"g".to_vec())],
            machine: Some(Machine::X86_64),
        }
    }

    fn leaving(bytes: &[u8]) -> Option<Leaving> {
        exits(bytes, false).at(bytes, 0x1005, false)
    }

    /// In code as it is, all of a function may be one jump; elsewhere its hooks come first.
    #[test]
    fn a_function_may_be_one_jump() {
        let jump = [0xe9, 0x10, 0, 0, 0];
        assert_eq!(exits(&jump, true).at(&jump, 0x1000, true), Some(Leaving::JumpsTo(0x1015)));
        assert_eq!(exits(&jump, false).at(&jump, 0x1000, true), None);
        let push = [0x55, 0xc3];
        assert_eq!(exits(&push, true).at(&push, 0x1000, true), None);
    }

    #[test]
    fn the_next_instruction_tells() {
        let call = [0xe8, 1, 2, 3, 4];
        let behind = |rest: &[u8]| leaving(&[&call, rest].concat());
        assert_eq!(behind(&[0xc3]), Some(Leaving::Returns));
        assert_eq!(behind(&[0xf3, 0xc3]), Some(Leaving::Returns));
        assert_eq!(behind(&[0xc2, 8, 0]), Some(Leaving::Returns));
        assert_eq!(behind(&[0x41, 0x5a, 0xc3]), Some(Leaving::Returns));
        assert_eq!(behind(&[0xeb, 0xfe]), Some(Leaving::JumpsTo(0x1005)));
        assert_eq!(behind(&[0xf2, 0xe9, 0, 1, 0, 0]), Some(Leaving::JumpsTo(0x110b)));
        assert_eq!(behind(&[0xe9, 0xf0, 0xff, 0xff, 0xff]), Some(Leaving::JumpsTo(0xffa)));
        assert_eq!(behind(&[0xff, 0x25, 0xf5, 0x0f, 0, 0]), Some(Leaving::JumpsToName(b"g".to_vec())));
        assert_eq!(behind(&[0xff, 0x25, 0xf6, 0x0f, 0, 0]), Some(Leaving::JumpsAnywhere));
        assert_eq!(behind(&[0xff, 0xe0]), Some(Leaving::JumpsAnywhere));
        assert_eq!(behind(&[0x3e, 0x41, 0xff, 0x63, 8]), Some(Leaving::JumpsAnywhere));
        for other in [&[][..], &[0x90], &[0xff, 0xd0], &[0xe9, 0, 0], &[0x0f, 0x84, 0, 0, 0, 0], &[0xff]] {
            assert_eq!(behind(other), None, "{other:x?}");
        }
        assert_eq!(leaving(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xc3]), None, "no call before it");
        assert_eq!(leaving(&[]), None);
    }
}
