//! Addresses of code in data: where something may jump to that no instruction names.

use object::elf::{R_X86_64_64, R_X86_64_IRELATIVE, R_X86_64_RELATIVE, SHT_RELR};
use object::read::elf::SectionHeader as _;
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
};

use crate::bytes::words;
use crate::image::{Elf, Image, word_at};

/// References from relocations and data.
#[derive(Default)]
pub(crate) struct References {
    /// Addresses of code, sorted.
    pub(crate) code: Vec<u64>,
    /// Values that relocations write: (place, address), sorted.
    written: Vec<(u64, u64)>,
}

impl References {
    pub(crate) fn find(image: &Image<'_>, elf: &Elf<'_>) -> Self {
        let mut written = Vec::new();
        for (place, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let addend = relocation.addend() as u64;
            if r_type == R_X86_64_RELATIVE || r_type == R_X86_64_IRELATIVE {
                written.push((place, addend));
            } else if r_type == R_X86_64_64
                && let RelocationTarget::Symbol(index) = relocation.target()
                && let Some(symbol) = elf
                    .dynamic_symbol_table()
                    .and_then(|table| object::ObjectSymbolTable::symbol_by_index(&table, index).ok())
            {
                written.push((place, symbol.address().wrapping_add(addend)));
            }
        }
        for section in elf.sections() {
            if section.elf_section_header().sh_type(Endianness::Little) == SHT_RELR {
                relative(image, section.data().unwrap_or_default(), &mut written);
            }
        }
        written.sort_unstable();
        let mut code: Vec<u64> =
            written.iter().map(|(_, address)| *address).filter(|&address| image.is_code(address)).collect();
        for section in image.sections.iter().filter(|section| !section.is_code && !image.is_relocated()) {
            code.extend(words(section.bytes).map(|(_, word)| word).filter(|&word| image.is_code(word)));
        }
        code.sort_unstable();
        code.dedup();
        Self { code, written }
    }

    /// The word at `place` of the loaded file.
    pub(crate) fn word(&self, image: &Image<'_>, place: u64) -> Option<u64> {
        match self.written.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => self.written.get(index).map(|(_, address)| *address),
            Err(_) => word_at(image, place),
        }
    }

    /// Whether `start..end` contains one of the addresses.
    pub(crate) fn any(&self, start: u64, end: u64) -> bool {
        self.within(start, end) > 0
    }

    /// How many of the addresses are in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> usize {
        let first = self.code.partition_point(|address| *address < start);
        self.code.partition_point(|address| *address < end).saturating_sub(first)
    }
}

/// Relocations in `.relr.dyn`: words that hold an address already, to which the module's is added.
fn relative(image: &Image<'_>, bytes: &[u8], written: &mut Vec<(u64, u64)>) {
    let mut next = 0_u64;
    let mut add = |place: u64| written.extend(word_at(image, place).map(|address| (place, address)));
    for (_, entry) in words(bytes) {
        if entry & 1 == 0 {
            add(entry);
            next = entry.wrapping_add(8);
        } else {
            (1..64).filter(|bit| entry >> bit & 1 != 0).for_each(|bit| add(next.wrapping_add(8 * (bit - 1))));
            next = next.wrapping_add(8 * 63);
        }
    }
}
