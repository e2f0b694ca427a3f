//! Function ranges from `.eh_frame`, which survives stripping.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};

use crate::elf::Elf;

/// Linkers merge equal common entries, so honest files have few.
const COMMON_ENTRIES_MAX: usize = 4096;

/// The ranges that frame description entries cover, in the order of the section; as many as can be
/// read.
pub(crate) fn function_ranges(elf: &Elf<'_>) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let Some(section) = elf.section_by_name(".eh_frame") else { return ranges };
    let Ok(data) = section.data() else { return ranges };
    let address_of = |name| elf.section_by_name(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address_of(".text"))
        .set_got(address_of(".got"));
    let mut frames = EhFrame::new(data, LittleEndian);
    frames.set_address_size(8);
    let mut common: HashMap<usize, Option<gimli::CommonInformationEntry<EndianSlice<'_, LittleEndian>>>> =
        HashMap::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| {
            let known = common.len();
            common
                .entry(offset.0)
                .or_insert_with(|| {
                    (known < COMMON_ENTRIES_MAX)
                        .then(|| section.cie_from_offset(bases, offset).ok())
                        .flatten()
                })
                .clone()
                .ok_or(gimli::Error::NotCiePointer(0))
        });
        let Ok(entry) = parsed else { continue };
        let start = entry.initial_address();
        // Zero marks what the linker discarded.
        if start != 0 && entry.len() != 0 {
            ranges.push(start..start.saturating_add(entry.len()));
        }
    }
    ranges
}
