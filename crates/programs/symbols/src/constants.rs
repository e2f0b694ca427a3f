//! Read-only data of a module's file: the segments that are mapped and not writable.

use object::LittleEndian;
use object::elf;
use object::read::elf::ProgramHeader;

use crate::elf::{Elf, bytes_at};

/// Longer texts are taken for none.
const TEXT_MAX: u64 = 4096;

/// The parts of a file that are mapped and not writable: first address, first byte, bytes.
#[derive(Default)]
pub(crate) struct Constants {
    parts: Vec<(u64, u64, u64)>,
}

impl Constants {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let parts = elf
            .elf_program_headers()
            .iter()
            .filter(|header| {
                header.p_type(LittleEndian) == elf::PT_LOAD
                    && header.p_flags(LittleEndian).0 & elf::PF_W.0 == 0
            })
            .map(|header| {
                let (offset, size) = header.file_range(LittleEndian);
                (header.p_vaddr(LittleEndian), offset, size)
            })
            .collect();
        Self { parts }
    }

    /// The C string at an address, without its end.
    pub(crate) fn text<'i>(&self, image: &'i [u8], address: u64) -> Option<&'i [u8]> {
        self.parts.iter().find_map(|&(start, offset, size)| {
            let inside = address.checked_sub(start).filter(|inside| *inside < size)?;
            let bytes = bytes_at(image, offset.checked_add(inside)?, TEXT_MAX.min(size - inside))?;
            bytes.get(..memchr::memchr(0, bytes)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_within_their_part() {
        let image = b"....one\0two\0three";
        let constants = Constants { parts: vec![(0x1000, 4, 13), (u64::MAX - 1, u64::MAX, 9)] };
        assert_eq!(constants.text(image, 0x1000), Some(&b"one"[..]));
        assert_eq!(constants.text(image, 0x1005), Some(&b"wo"[..]));
        assert_eq!(constants.text(image, 0x1007), Some(&b""[..]));
        for invalid in [0, 0xfff, 0x1008, 0x100d, u64::MAX] {
            assert_eq!(constants.text(image, invalid), None, "{invalid:#x}");
        }
    }
}
