//! Names of the stubs through which functions of other modules are called.

use std::collections::HashMap;
use std::ops::Range;

use object::read::elf::ElfSymbol64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget};

use crate::arch::{STUB_SECTIONS, jump_slot, stub_sizes};
use crate::elf::{Elf, machine_of};

/// Limit on stubs of one file; the sections of real files contain far fewer.
const STUB_COUNT_MAX: usize = 1 << 20;

/// A stub: `start`, `size` in bytes, and the name of its target.
pub(crate) struct Stub<'d> {
    pub start: u64,
    pub size: u64,
    pub target: &'d [u8],
}

/// Where the sections of stubs are: each has one unwind entry for all of its stubs.
pub(crate) fn section_ranges(elf: &Elf<'_>) -> Vec<Range<u64>> {
    STUB_SECTIONS
        .iter()
        .filter_map(|name| elf.section_by_name(name))
        .map(|section| section.address()..section.address().saturating_add(section.size()))
        .collect()
}

/// The stubs whose jump leads through a slot with a known
/// target.
pub(crate) fn stubs<'d>(elf: &Elf<'d>) -> Vec<Stub<'d>> {
    let mut stubs = Vec::new();
    let Some(machine) = machine_of(elf) else { return stubs };
    let sections: Vec<_> = STUB_SECTIONS.iter().filter_map(|name| elf.section_by_name(name)).collect();
    if sections.is_empty() {
        return stubs;
    }
    let targets = slot_targets(elf);
    for section in sections {
        let (Ok(name), Ok(data)) = (section.name(), section.data()) else { continue };
        let (head, entry_size) = stub_sizes(machine, name, data);
        let entries = data.get(head..).unwrap_or_default().chunks_exact(entry_size);
        for (index, entry) in entries.enumerate().take(STUB_COUNT_MAX) {
            let start = section.address().wrapping_add((head + index * entry_size) as u64);
            let Some(slot) = jump_slot(machine, entry, start) else { continue };
            if let Some(&target) = targets.get(&slot) {
                stubs.push(Stub { start, size: entry_size as u64, target });
            }
        }
    }
    stubs
}

/// Names of the symbols whose addresses the dynamic linker stores, by the slot's address.
pub(crate) fn slot_targets<'d>(elf: &Elf<'d>) -> HashMap<u64, &'d [u8]> {
    let mut targets = HashMap::new();
    let Some(relocations) = elf.dynamic_relocations() else { return targets };
    for (slot, relocation) in relocations {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol: Result<ElfSymbol64<'_, '_, LittleEndian>, _> = object::ObjectSymbolTable::symbol_by_index(
            &match elf.dynamic_symbol_table() {
                Some(table) => table,
                None => return targets,
            },
            index,
        );
        let Some(name) = symbol.ok().and_then(|symbol| symbol.name_bytes().ok()) else { continue };
        if !name.is_empty() && name.len() <= 4096 {
            targets.insert(slot, name);
        }
    }
    targets
}
