//! Where trampolines belong to.

use std::collections::BTreeMap;

use everycall_format::Wire;
use everycall_format::frame::{FrameName, TRAMPOLINES};
use everycall_format::trampoline::Trampoline;

use crate::model::{Recording, Trampolines};
use crate::payload::TABLE_MAX;

/// Adds the tables in these records of one process. Forked children have those of their parents:
/// the longest one with a number counts.
pub(crate) fn add<'a>(
    records: impl Iterator<Item = (FrameName, &'a [u8], &'a [u8])>,
    recording: &mut Recording,
) {
    let mut tables: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    for (record, entries, first) in records.filter(|(record, ..)| record.id == TRAMPOLINES) {
        let Ok(first) = first.try_into().map(u64::from_le_bytes) else { continue };
        let entries = entries.chunks_exact(Trampoline::SIZE).filter_map(Trampoline::read);
        let table = tables.entry(record.line).or_default();
        table.extend(entries.map(|entry| (entry.returns_to, first.wrapping_add(u64::from(entry.origin)))));
    }
    for (number, mut entries) in tables {
        entries.sort_unstable();
        let known = &mut recording.trampolines;
        let is_full = known.len() >= TABLE_MAX;
        match known.iter_mut().find(|known| known.number == number) {
            Some(known) if known.entries.len() >= entries.len() => {}
            Some(known) => known.entries = entries,
            None if is_full => {}
            None => known.push(Trampolines { number, entries }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(all: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; all.len() * Trampoline::SIZE];
        for (place, &(returns_to, origin)) in bytes.chunks_exact_mut(Trampoline::SIZE).zip(all) {
            Trampoline { returns_to, origin }.write(place);
        }
        bytes
    }

    #[test]
    fn tables_are_put_together_and_the_longest_counts() {
        let mut recording = Recording::default();
        let record = |line| FrameName { id: TRAMPOLINES, line, ..FrameName::default() };
        let (one, two) = (entries(&[(90, 0), (20, 0x30)]), entries(&[(5, 1), (6, 2)]));
        let first = 0x5000_u64.to_le_bytes();
        let add = |recording: &mut Recording, records: &[(FrameName, &[u8], &[u8])]| {
            super::add(records.iter().copied(), recording);
        };
        add(&mut recording, &[(record(7), &one, &first), (record(7), &two, &first)]);
        let whole = vec![(5, 0x5001), (6, 0x5002), (20, 0x5030), (90, 0x5000)];
        assert_eq!(recording.trampolines, [Trampolines { number: 7, entries: whole.clone() }]);
        // A child's copy that is cut, a record without an address, one of a frame.
        let frame = FrameName { id: 3, line: 9, ..FrameName::default() };
        add(
            &mut recording,
            &[(record(7), &two[..11], &first), (record(8), &one, &[]), (frame, &one, &first)],
        );
        assert_eq!(recording.trampolines, [Trampolines { number: 7, entries: whole }]);
    }
}
