//! The words of an events chunk, from each form in which they are stored.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use everycall_format::ect::{EVENTS_PAYLOAD_MAX, EventsRecord, encoding};
use everycall_format::event::WORD_SIZE;

/// The largest zstd window that is read, 32 MiB, as a power of two.
const WINDOW_LOG_MAX: u32 = 25;

/// Unpacks one zstd frame.
///
/// # Errors
/// There is no memory.
pub(crate) fn unpacker<'a, R: BufRead>(frame: R) -> io::Result<zstd::Decoder<'a, R>> {
    let mut decoder = zstd::Decoder::with_buffer(frame)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// The words in `bytes`, described by the chunk's record `record`. If `is_cut`, bytes are missing
/// at the end, and the words that exist are returned.
///
/// # Errors
/// The problem with the chunk.
pub(crate) fn decode(record: &EventsRecord, bytes: &[u8], is_cut: bool) -> Result<Vec<u64>, &'static str> {
    let count = usize::try_from(record.words).ok().filter(|count| *count <= WORDS_MAX);
    let count = count.ok_or("it has more words than fit")?;
    let bytes = match record.encoding {
        encoding::RAW | encoding::COMPACT => Cow::Borrowed(bytes),
        encoding::ZSTD => Cow::Owned(unpack(bytes, count * WORD_SIZE, is_cut)?),
        encoding::COMPACT_ZSTD => Cow::Owned(unpack(bytes, everycall_compact::encoded_max(count), is_cut)?),
        _ => return Err("it is stored in a way that this everycall doesn't know"),
    };
    let mut words = Vec::new();
    if matches!(record.encoding, encoding::COMPACT | encoding::COMPACT_ZSTD) {
        match everycall_compact::decode(&bytes, count, &mut words) {
            Err(everycall_compact::Error::Short) if is_cut => {}
            result => result.map_err(|_| "its words in compact form are damaged")?,
        }
    } else {
        let whole = bytes.as_chunks().0;
        words.extend(whole.iter().take(count).map(|bytes| u64::from_le_bytes(*bytes)));
    }
    if words.len() < count && !is_cut {
        return Err("it has fewer words than it says");
    }
    Ok(words)
}

/// The first words in `bytes`, which may be only the beginning of the chunk's: a few hundred, and
/// unchecked.
///
/// # Errors
/// The problem with the chunk.
pub(crate) fn first(record: &EventsRecord, bytes: &[u8]) -> Result<Vec<u64>, &'static str> {
    const COUNT: usize = 256;
    let count = usize::try_from(record.words).map_or(COUNT, |words| words.min(COUNT));
    let limit = everycall_compact::encoded_max(count);
    let mut unpacked = Vec::new();
    let is_packed = matches!(record.encoding, encoding::ZSTD | encoding::COMPACT_ZSTD);
    if is_packed {
        let decoder = unpacker(bytes).map_err(|_| "there is no memory to unpack it")?;
        // The rest of the frame may be missing.
        let _ = decoder.take(limit as u64).read_to_end(&mut unpacked);
    }
    let bytes = if is_packed { &unpacked } else { bytes.get(..limit.min(bytes.len())).unwrap_or_default() };
    let encoding = match record.encoding {
        encoding::COMPACT_ZSTD => encoding::COMPACT,
        encoding::ZSTD => encoding::RAW,
        other => other,
    };
    if encoding == encoding::COMPACT {
        let mut words = Vec::new();
        // There are more words than these.
        let _ = everycall_compact::decode(bytes, count, &mut words);
        return Ok(words);
    }
    decode(&EventsRecord { words: count as u64, encoding, ..*record }, bytes, true)
}

/// More don't fit into a chunk where they are stored as they are.
const WORDS_MAX: usize = EVENTS_PAYLOAD_MAX as usize / WORD_SIZE;

/// The first `limit` bytes of a zstd frame.
fn unpack(frame: &[u8], limit: usize, is_cut: bool) -> Result<Vec<u8>, &'static str> {
    if is_cut {
        return Err("it is compressed and cut");
    }
    let mut bytes = Vec::new();
    unpacker(frame)
        .map_err(|_| "there is no memory to unpack it")?
        .take(limit as u64)
        .read_to_end(&mut bytes)
        .map_err(|_| "its zstd frame is damaged")?;
    Ok(bytes)
}
