//! Numbers in bytes that may be damaged.

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Reads numbers one after the other.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Little-endian, of at most 8 bytes.
    pub(crate) fn number(&mut self, length: usize) -> Option<u64> {
        let end = self.at.checked_add(length)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    /// LEB128 without sign. Bits above the 64th are dropped.
    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A pointer in one of the encodings of `.gcc_except_table`, which begins at `base`.
    pub(crate) fn pointer(&mut self, encoding: u8, base: u64) -> Option<u64> {
        let here = base.wrapping_add(self.at as u64);
        let value = match encoding & 0x0f {
            0x01 => self.uleb()?,
            0x02 => self.number(2)?,
            0x03 => self.number(4)?,
            0x0a => i64::from(self.number(2)? as u16 as i16) as u64,
            0x0b => i64::from(self.number(4)? as u32 as i32) as u64,
            0x00 | 0x04 | 0x0c => self.number(8)?,
            _ => return None,
        };
        Some(if encoding & 0x70 == 0x10 && value != 0 { here.wrapping_add(value) } else { value })
    }
}

/// The little-endian words of 8 bytes in `bytes`, each with its offset.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let words = bytes.as_chunks::<8>().0.iter();
    words.enumerate().map(|(index, word)| (8 * index as u64, u64::from_le_bytes(*word)))
}

/// The little-endian signed numbers of 4 bytes in `bytes`.
pub(crate) fn offsets(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    #[test]
    fn numbers_end_where_the_bytes_do() {
        let mut cursor = Cursor::new(&[0xe5, 0x8e, 0x26, 0xfc, 0xff, 0xff, 0xff, 0x80]);
        assert_eq!(cursor.uleb(), Some(624_485));
        assert_eq!(cursor.pointer(0x1b, 0x1000), Some(0x1003 - 4));
        assert_eq!(cursor.uleb(), None);
        assert_eq!(Cursor::new(&[1, 2, 3]).number(4), None);
    }
}
