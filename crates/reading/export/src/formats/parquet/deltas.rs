//! Columns of numbers that are near to the ones before: Parquet's `DELTA_BINARY_PACKED`.
//!
//! The crate's own encoder takes three times as long.

use parquet::file::statistics::Statistics;

use super::coded::put_varint;

/// Differences of a block have one least difference, to which the others are added.
const BLOCK: usize = 128;
/// Each of these parts of a block has its own number of bits.
const PART: usize = 32;

/// A number of such columns.
pub(super) trait Number: Copy + Ord {
    /// As 64 bits.
    fn wide(self) -> i64;

    /// By how much it is more than another one, in as many bits as it has: it may overflow.
    fn minus(self, other: Self) -> i64;

    /// The statistics by which readers leave out groups of rows.
    fn statistics(values: &[Self], nulls: u64) -> Statistics;
}

impl Number for i32 {
    #[inline]
    fn wide(self) -> i64 {
        self.into()
    }

    #[inline]
    fn minus(self, other: i32) -> i64 {
        self.wrapping_sub(other).into()
    }

    fn statistics(values: &[i32], nulls: u64) -> Statistics {
        Statistics::int32(
            values.iter().min().copied(),
            values.iter().max().copied(),
            None,
            Some(nulls),
            false,
        )
    }
}

impl Number for i64 {
    #[inline]
    fn wide(self) -> i64 {
        self
    }

    #[inline]
    fn minus(self, other: i64) -> i64 {
        self.wrapping_sub(other)
    }

    fn statistics(values: &[i64], nulls: u64) -> Statistics {
        Statistics::int64(
            values.iter().min().copied(),
            values.iter().max().copied(),
            None,
            Some(nulls),
            false,
        )
    }
}

/// Appends the values.
pub(super) fn put_deltas<N: Number>(bytes: &mut Vec<u8>, values: &[N]) {
    put_varint(bytes, BLOCK as u64);
    put_varint(bytes, (BLOCK / PART) as u64);
    put_varint(bytes, values.len() as u64);
    put_zigzag(bytes, values.first().map_or(0, |first| first.wide()));
    let mut rest = values;
    while rest.len() > 1 {
        // A block has one value less than it needs: the last one of the block before.
        let block = &rest[..rest.len().min(BLOCK + 1)];
        put_block(bytes, block);
        rest = &rest[block.len() - 1..];
    }
}

/// Appends a block: the differences between at most 129 values.
fn put_block<N: Number>(bytes: &mut Vec<u8>, values: &[N]) {
    let mut deltas = [0_i64; BLOCK];
    for (delta, pair) in deltas.iter_mut().zip(values.windows(2)) {
        *delta = pair[1].minus(pair[0]);
    }
    let count = values.len() - 1;
    let least = deltas[..count].iter().min().copied().unwrap_or(0);
    // The rest of the last block is filled up.
    deltas[count..].fill(least);
    let mut above = [0_u64; BLOCK];
    for (above, delta) in above.iter_mut().zip(&deltas) {
        *above = delta.wrapping_sub(least).cast_unsigned();
    }
    put_zigzag(bytes, least);
    let widths =
        |part: &[u64]| (u64::BITS - part.iter().fold(0, |all, value| all | value).leading_zeros()) as u8;
    bytes.extend(above.chunks(PART).map(widths));
    for part in above[..count].chunks(PART).zip(above.chunks(PART)).map(|(_, part)| part) {
        put_part(bytes, part, widths(part).into());
    }
}

/// Appends values as packed bits: the number of values is a multiple of 32, so that nothing of a
/// word remains, or half of it.
fn put_part(bytes: &mut Vec<u8>, values: &[u64], width: u32) {
    let (mut word, mut bits) = (0_u64, 0);
    for value in values {
        word |= value << bits;
        bits += width;
        if bits >= u64::BITS {
            bytes.extend_from_slice(&word.to_le_bytes());
            bits -= u64::BITS;
            // Shifted by as many bits as were stored of it.
            word = value.checked_shr(width - bits).unwrap_or(0);
        }
    }
    bytes.extend_from_slice(&word.to_le_bytes()[..bits as usize / 8]);
}

fn put_zigzag(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, (value << 1 ^ value >> 63).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::basic::{Repetition, Type as Physical};
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::record::Field;
    use parquet::schema::types::Type;

    use super::super::coded::{Chunk, Levels, Packer, Values};
    use super::*;

    /// As the crate reads a file with this column.
    fn read_back<N: Number>(physical: Physical, values: &[N]) -> Vec<i64> {
        let column = Type::primitive_type_builder("n", physical).with_repetition(Repetition::REQUIRED);
        let fields = vec![Arc::new(column.build().unwrap())];
        let schema = Arc::new(Type::group_type_builder("t").with_fields(fields).build().unwrap());
        let mut file =
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default())).unwrap();
        let descriptor = file.schema_descr().column(0);
        let mut group = file.next_row_group().unwrap();
        let mut bytes = Vec::new();
        put_deltas(&mut bytes, values);
        let statistics = Some(N::statistics(values, 0));
        let chunk = Chunk {
            rows: values.len(),
            levels: Levels::Required,
            statistics,
            values: Values::Deltas(&bytes),
        };
        chunk.append(&mut Packer::default(), &descriptor, &mut group).unwrap();
        group.close().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(file.into_inner().unwrap())).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
        let number = |row: parquet::record::Row| match row.get_column_iter().next() {
            Some((_, Field::Int(number))) => i64::from(*number),
            Some((_, Field::Long(number))) => *number,
            other => panic!("{other:?}"),
        };
        rows.map(number).collect()
    }

    #[test]
    fn the_crate_reads_them_back() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 1 ^ state << 31
        };
        for count in [0, 1, 2, 32, 33, 34, 128, 129, 130, 161, 1000] {
            // Differences of each width, and those that overflow.
            for bits in 0..=64 {
                let values: Vec<i64> =
                    (0..count).map(|_| random().checked_shr(64 - bits).unwrap_or(0).cast_signed()).collect();
                assert_eq!(read_back(Physical::INT64, &values), values, "{count} of {bits} bits");
                let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
                let wide: Vec<i64> = values.iter().map(|value| i64::from(*value)).collect();
                assert_eq!(read_back(Physical::INT32, &values), wide, "{count} of {bits} bits");
            }
        }
        let ends = [i64::MIN, i64::MAX, 0, i64::MIN, -1, i64::MAX];
        assert_eq!(read_back(Physical::INT64, &ends), ends);
    }
}
