//! Names of the stubs through which functions of other modules are called (x86-64).

use std::collections::HashMap;
use std::ops::Range;

use object::read::elf::ElfSymbol64;
use object::{Architecture, LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget};

use crate::elf::Elf;

/// Limit on stubs of one file; the sections of real files contain far fewer.
const STUB_COUNT_MAX: usize = 1 << 20;

/// Sections of stubs, and the size of a stub in bytes.
const SECTIONS: [(&str, usize); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];

/// A stub: `start`, `size` in bytes, and the name of its target.
pub(crate) struct Stub<'d> {
    pub start: u64,
    pub size: u64,
    pub target: &'d [u8],
}

/// Where the sections of stubs are: each has one unwind entry for all of its stubs.
pub(crate) fn section_ranges(elf: &Elf<'_>) -> Vec<Range<u64>> {
    SECTIONS
        .iter()
        .filter_map(|(name, _)| elf.section_by_name(name))
        .map(|section| section.address()..section.address().saturating_add(section.size()))
        .collect()
}

/// The stubs of `.plt`, `.plt.sec` and `.plt.got` whose jump leads through a slot with a known
/// target.
pub(crate) fn stubs<'d>(elf: &Elf<'d>) -> Vec<Stub<'d>> {
    let mut stubs = Vec::new();
    if elf.architecture() != Architecture::X86_64 {
        return stubs;
    }
    let sections: Vec<_> = SECTIONS
        .into_iter()
        .filter_map(|(name, entry_size)| Some((elf.section_by_name(name)?, entry_size)))
        .collect();
    if sections.is_empty() {
        return stubs;
    }
    let targets = slot_targets(elf);
    for (section, mut entry_size) in sections {
        let Ok(data) = section.data() else { continue };
        // `.plt.got` has entries of 16 bytes where they begin with `endbr64`.
        if data.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            entry_size = 16;
        }
        for (index, entry) in data.chunks_exact(entry_size).enumerate().take(STUB_COUNT_MAX) {
            let start = section.address().wrapping_add((index * entry_size) as u64);
            let Some(slot) = jump_slot(entry, start) else { continue };
            if let Some(&target) = targets.get(&slot) {
                stubs.push(Stub { start, size: entry_size as u64, target });
            }
        }
    }
    stubs
}

/// The address of the slot that a stub at `start` jumps through: `jmp *rel32(%rip)`, perhaps after
/// `endbr64` and with a `bnd` prefix.
fn jump_slot(entry: &[u8], start: u64) -> Option<u64> {
    let body = entry.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(entry);
    let body = body.strip_prefix(&[0xf2]).unwrap_or(body);
    let displacement = body.strip_prefix(&[0xff, 0x25])?.first_chunk::<4>()?;
    let next = start.wrapping_add((entry.len() - body.len() + 6) as u64);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement))))
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
