//! CRC-32 as in zlib. It processes eight bytes at a time, because the traced program waits for it.

const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum that is being computed.
#[derive(Clone, Copy)]
pub(crate) struct Crc(u32);

impl Crc {
    pub(crate) fn new() -> Crc {
        Crc(!0)
    }

    /// The CRC-32 of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.add(bytes);
        crc.value()
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        let mut value = self.0;
        for eight in eights {
            let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*eight) ^ u64::from(value)).to_le_bytes();
            value = TABLES[7][usize::from(a)]
                ^ TABLES[6][usize::from(b)]
                ^ TABLES[5][usize::from(c)]
                ^ TABLES[4][usize::from(d)]
                ^ TABLES[3][usize::from(e)]
                ^ TABLES[2][usize::from(f)]
                ^ TABLES[1][usize::from(g)]
                ^ TABLES[0][usize::from(h)];
        }
        for byte in rest {
            value = value >> 8 ^ TABLES[0][usize::from(value as u8 ^ byte)];
        }
        self.0 = value;
    }

    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_zlib_has_it() {
        for (bytes, wanted) in [
            (&b""[..], 0),
            (b"a", 0xe8b7_be43),
            (b"123456789", 0xcbf4_3926),
            (b"The quick brown fox jumps over the lazy dog", 0x414f_a339),
        ] {
            for cut in 0..=bytes.len() {
                let mut crc = Crc::new();
                crc.add(&bytes[..cut]);
                crc.add(&bytes[cut..]);
                assert_eq!(crc.value(), wanted, "{bytes:?} at {cut}");
            }
        }
    }
}
