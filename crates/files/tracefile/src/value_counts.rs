//! Counts of calls by their values: those of an arena, and their chunk.

use everycall_format::Wire;
use everycall_format::arena::ArenaHeader;
use everycall_format::ect::{ValueCountsRecord, chunk};
use everycall_format::value_counts::{PLACES, ValueCount, ValueCountsHeader, place_at};

use crate::chunk_writer::array;

/// Places that are read at a time.
const AT_ONCE: u32 = 64;

/// How often the calls of a process had the same values.
#[derive(Clone, Debug, Default)]
pub struct ValueCounts {
    header: ValueCountsHeader,
    places: Vec<ValueCount>,
}

impl ValueCounts {
    /// Those of an arena with this layout; `None` if it has none. `read` reads bytes at an offset,
    /// and says whether it could.
    pub(crate) fn read(
        layout: &ArenaHeader,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<ValueCounts> {
        let at = Some(layout.values_offset).filter(|at| *at != 0)?;
        let mut bytes = vec![0; ValueCountsHeader::SIZE];
        if !read(at, &mut bytes) {
            return None;
        }
        let mut counts = ValueCounts { header: ValueCountsHeader::read(&bytes)?, places: Vec::new() };
        let mut bytes = vec![0; AT_ONCE as usize * ValueCount::SIZE];
        for first in (0..PLACES).step_by(AT_ONCE as usize) {
            if !read(at + place_at(first), &mut bytes) {
                continue;
            }
            let places = bytes.chunks_exact(ValueCount::SIZE).filter_map(ValueCount::read);
            counts.places.extend(places.filter(|place| place.is_ready() && place.calls > 0));
        }
        Some(counts)
    }

    /// Calls, with any values.
    pub(crate) fn calls(&self) -> u64 {
        self.places.iter().map(|place| place.calls).fold(self.header.others, u64::saturating_add)
    }

    /// The chunk that has them in snapshot number `snapshot`: its kind, and its parts.
    pub(crate) fn chunk(&self, snapshot: u32) -> (u32, [Vec<u8>; 2]) {
        let ValueCountsHeader { others, too_long, .. } = self.header;
        let record = ValueCountsRecord { snapshot, others, too_long, ..ValueCountsRecord::default() };
        (chunk::VALUE_COUNTS, [record.to_bytes().to_vec(), array(&self.places)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::env::RING_SIZE_MIN;
    use everycall_format::value_counts::SIZE;

    #[test]
    fn complete_places_are_read() {
        let layout = ArenaHeader::with_layout(RING_SIZE_MIN, 1, 0).with_values();
        assert!(layout.is_consistent(layout.arena_size));
        let mut area = vec![0; SIZE as usize];
        ValueCountsHeader { others: 5, ..ValueCountsHeader::default() }.write(&mut area);
        let whole = ValueCount { state: 8 | ValueCount::READY, calls: 3, length: 2, ..ValueCount::default() };
        for (place, value) in [
            (0, whole),
            (70, ValueCount { state: 8 | ValueCount::WRITING, ..whole }),
            (71, ValueCount { calls: 0, ..whole }),
            (72, ValueCount { length: 300, ..whole }),
            (PLACES - 1, ValueCount { calls: 4, ..whole }),
        ] {
            value.write(&mut area[place_at(place) as usize..]);
        }
        let read = |at: u64, bytes: &mut [u8]| {
            let at = (at - layout.values_offset) as usize;
            bytes.copy_from_slice(&area[at..at + bytes.len()]);
            true
        };
        let counts = ValueCounts::read(&layout, read).unwrap();
        assert_eq!((counts.places.len(), counts.calls()), (2, 12));
        let (kind, [record, places]) = counts.chunk(7);
        assert_eq!((kind, ValueCountsRecord::read(&record).unwrap().others), (chunk::VALUE_COUNTS, 5));
        assert!(places.len() > 2 * ValueCount::SIZE);
        let bare = ArenaHeader { values_offset: 0, ..layout };
        assert!(ValueCounts::read(&bare, read).is_none());
    }
}
