//! Code that must stay as it is: others rely on its bytes or its place.

use object::{Object as _, ObjectSection as _};

use crate::bitmap::Bitmap;
use crate::bytes::Cursor;
use crate::image::{Elf, Image};
use crate::references::References;

/// The size of the kernel's `struct rseq_cs`.
const RSEQ_DESCRIPTOR: u64 = 32;
/// The signature before an abort handler.
const RSEQ_SIGNATURE: u64 = 4;

/// Sets the bits of probes' instructions and of restartable sequences. Also returns the addresses
/// that the kernel continues at after an abort.
pub(crate) fn mark(image: &Image<'_>, elf: &Elf<'_>, references: &References, code: &mut Bitmap) -> Vec<u64> {
    if let Some(notes) = elf.section_by_name(".note.stapsdt") {
        let base = elf.section_by_name(".stapsdt.base").map(|section| section.address());
        for probe in probes(notes.data().unwrap_or_default(), base) {
            code.set(probe);
        }
    }
    let mut aborts = Vec::new();
    for section in image.sections.iter().filter(|section| section.name == "__rseq_cs") {
        let descriptors = (section.start..section.end()).step_by(RSEQ_DESCRIPTOR as usize);
        for descriptor in descriptors {
            let word = |offset| references.word(image, descriptor + offset);
            let (Some(start), Some(length), Some(abort)) = (word(8), word(16), word(24)) else { continue };
            code.set_all(start, start.saturating_add(length));
            code.set_all(abort.saturating_sub(RSEQ_SIGNATURE), abort.saturating_add(1));
            aborts.push(abort);
        }
    }
    aborts
}

/// The addresses in SystemTap's notes. `base`: where the section is whose address notes were
/// written with; a later change of addresses moves both.
fn probes(notes: &[u8], base: Option<u64>) -> Vec<u64> {
    let mut cursor = Cursor::new(notes);
    let mut all = Vec::new();
    let mut note = || -> Option<Option<u64>> {
        let (name, size, kind) = (cursor.number(4)?, cursor.number(4)?, cursor.number(4)?);
        let name = cursor.take((name as usize).checked_next_multiple_of(4)?)?;
        let mut content = Cursor::new(cursor.take((size as usize).checked_next_multiple_of(4)?)?);
        if kind != 3 || !name.starts_with(b"stapsdt\0") {
            return Some(None);
        }
        let (Some(at), Some(linked)) = (content.number(8), content.number(8)) else { return Some(None) };
        Some(Some(base.map_or(at, |base| at.wrapping_add(base.wrapping_sub(linked)))))
    };
    while let Some(found) = note() {
        all.extend(found);
    }
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn probes_move_with_their_base() {
        let mut note: Vec<u8> = Vec::new();
        for word in [8_u32, 24, 3] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"stapsdt\0");
        for word in [0x1234_u64, 0x2000, 0] {
            note.extend(word.to_le_bytes());
        }
        let twice = [&note[..], &note[..]].concat();
        assert_eq!(super::probes(&twice, Some(0x2100)), [0x1334, 0x1334]);
        for end in 0..note.len() {
            assert!(super::probes(&note[..end], None).is_empty());
        }
    }
}
