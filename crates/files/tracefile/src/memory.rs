//! Memory that the calls of a process have allocated and freed: read from its arena, and its chunk.

use everycall_format::Wire;
use everycall_format::arena::ArenaHeader;
use everycall_format::dropped::{DroppedHeader, OTHERS};
use everycall_format::ect::DroppedCalls;
use everycall_format::memory::{MemoryCalls, MemoryRecord, NUMBERS, is_open, total_now, whose};
use everycall_format::times::TimeSums;

use crate::chunk_writer::array;

/// Number of a slot's sums that are read at a time: all places are a multiple of it.
const SUMS_AT_ONCE: u32 = 128;
/// How often sums are read again because a running thread has changed them meanwhile.
const TRIES: usize = 8;

/// The numbers of an arena, by function and slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    record: MemoryRecord,
    calls: Vec<MemoryCalls>,
}

impl Memory {
    /// Those of an arena in which `slots` slots are in use. `functions` are at the places from 1
    /// on.
    pub(crate) fn read(
        layout: &ArenaHeader,
        header: &DroppedHeader,
        slots: u32,
        functions: &[DroppedCalls],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Memory {
        let record = MemoryRecord {
            facts: header.memory_facts,
            elsewhere: header.memory_elsewhere,
            ..MemoryRecord::default()
        };
        let mut calls = Vec::new();
        for slot in 0..slots.min(layout.thread_capacity) {
            let mut slot = Slot { layout, slot, read: &mut read, calls: &mut calls };
            for first in (0..=functions.len() as u32).step_by(SUMS_AT_ONCE as usize) {
                slot.add(first, SUMS_AT_ONCE, |place| match place.checked_sub(1) {
                    None => Some((whose::THREAD, DroppedCalls::default())),
                    _ if place == OTHERS => None,
                    Some(place) => functions.get(place as usize).map(|function| (whose::FUNCTION, *function)),
                });
            }
            slot.add(OTHERS, 1, |_| Some((whose::OTHERS, DroppedCalls::default())));
        }
        Memory { record, calls }
    }

    /// The parts of the chunk that has the numbers of snapshot number `snapshot`.
    pub(crate) fn chunk(&self, snapshot: u32) -> [Vec<u8>; 2] {
        [MemoryRecord { snapshot, ..self.record }.to_bytes().to_vec(), array(&self.calls)]
    }
}

/// A slot whose sums are read.
struct Slot<'s, R> {
    layout: &'s ArenaHeader,
    slot: u32,
    read: &'s mut R,
    calls: &'s mut Vec<MemoryCalls>,
}

impl<R: FnMut(u64, &mut [u8]) -> bool> Slot<'_, R> {
    fn sums(&mut self, first: u32, count: u32) -> Option<Vec<TimeSums>> {
        let mut bytes = vec![0; count as usize * TimeSums::SIZE];
        let at = self.layout.times_at(self.slot, first)?;
        (self.read)(at, &mut bytes)
            .then(|| bytes.chunks_exact(TimeSums::SIZE).filter_map(TimeSums::read).collect())
    }

    /// Adds the sums at `count` places from `first` on. `of` says whose they are.
    fn add(&mut self, first: u32, count: u32, of: impl Fn(u32) -> Option<(u32, DroppedCalls)>) {
        let Some((sums, meter)) = self.settled(first, count) else { return };
        for (sums, place) in sums.iter().zip(first..) {
            let Some((whose, DroppedCalls { code, ticks, .. })) = of(place) else { continue };
            let (own, words) = (sums.memory_own, sums.memory_total);
            if own == [0; NUMBERS] && words == [0; NUMBERS] {
                continue;
            }
            let mut totals = words;
            for ((word, meter), own) in totals.iter_mut().zip(meter).zip(own) {
                *word = total_now(*word, meter, own);
            }
            let slot = self.slot;
            self.calls.push(MemoryCalls {
                code,
                slot,
                ticks,
                own,
                total: totals,
                whose,
                ..MemoryCalls::default()
            });
        }
    }

    /// Sums, and the words of the meter that belong to them: while they were read, no total was
    /// opened or closed.
    fn settled(&mut self, first: u32, count: u32) -> Option<(Vec<TimeSums>, [u64; NUMBERS])> {
        let mut sums = self.sums(first, count)?;
        let mut meter = [0; NUMBERS];
        for _ in 0..TRIES {
            meter = self.sums(0, 1)?.first()?.memory_total;
            if !sums.iter().any(|sums| sums.memory_total.iter().any(|word| is_open(*word))) {
                break;
            }
            let again = self.sums(first, count)?;
            let is_same = sums.iter().zip(&again).all(|(one, other)| {
                let mut words = one.memory_total.iter().zip(&other.memory_total);
                words.all(|(one, other)| one == other || !is_open(*one) && !is_open(*other))
            });
            sums = again;
            if is_same {
                break;
            }
        }
        Some((sums, meter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::dropped::counting;
    use everycall_format::env::RING_SIZE_MIN;
    use everycall_format::memory::turned;

    #[test]
    fn totals_of_open_calls_are_whole() {
        let layout = ArenaHeader::with_layout(RING_SIZE_MIN, 1, 0).with_times();
        let header = DroppedHeader {
            counting: counting::MEMORY,
            places: 3,
            memory_facts: 1,
            memory_elsewhere: [9, 1, 0, 0],
            ..DroppedHeader::default()
        };
        let sums = |own, total| TimeSums { memory_own: own, memory_total: total, ..TimeSums::default() };
        let double = |numbers: [u64; NUMBERS]| numbers.map(|number| 2 * number);
        // 300 bytes in all, 100 of them outside; a call that began after 120 bytes is open, and its
        // function had 20 before.
        let meter = double([300, 4, 50, 1]);
        let before = double([120, 2, 0, 0]);
        let open = std::array::from_fn(|at| turned(double([20, 1, 0, 0])[at], before[at]));
        let parts = [
            (layout.dropped_offset, header.to_bytes().to_vec()),
            (layout.times_at(0, 0).unwrap(), sums([100, 1, 0, 0], meter).to_bytes().to_vec()),
            (layout.times_at(0, 1).unwrap(), sums([30, 1, 0, 0], open).to_bytes().to_vec()),
            (layout.times_at(0, 2).unwrap(), sums([7, 1, 7, 1], double([7, 1, 7, 1])).to_bytes().to_vec()),
        ];
        let read = |at: u64, bytes: &mut [u8]| {
            bytes.fill(0);
            let end = at + bytes.len() as u64;
            for (from, part) in parts.iter().filter(|(from, _)| (at..end).contains(from)) {
                let (to, size) = ((from - at) as usize, part.len().min((end - from) as usize));
                bytes[to..to + size].copy_from_slice(&part[..size]);
            }
            true
        };
        let function = |code| DroppedCalls { code, ticks: 7, ..DroppedCalls::default() };
        let found = Memory::read(&layout, &header, 1, &[function(0x1000), function(0x2000)], read);
        assert_eq!((found.record.facts, found.record.elsewhere), (1, [9, 1, 0, 0]));
        let found: Vec<_> = found.calls.iter().map(|of| (of.code, of.whose, of.own, of.total)).collect();
        assert_eq!(
            found,
            [
                (0, whose::THREAD, [100, 1, 0, 0], [300, 4, 50, 1]),
                (0x1000, whose::FUNCTION, [30, 1, 0, 0], [200, 3, 50, 1]),
                (0x2000, whose::FUNCTION, [7, 1, 7, 1], [7, 1, 7, 1]),
            ]
        );
    }
}
