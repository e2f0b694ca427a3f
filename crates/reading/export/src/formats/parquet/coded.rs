//! Columns as they are stored: a page of values, or a dictionary page and a page of numbers in it.
//!
//! The crate's own writer takes the texts themselves and looks each of them up again, which takes
//! longer than everything else that is done for a row. Here their numbers are known already. It
//! also takes its time for rows without a value, which here are one run.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// A group of rows of the file.
pub(super) type Group<'g> = SerializedRowGroupWriter<'g, Vec<u8>>;

/// Level of zstd's compression: higher ones take longer than all else, and save a tenth.
const LEVEL: i32 = 1;
/// From this number of equal values on, they are stored as one.
const RUN: usize = 64;

/// How all pages are compressed.
pub(super) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(LEVEL).unwrap_or_default())
}

/// A column in a group of rows.
pub(super) struct Chunk<'c> {
    /// How many rows these are.
    pub(super) rows: usize,
    pub(super) levels: Levels,
    /// Of the values that there are.
    pub(super) statistics: Option<Statistics>,
    pub(super) values: Values<'c>,
}

/// Which rows of a column have a value.
pub(super) enum Levels {
    /// Each, as the column's type says.
    Required,
    /// All (1) or none (0).
    Same(u32),
    /// 1 for each row with a value, 0 for each without.
    Each(Vec<u32>),
}

/// The values of a column in a group of rows.
pub(super) enum Values<'c> {
    /// As differences: [`put_deltas`](super::deltas::put_deltas).
    Deltas(&'c [u8]),
    /// By their numbers.
    Numbered {
        /// The different values in Parquet's plain form, one after the other.
        dictionary: &'c [u8],
        /// How many these are.
        distinct: usize,
        /// The number of each value in the dictionary.
        codes: &'c [u32],
    },
}

impl Chunk<'_> {
    /// Writes it as the next column of a group.
    pub(super) fn append(
        self,
        packer: &mut Packer,
        descriptor: &ColumnDescPtr,
        group: &mut Group<'_>,
    ) -> Result<()> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut pages = Vec::new();
        let mut encodings = vec![Encoding::RLE];
        let mut data = self.levels_bytes();
        match self.values {
            Values::Deltas(bytes) => {
                data.extend_from_slice(bytes);
                encodings.push(Encoding::DELTA_BINARY_PACKED);
            }
            Values::Numbered { dictionary, distinct, codes } => {
                pages.push(packer.compressed(dictionary, |buf| Page::DictionaryPage {
                    buf,
                    num_values: count(distinct),
                    encoding: Encoding::PLAIN,
                    is_sorted: false,
                })?);
                let largest = distinct.saturating_sub(1);
                let width = (usize::BITS - largest.leading_zeros()).max(1);
                data.push(width as u8);
                put_hybrid(&mut data, codes, width);
                encodings.extend([Encoding::PLAIN, Encoding::RLE_DICTIONARY]);
            }
        }
        pages.push(packer.compressed(&data, |buf| Page::DataPage {
            buf,
            num_values: count(self.rows),
            encoding: encodings.last().copied().unwrap_or(Encoding::PLAIN),
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?);
        let has_dictionary = pages.len() > 1;
        let mut bytes = TrackedWrite::new(Vec::new());
        let mut writer = SerializedPageWriter::new(&mut bytes);
        let written = pages.into_iter().map(|page| writer.write_page(page)).collect::<Result<Vec<_>>>()?;
        writer.close()?;
        let sum = |size: fn(&PageWriteSpec) -> usize| {
            i64::try_from(written.iter().map(size).sum::<usize>()).unwrap_or(i64::MAX)
        };
        let offset = |page: Option<&PageWriteSpec>| page.and_then(|page| i64::try_from(page.offset).ok());
        let bytes_written = bytes.bytes_written() as u64;
        let mut metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_compression(compression())
            .set_encodings(encodings)
            .set_total_compressed_size(sum(|page| page.compressed_size))
            .set_total_uncompressed_size(sum(|page| page.uncompressed_size))
            .set_num_values(i64::try_from(self.rows).unwrap_or(i64::MAX))
            .set_dictionary_page_offset(offset(written.first().filter(|_| has_dictionary)))
            .set_data_page_offset(offset(written.last()).unwrap_or(0));
        if let Some(statistics) = self.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(bytes.into_inner()?), close)
    }

    /// Which rows have a value.
    fn levels_bytes(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        match &self.levels {
            Levels::Required => return packed,
            Levels::Same(level) => put_run(&mut packed, *level, self.rows, 1),
            Levels::Each(levels) => put_hybrid(&mut packed, levels, 1),
        }
        let mut bytes = u32::try_from(packed.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        bytes.extend_from_slice(&packed);
        bytes
    }
}

/// Compresses pages.
#[derive(Default)]
pub(super) struct Packer {
    /// Made once: it takes as long as a small page.
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl Packer {
    fn compressed(&mut self, bytes: &[u8], page: impl FnOnce(Bytes) -> Page) -> Result<CompressedPage> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(LEVEL)?),
        };
        let packed = compressor.compress(bytes)?;
        Ok(CompressedPage::new(page(packed.into()), bytes.len()))
    }
}

/// Appends values of `width` bits in Parquet's hybrid of runs of equal values and packed bits.
fn put_hybrid(bytes: &mut Vec<u8>, values: &[u32], width: u32) {
    let mut packed_from = 0;
    let mut at = 0;
    // A run that is long enough has one of these values in it.
    while let Some(value) = values.get(at + RUN - 1) {
        let probe = at + RUN - 1;
        let before = values[at..probe].iter().rev().take_while(|other| *other == value).count();
        let behind = values[probe..].iter().take_while(|other| *other == value).count();
        let begin = probe - before;
        let end = probe + behind;
        // The packed values before a run are whole groups of eight.
        let begin = packed_from + (begin - packed_from).next_multiple_of(8);
        if begin + RUN > end {
            at = end;
            continue;
        }
        put_packed(bytes, &values[packed_from..begin], width);
        put_run(bytes, *value, end - begin, width);
        (at, packed_from) = (end, end);
    }
    put_packed(bytes, &values[packed_from..], width);
}

/// Appends a run of equal values.
fn put_run(bytes: &mut Vec<u8>, value: u32, count: usize, width: u32) {
    put_varint(bytes, (count as u64) << 1);
    bytes.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Appends values as packed bits, the last ones filled up to eight.
fn put_packed(bytes: &mut Vec<u8>, values: &[u32], width: u32) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(8);
    put_varint(bytes, (groups as u64) << 1 | 1);
    let end = bytes.len() + groups * width as usize;
    let (mut bits, mut count) = (0_u64, 0);
    bytes.reserve(end - bytes.len() + 8);
    for value in values {
        bits |= u64::from(*value) << count;
        count += width;
        if count >= 32 {
            bytes.extend_from_slice(&(bits as u32).to_le_bytes());
            bits >>= 32;
            count -= 32;
        }
    }
    bytes.extend_from_slice(&bits.to_le_bytes());
    bytes.resize(end, 0);
}

pub(super) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a text in Parquet's plain form: after its length.
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
