//! The DWARF sections of one file.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{Dwarf, DwarfPackage, EndianSlice, LittleEndian, SectionId};

use crate::elf::{self, InflateBudget};
use crate::file_bytes::FileBytes;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Kinds of files with DWARF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DebugFileKind {
    /// A module, its debug file, or what debug files share.
    Linked,
    /// A linked file of which the places of variables are read, too.
    Located,
    /// A `.dwo` file.
    Split,
    /// A `.dwp` file.
    Package,
}

/// All sections that declarations and lines are found through.
const SECTIONS: [SectionId; 11] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
];

/// Further sections that a package's index points into: gimli slices a unit's share out of each.
const PACKAGE_SECTIONS: [SectionId; 5] = [
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

/// Further sections with the places of variables, and with types that units share.
const LOCATION_SECTIONS: [SectionId; 3] =
    [SectionId::DebugLoc, SectionId::DebugLocLists, SectionId::DebugTypes];

enum Stored {
    InFile(Range<usize>),
    Unpacked(Vec<u8>),
}

/// The sections of one file, decompressed where need be.
pub(super) struct DebugFile {
    pub path: PathBuf,
    bytes: Arc<FileBytes>,
    kind: DebugFileKind,
    sections: Vec<(SectionId, Stored)>,
    /// Sections that can't be read, as sentences.
    pub problems: Vec<String>,
}

impl DebugFile {
    pub(super) fn load(path: &Path, bytes: Arc<FileBytes>, kind: DebugFileKind) -> Result<Self, String> {
        let mut sections = Vec::new();
        let mut problems = Vec::new();
        {
            let elf = elf::parse(&bytes)?;
            let mut budget = InflateBudget::for_file(bytes.len());
            let more: &[SectionId] = match kind {
                DebugFileKind::Linked => &[],
                DebugFileKind::Located | DebugFileKind::Split => &LOCATION_SECTIONS,
                DebugFileKind::Package => &PACKAGE_SECTIONS,
            };
            for id in SECTIONS.iter().chain(more).copied() {
                let name = match kind {
                    DebugFileKind::Linked | DebugFileKind::Located => Some(id.name()),
                    DebugFileKind::Split | DebugFileKind::Package => id.dwo_name(),
                };
                let Some(name) = name else { continue };
                match elf::section(&elf, name, &mut budget) {
                    Ok(Cow::Owned(data)) => sections.push((id, Stored::Unpacked(data))),
                    Ok(Cow::Borrowed(data)) => {
                        let range = elf::range_within(&bytes, data).unwrap_or_default();
                        sections.push((id, Stored::InFile(range)));
                    }
                    Err(problem) => problems.push(problem),
                }
            }
        }
        Ok(Self { path: path.to_path_buf(), bytes, kind, sections, problems })
    }

    fn section(&self, id: SectionId) -> Slice<'_> {
        let stored = self.sections.iter().find(|(stored, _)| *stored == id);
        let data = match stored {
            Some((_, Stored::InFile(range))) => &self.bytes[range.clone()],
            Some((_, Stored::Unpacked(data))) => data,
            None => &[],
        };
        EndianSlice::new(data, LittleEndian)
    }

    /// Bytes that the sections take.
    pub(super) fn size(&self) -> u64 {
        let sizes = self.sections.iter().map(|(_, stored)| match stored {
            Stored::InFile(range) => range.len(),
            Stored::Unpacked(data) => data.len(),
        });
        sizes.sum::<usize>() as u64
    }

    pub(super) fn has_units(&self) -> bool {
        !self.section(SectionId::DebugInfo).is_empty()
    }

    /// The sections as gimli takes them.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let loaded = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(self.section(id)));
        let mut dwarf = match loaded {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        };
        if self.kind == DebugFileKind::Split {
            dwarf.file_type = gimli::DwarfFileType::Dwo;
        }
        dwarf
    }

    /// The sections of a `.dwp` file.
    pub(super) fn package(&self) -> gimli::Result<DwarfPackage<Slice<'_>>> {
        DwarfPackage::load(|id| Ok::<_, gimli::Error>(self.section(id)), EndianSlice::new(&[], LittleEndian))
    }
}
