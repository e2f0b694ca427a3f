//! The loaded sections of an ELF file.

use object::elf::{
    DF_1_PIE, DT_FLAGS_1, EM_X86_64, ET_DYN, ET_EXEC, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE,
    SHT_NOBITS,
};
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSegment as _};

use crate::bytes::{PAGE, words};
use crate::error::RewriteError;

/// As `object` reads it.
pub(crate) type Elf<'a> = ElfFile64<'a, Endianness>;

/// Everything that belongs to a plan is reached by displacements of 32 bits.
const MAX_SPAN: u64 = 1 << 30;

/// The kind of a file: decides where memory for trampolines can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An executable that can be loaded anywhere. The heap may follow it.
    Pie,
    /// A shared library.
    Library,
    /// An executable at the addresses that it was linked for.
    Fixed,
}

impl FileKind {
    /// The difference between addresses in memory and in the file, whose first address is `start`
    /// in the file, and whose first page is at `mapped` in memory.
    pub(crate) fn base(self, mapped: u64, start: u64) -> u64 {
        if self == Self::Fixed { 0 } else { mapped.wrapping_sub(start & !(PAGE - 1)) }
    }
}

/// A section that is loaded and has bytes in the file.
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_code: bool,
    pub(crate) is_writable: bool,
}

impl<'a> Section<'a> {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// From `at` on.
    pub(crate) fn from(&self, at: u64) -> &'a [u8] {
        let offset = at.checked_sub(self.start).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.bytes.get(offset..)).unwrap_or_default()
    }
}

/// The file, as the kernel loads it at address 0 (a [`FileKind::Fixed`] one: where it has to be).
pub(crate) struct Image<'a> {
    /// Sorted, disjoint.
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) kind: FileKind,
    pub(crate) build_id: Vec<u8>,
    /// The first and last loaded address.
    pub(crate) range: (u64, u64),
    /// From the first code to the last.
    pub(crate) code: (u64, u64),
}

impl<'a> Image<'a> {
    pub(crate) fn parse(elf: &Elf<'a>, file: &'a [u8]) -> Result<Self, RewriteError> {
        let header = elf.elf_header();
        let endian = header.endian().map_err(|_| RewriteError::NotElf)?;
        if header.e_machine(endian) != EM_X86_64 || endian != Endianness::Little {
            return Err(RewriteError::OtherMachine);
        }
        let is_fixed = match header.e_type(endian) {
            ET_EXEC => true,
            ET_DYN => false,
            _ => return Err(RewriteError::NotLinked),
        };
        let mut sections = Vec::new();
        for section in elf.sections() {
            let header = section.elf_section_header();
            let flags = header.sh_flags(endian);
            let is_loaded = flags.0 & SHF_ALLOC.0 != 0 && flags.0 & SHF_TLS.0 == 0;
            if !is_loaded || header.sh_type(endian) == SHT_NOBITS {
                continue;
            }
            let Ok(bytes) = header.data(endian, file) else { continue };
            let start = section.address();
            let Some(end) = start.checked_add(bytes.len() as u64) else { continue };
            // Only bytes that the loader maps count.
            let is_mapped = elf.segments().any(|segment| {
                let (first, (offset, length)) = (segment.address(), segment.file_range());
                let at = header.sh_offset(endian);
                start >= first && end - first <= length && at.wrapping_sub(offset) == start - first
            });
            if bytes.is_empty() || !is_mapped {
                continue;
            }
            sections.push(Section {
                name: section.name().unwrap_or_default(),
                start,
                bytes,
                is_code: flags.0 & SHF_EXECINSTR.0 != 0,
                is_writable: flags.0 & SHF_WRITE.0 != 0,
            });
        }
        sections.sort_by_key(|section| section.start);
        let mut end = 0;
        sections.retain(|section| {
            let is_behind = section.start >= end;
            end = end.max(section.end());
            is_behind
        });
        let code = sections.iter().filter(|section| section.is_code);
        let code = code
            .fold((u64::MAX, 0), |(low, high), section| (low.min(section.start), high.max(section.end())));
        if code.0 > code.1 {
            return Err(RewriteError::NoCode);
        }
        let mut range = code;
        for segment in elf.segments() {
            let end = segment.address().saturating_add(segment.size());
            range = (range.0.min(segment.address()), range.1.max(end));
        }
        if range.1.saturating_sub(range.0) > MAX_SPAN {
            return Err(RewriteError::TooLarge);
        }
        let is_pie = sections.iter().filter(|section| section.name == ".dynamic").any(|section| {
            let (tags, _) = section.bytes.as_chunks::<16>();
            let mut tags = tags.iter().map(|tag| {
                let mut pair = words(tag).map(|(_, word)| word);
                (pair.next().unwrap_or(0), pair.next().unwrap_or(0))
            });
            tags.any(|(tag, value)| tag == DT_FLAGS_1.0 as u64 && value & DF_1_PIE.0 != 0)
        });
        let kind = match (is_fixed, is_pie) {
            (true, _) => FileKind::Fixed,
            (false, true) => FileKind::Pie,
            (false, false) => FileKind::Library,
        };
        let build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
        Ok(Self { sections, kind, build_id, range, code })
    }

    /// Whether it can be loaded anywhere, so that addresses in data need relocations.
    pub(crate) fn is_relocated(&self) -> bool {
        self.kind != FileKind::Fixed
    }

    pub(crate) fn section_of(&self, at: u64) -> Option<&Section<'a>> {
        let index = self.sections.partition_point(|section| section.start <= at).checked_sub(1)?;
        self.sections.get(index).filter(|section| at < section.end())
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub(crate) fn is_code(&self, at: u64) -> bool {
        self.section_of(at).is_some_and(|section| section.is_code)
    }

    /// The bytes of `start..end`, as far as they are in one section.
    pub(crate) fn bytes(&self, start: u64, end: u64) -> &'a [u8] {
        let bytes = self.section_of(start).map_or(&[][..], |section| section.from(start));
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        &bytes[..length.min(bytes.len())]
    }
}

/// A word of 8 bytes of a loaded section.
pub(crate) fn word_at(image: &Image<'_>, at: u64) -> Option<u64> {
    words(image.bytes(at, at.checked_add(8)?)).next().map(|(_, word)| word)
}
