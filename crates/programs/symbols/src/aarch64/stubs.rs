//! Stubs of procedure linkage tables: `adrp x16; ldr x17, [x16, #low]; add x16; br x17`, perhaps
//! after `bti c` and before NOPs.

/// `bti c`.
const LANDING: [u8; 4] = [0x5f, 0x24, 0x03, 0xd5];
/// `br x17`, as the last instruction of a stub.
const BRANCH: [u8; 4] = [0x20, 0x02, 0x1f, 0xd6];
/// Bytes of the code before the first stub, by which symbols are bound late.
const HEAD: usize = 32;

/// Bytes before the first stub of a section, and of each stub.
pub(crate) fn stub_sizes(section: &str, data: &[u8]) -> (usize, usize) {
    let head = if section == ".plt" { HEAD } else { 0 };
    // Programs have longer stubs where code has landing pads and is not position-independent.
    let first = data.get(head..).unwrap_or_default();
    let is_short = first.get(12..16).is_some_and(|word| word == BRANCH);
    (head, if is_short { 16 } else { 24 })
}

/// The address of the slot that a stub at `start` jumps through.
pub(crate) fn jump_slot(entry: &[u8], start: u64) -> Option<u64> {
    let body = entry.strip_prefix(&LANDING).unwrap_or(entry);
    let at = start.wrapping_add((entry.len() - body.len()) as u64);
    let word = |index: usize| {
        let bytes = body.get(4 * index..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let (page, load) = (word(0)?, word(1)?);
    // adrp x16, and ldr x17, [x16, #low]
    if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let pages = page >> 5 & 0x7_ffff;
    let pages = pages << 2 | page >> 29 & 3;
    let pages = i64::from((pages << 11).cast_signed() >> 11);
    let slot = (at & !0xfff).wrapping_add_signed(pages << 12);
    Some(slot.wrapping_add(u64::from(load >> 10 & 0xfff) * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_with_and_without_landing_pads() {
        // adrp x16, .+0x1f000; ldr x17, [x16, #0xf90]; add x16, x16, #0xf90; br x17
        let words = [0xf000_00f0_u32, 0xf947_ca11, 0x913e_4210, 0xd61f_0220];
        let plain: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(jump_slot(&plain, 0x8a0), Some(0x1_ff90));
        let landing = [&LANDING[..], &plain].concat();
        assert_eq!(jump_slot(&landing, 0x8a0), Some(0x1_ff90));
        assert_eq!(jump_slot(&plain[4..], 0x8a0), None);
        let section = [&[0; HEAD][..], &plain].concat();
        assert_eq!(stub_sizes(".plt", &section), (32, 16));
        assert_eq!(stub_sizes(".plt", &[&[0; HEAD][..], &landing].concat()), (32, 24));
    }
}
