//! Stubs of procedure linkage tables.

/// The sections of stubs.
pub(crate) const STUB_SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// Bytes of a stub in one of these sections, with this data.
pub(crate) fn stub_size(section: &str, data: &[u8]) -> usize {
    // `.plt.got` has entries of 16 bytes where they begin with `endbr64`.
    if section == ".plt.got" && !data.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 8 } else { 16 }
}

/// The address of the slot that a stub at `start` jumps through: `jmp *rel32(%rip)`, perhaps after
/// `endbr64` and with a `bnd` prefix.
pub(crate) fn jump_slot(entry: &[u8], start: u64) -> Option<u64> {
    let body = entry.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(entry);
    let body = body.strip_prefix(&[0xf2]).unwrap_or(body);
    let displacement = body.strip_prefix(&[0xff, 0x25])?.first_chunk::<4>()?;
    let next = start.wrapping_add((entry.len() - body.len() + 6) as u64);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement))))
}
