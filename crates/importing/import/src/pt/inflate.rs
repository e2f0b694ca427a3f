//! Records that perf has compressed (`perf record -z`): one zstd stream over all of them.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Bytes that are decompressed at once.
const CHUNK: usize = 64 << 10;
/// The most bytes of all compressed records.
const ALL_MAX: u64 = 2 << 30;

/// What is wrong with compressed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// They can't be decompressed.
    Damaged,
    /// There are too many.
    TooLong,
}

/// Decompressed records.
#[derive(Default)]
pub(crate) struct Inflate {
    decoder: Option<Decoder<'static>>,
    /// The beginning of a record that goes on in the next compressed one.
    rest: Vec<u8>,
    all: u64,
}

impl Inflate {
    /// Decompresses a part, and hands out each record that is whole.
    ///
    /// # Errors
    ///
    /// Nothing that follows can be decompressed either.
    pub fn add(&mut self, part: &[u8], mut record: impl FnMut(&[u8])) -> Result<(), Refused> {
        if self.decoder.is_none() {
            self.decoder = Some(Decoder::new().map_err(|_| Refused::Damaged)?);
        }
        let Some(decoder) = &mut self.decoder else { return Err(Refused::Damaged) };
        let mut input = InBuffer::around(part);
        let mut chunk = vec![0; CHUNK];
        loop {
            let mut output = OutBuffer::around(&mut chunk[..]);
            decoder.run(&mut input, &mut output).map_err(|_| Refused::Damaged)?;
            let written = output.pos();
            self.all += written as u64;
            if self.all > ALL_MAX {
                return Err(Refused::TooLong);
            }
            self.rest.extend(chunk.get(..written).unwrap_or_default());
            let mut at = 0;
            while let Some(rest) = self.rest.get(at..)
                && let Some(size) = rest.get(6..8).and_then(|size| size.first_chunk())
            {
                let size = usize::from(u16::from_le_bytes(*size));
                if size < 8 {
                    return Err(Refused::Damaged);
                }
                let Some(whole) = rest.get(..size) else { break };
                record(whole);
                at += size;
            }
            self.rest.drain(..at);
            if input.pos() >= part.len() && written < CHUNK {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_on_from_one_part_to_the_next() {
        let mut records = Vec::new();
        for number in 0..3000_u32 {
            records.extend([9, 16 << 16].map(u32::to_le_bytes).concat());
            records.extend([number, 0].map(u32::to_le_bytes).concat());
        }
        let packed = zstd::bulk::compress(&records, 3).unwrap();
        let mut inflate = Inflate::default();
        let mut found = Vec::new();
        for part in packed.chunks(packed.len() / 7 + 1) {
            let mut take = |record: &[u8]| {
                assert_eq!(record.len(), 16);
                found.push(u32::from_le_bytes(record[8..12].try_into().unwrap()));
            };
            inflate.add(part, &mut take).unwrap();
        }
        assert_eq!(found, (0..3000).collect::<Vec<u32>>());
        assert_eq!(Inflate::default().add(b"nothing of the kind", |_| {}), Err(Refused::Damaged));
        // A record without a size, as 64 KiB of zeros.
        let zeros = zstd::bulk::compress(&[0; 1 << 16], 3).unwrap();
        assert_eq!(Inflate::default().add(&zeros, |_| {}), Err(Refused::Damaged));
    }
}
