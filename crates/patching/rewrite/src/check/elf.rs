//! The checker's own reader of ELF files.

/// Bytes of a file, at any place of which a number may be missing.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn slice(self, at: u64, length: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(at).ok()?;
        self.0.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }

    pub(super) fn u8(self, at: u64) -> Option<u8> {
        self.slice(at, 1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(self, at: u64) -> Option<u16> {
        self.slice(at, 2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(super) fn u32(self, at: u64) -> Option<u32> {
        self.slice(at, 4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(self, at: u64) -> Option<u64> {
        self.slice(at, 8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// A loaded part of the file.
#[derive(Clone, Copy)]
struct Segment {
    address: u64,
    file: u64,
    length: u64,
    is_code: bool,
}

/// A section header.
struct Section {
    name: Vec<u8>,
    kind: u32,
    address: u64,
    file: u64,
    length: u64,
    flags: u64,
}

/// A file as it is loaded.
pub(super) struct Loaded<'a> {
    file: Bytes<'a>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    /// The first and last address.
    pub(super) range: (u64, u64),
    pub(super) is_fixed: bool,
}

const PT_LOAD: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHT_RELR: u32 = 19;
const EXECUTABLE: u32 = 1;
const ALLOCATED_CODE: u64 = 2 | 4;

impl<'a> Loaded<'a> {
    pub(super) fn read(file: &'a [u8]) -> Option<Self> {
        let file = Bytes(file);
        let mut segments = Vec::new();
        let mut range = (u64::MAX, 0);
        let (headers, size, count) = (file.u64(0x20)?, file.u16(0x36)?, file.u16(0x38)?);
        for index in 0..u64::from(count) {
            let at = headers.checked_add(index * u64::from(size))?;
            if file.u32(at)? != PT_LOAD {
                continue;
            }
            let address = file.u64(at + 16)?;
            let segment = Segment {
                address,
                file: file.u64(at + 8)?,
                length: file.u64(at + 32)?,
                is_code: file.u32(at + 4)? & EXECUTABLE != 0,
            };
            address.checked_add(segment.length)?;
            range = (range.0.min(address), range.1.max(address.checked_add(file.u64(at + 40)?)?));
            segments.push(segment);
        }
        let (headers, size, count, names) =
            (file.u64(0x28)?, u64::from(file.u16(0x3a)?), file.u16(0x3c)?, file.u16(0x3e)?);
        let header = |index: u64| headers.checked_add(index * size);
        let names = file.u64(header(names.into())?.checked_add(24)?)?;
        let mut sections = Vec::new();
        for index in 0..u64::from(count) {
            let at = header(index)?;
            let name = names.checked_add(u64::from(file.u32(at)?))?;
            let name = (0..64).map_while(|offset| file.u8(name + offset).filter(|byte| *byte != 0)).collect();
            sections.push(Section {
                name,
                kind: file.u32(at + 4)?,
                flags: file.u64(at + 8)?,
                address: file.u64(at + 16)?,
                file: file.u64(at + 24)?,
                length: file.u64(at + 32)?,
            });
        }
        Some(Self { file, segments, sections, range, is_fixed: file.u16(16)? == 2 })
    }

    /// The loaded bytes from an address to the end of its segment.
    pub(super) fn from(&self, at: u64) -> &'a [u8] {
        let holds = |segment: &&Segment| at >= segment.address && at - segment.address < segment.length;
        let Some(segment) = self.segments.iter().find(holds) else { return &[] };
        let offset = at - segment.address;
        self.file.slice(segment.file.wrapping_add(offset), segment.length - offset).unwrap_or_default()
    }

    pub(super) fn bytes(&self, at: u64, length: usize) -> &'a [u8] {
        let bytes = self.from(at);
        &bytes[..length.min(bytes.len())]
    }

    pub(super) fn is_code(&self, at: u64) -> bool {
        self.code().any(|(start, end)| at >= start && at < end)
            && self.segments.iter().any(|segment| {
                segment.is_code && at >= segment.address && at - segment.address < segment.length
            })
    }

    /// Sections with instructions.
    pub(super) fn code(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let code = self
            .sections
            .iter()
            .filter(|section| section.flags & ALLOCATED_CODE == ALLOCATED_CODE && section.kind != SHT_NOBITS);
        code.map(|section| (section.address, section.address.saturating_add(section.length)))
    }

    /// The address and the bytes of a section.
    pub(super) fn section(&self, name: &str) -> Option<(u64, &'a [u8])> {
        let section = self.sections.iter().find(|section| section.name == name.as_bytes())?;
        Some((section.address, self.file.slice(section.file, section.length)?))
    }

    /// Start and size of each function that a symbol names.
    pub(super) fn symbols(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for section in self.sections.iter().filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM))
        {
            for at in (0..section.length / 24).map_while(|index| section.file.checked_add(24 * index)) {
                let Some((info, index)) = self.file.u8(at + 4).zip(self.file.u16(at + 6)) else { break };
                let Some((address, size)) = self.file.u64(at + 8).zip(self.file.u64(at + 16)) else { break };
                if info & 15 == 2 && index != 0 && size > 0 {
                    all.push((address, size));
                }
            }
        }
        all
    }

    /// Addresses of code that relocations write, or that are in data of a file that isn't moved.
    pub(super) fn addresses(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for section in &self.sections {
            let bytes = Bytes(self.file.slice(section.file, section.length).unwrap_or_default());
            let words = (0..bytes.0.len() as u64 / 8).map_while(|index| bytes.u64(8 * index));
            match section.kind {
                SHT_RELA => {
                    let relocations = (0..bytes.0.len() as u64 / 24).map(|index| 24 * index);
                    all.extend(relocations.filter_map(|at| {
                        // Relative, and by what a function returns.
                        matches!(bytes.u32(at + 8)?, 8 | 37).then_some(bytes.u64(at + 16)?)
                    }));
                }
                SHT_RELR => {
                    let mut next = 0_u64;
                    for word in words {
                        if word & 1 == 0 {
                            all.extend(Bytes(self.from(word)).u64(0));
                            next = word.wrapping_add(8);
                            continue;
                        }
                        let places = (0..63).filter(|bit| word >> (bit + 1) & 1 != 0);
                        all.extend(
                            places.filter_map(|bit| Bytes(self.from(next.wrapping_add(8 * bit))).u64(0)),
                        );
                        next = next.wrapping_add(8 * 63);
                    }
                }
                SHT_NOBITS => {}
                _ if self.is_fixed && section.flags & 2 != 0 && section.flags & 4 == 0 => all.extend(words),
                _ => {}
            }
        }
        all.retain(|&address| self.is_code(address));
        all
    }
}
