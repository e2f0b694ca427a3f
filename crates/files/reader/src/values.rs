//! Captures of calls' values, and the layouts that say what is in them.

use std::collections::BTreeMap;

use everycall_format::capture::OUTPUT_MAX;
use everycall_format::capture_set::LAYOUT_MAX;
use everycall_format::event::{Word, kind};
use everycall_format::frame::{CAPTURES, FrameName, TEXT_MAX};

use crate::model::{CaptureLayout, Recording};
use crate::payload::TABLE_MAX;

/// Layout id and bytes of the capture in the record that begins at `slot` of `words`; `None` where
/// there is no such record, or less of it than it says.
#[must_use]
pub fn capture_of(words: &[u64], slot: u32) -> Option<(u32, Vec<u8>)> {
    let mut record = words.get(slot as usize..)?.iter().copied().map(Word::decode);
    let count = match record.next() {
        Some(Word::Record { kind: kind::VALUES, count, .. }) => usize::from(count),
        _ => return None,
    };
    let mut payloads = record.take(count).map_while(|word| match word {
        Word::Payload { payload, kind: kind::VALUES, .. } => Some(payload),
        _ => None,
    });
    let (id, length) = (payloads.next()?, payloads.next()? as usize);
    if length > OUTPUT_MAX {
        return None;
    }
    let mut bytes: Vec<u8> = payloads.flat_map(u32::to_le_bytes).take(length).collect();
    bytes.shrink_to_fit();
    (bytes.len() == length).then_some((id, bytes))
}

/// The most parts of a layout.
const PARTS_MAX: u32 = LAYOUT_MAX.div_ceil(TEXT_MAX as u32);

/// Adds the layouts in these records of one process. An id means the same layout in every process.
pub(crate) fn add<'a>(
    records: impl Iterator<Item = (FrameName, &'a [u8], &'a [u8])>,
    recording: &mut Recording,
) {
    let mut layouts: BTreeMap<u32, BTreeMap<u32, &[u8]>> = BTreeMap::new();
    let mut parts_of: BTreeMap<u32, u32> = BTreeMap::new();
    for (record, bytes, numbers) in records.filter(|(record, ..)| record.id == CAPTURES) {
        let Some((part, parts)) = numbers.split_first_chunk().and_then(|(part, rest)| {
            Some((u32::from_le_bytes(*part), u32::from_le_bytes(*rest.first_chunk()?)))
        }) else {
            continue;
        };
        if part < parts && parts <= PARTS_MAX {
            layouts.entry(record.line).or_default().insert(part, bytes);
            parts_of.insert(record.line, parts);
        }
    }
    for (id, parts) in layouts {
        let is_whole = parts_of.get(&id).is_some_and(|count| parts.len() as u32 == *count);
        let is_known = recording.layouts.iter().any(|layout| layout.id == id);
        if is_whole && !is_known && recording.layouts.len() < TABLE_MAX {
            let bytes = parts.into_values().flatten().copied().collect();
            recording.layouts.push(CaptureLayout { id, bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::event::{payload_word, record_word, values};

    fn record(payloads: &[u32]) -> Vec<u64> {
        let head = record_word(9, kind::VALUES, payloads.len() as u8, values::ARGUMENTS);
        let words =
            payloads.iter().zip(1..).map(|(payload, index)| payload_word(*payload, kind::VALUES, index));
        [head].into_iter().chain(words).collect()
    }

    #[test]
    fn a_capture_is_as_long_as_it_says() {
        let words = record(&[77, 6, u32::from_le_bytes(*b"abcd"), u32::from_le_bytes(*b"ef\0\0")]);
        assert_eq!(capture_of(&words, 0), Some((77, b"abcdef".to_vec())));
        assert_eq!(capture_of(&words, 1), None);
        assert_eq!(capture_of(&words[..4], 0), None);
        assert_eq!(capture_of(&record(&[77, 9, 1, 2]), 0), None);
        assert_eq!(capture_of(&record(&[77, u32::MAX, 1, 2]), 0), None);
        assert_eq!(capture_of(&record(&[77, 0]), 0), Some((77, Vec::new())));
    }

    #[test]
    fn a_layout_is_there_once_all_its_parts_are() {
        let record = |id| FrameName { id: CAPTURES, line: id, ..FrameName::default() };
        let numbers = |part: u32, parts: u32| [part.to_le_bytes(), parts.to_le_bytes()].concat();
        let (first, second, alone) = (numbers(0, 2), numbers(1, 2), numbers(0, 1));
        let mut recording = Recording::default();
        let all: [(FrameName, &[u8], &[u8]); 4] = [
            (record(5), b"cd", &second),
            (record(5), b"ab", &first),
            (record(6), b"half", &first),
            (record(7), b"whole", &alone),
        ];
        add(all.into_iter(), &mut recording);
        add([(record(5), &b"other"[..], &alone[..])].into_iter(), &mut recording);
        let layout = |id, bytes: &[u8]| CaptureLayout { id, bytes: bytes.to_vec() };
        assert_eq!(recording.layouts, [layout(5, b"abcd"), layout(7, b"whole")]);
    }
}
