//! Compresses event words to the smallest encoding that a file may have.

use everycall_format::ect::encoding;
use everycall_format::event::WORD_SIZE;

/// Higher levels take far more time for little gain: the compact form leaves few patterns.
const LEVEL: i32 = 1;
/// Bytes of the compact form below which zstd isn't tried: it takes at least 5 us for the smallest
/// piece, and thousands of ended threads have a few events each.
const LEAST: usize = 256;
/// The share of the compact form that zstd must save to be worth the readers' time.
const SHARE: usize = 8;

/// Compresses event words, run after run; reuses its buffers.
#[derive(Default)]
pub struct Packer {
    words: Vec<u64>,
    compact: Vec<u8>,
    zstd: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    /// The result of [`Packer::prepare`].
    prepared: Option<u32>,
}

impl Packer {
    /// The encoding ([`encoding`]) and encoded bytes of the words in `bytes`, for one events chunk.
    /// Never longer than `bytes`.
    pub fn packed<'a>(&'a mut self, bytes: &'a [u8]) -> (u32, &'a [u8]) {
        let encoding = match self.prepared.take() {
            Some(encoding) => encoding,
            None => self.pack(bytes),
        };
        match encoding {
            encoding::COMPACT => (encoding, &self.compact),
            encoding::COMPACT_ZSTD => (encoding, &self.zstd),
            _ => (encoding, bytes),
        }
    }

    /// Does the work of [`Packer::packed`], which must follow with the same bytes.
    pub fn prepare(&mut self, bytes: &[u8]) {
        self.prepared = Some(self.pack(bytes));
    }

    /// Drops what [`Packer::prepare`] made.
    pub fn forget(&mut self) {
        self.prepared = None;
    }

    fn pack(&mut self, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<WORD_SIZE>();
        debug_assert!(rest.is_empty(), "segments are whole words");
        self.words.clear();
        self.words.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        self.compact.clear();
        everycall_compact::encode(&self.words, &mut self.compact);
        if self.compact.len() >= bytes.len() {
            return encoding::RAW;
        }
        let worth_it = self.compact.len() - self.compact.len() / SHARE;
        if self.compact.len() >= LEAST && self.compress().is_some() && self.zstd.len() < worth_it {
            return encoding::COMPACT_ZSTD;
        }
        encoding::COMPACT
    }

    /// Makes a zstd frame of the compact form; `None` if zstd has no memory or saves too little.
    fn compress(&mut self) -> Option<()> {
        if self.compressor.is_none() {
            self.compressor = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        self.zstd.clear();
        // The buffer has only the allowed size, so zstd fails if it saves too little, as intended.
        self.zstd.reserve(self.compact.len());
        self.compressor.as_mut()?.compress_to_buffer(&self.compact, &mut self.zstd).ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::{EXIT, call_word};

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn unpacked(encoding: u32, bytes: &[u8], count: usize) -> Vec<u64> {
        let mut words = Vec::new();
        match encoding {
            encoding::RAW => words.extend(bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))),
            encoding::COMPACT => everycall_compact::decode(bytes, count, &mut words).unwrap(),
            encoding::COMPACT_ZSTD => {
                let bytes = zstd::bulk::decompress(bytes, 9 * count).unwrap();
                everycall_compact::decode(&bytes, count, &mut words).unwrap();
            }
            other => panic!("{other}"),
        }
        words
    }

    #[test]
    fn each_form_where_it_is_the_smallest() {
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let low = |index: u64| (0x1000 + (index / 2 % 7) as u32 * 32) | ((index % 2) as u32 * EXIT);
        let even: Vec<u64> = (0..10_000).map(|index| call_word(26 * index, low(index))).collect();
        let mut ticks = 0;
        let uneven = (0..10_000).map(|index| {
            ticks += random() % 190;
            call_word(ticks, low(index))
        });
        let uneven: Vec<u64> = uneven.collect();
        let chance: Vec<u64> = (0..10_000).map(|_| random()).collect();
        let mut packer = Packer::default();
        for (words, wanted) in [
            (&even, encoding::COMPACT_ZSTD),
            (&uneven, encoding::COMPACT),
            (&chance, encoding::RAW),
            (&even[..9_999].to_vec(), encoding::COMPACT_ZSTD),
            (&vec![], encoding::RAW),
        ] {
            let bytes = bytes_of(words);
            if words.len() % 3 == 0 {
                packer.prepare(&bytes);
            }
            let (encoding, packed) = packer.packed(&bytes);
            assert_eq!(encoding, wanted);
            assert!(packed.len() <= bytes.len());
            assert!(unpacked(encoding, packed, words.len()) == *words);
        }
    }
}
