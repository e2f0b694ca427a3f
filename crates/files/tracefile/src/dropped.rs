//! Calls that were counted: short ones and those that weren't recorded, and beside them all calls.
//! Counts of an arena, and their chunks.

use everycall_format::Wire;
use everycall_format::arena::ArenaHeader;
use everycall_format::dropped::{DroppedFunction, DroppedHeader, FUNCTIONS, OTHERS, counting};
use everycall_format::ect::{CountedCalls, CountsRecord, DroppedCalls, DroppedRecord, TimedCalls, chunk};
use everycall_format::event::WORD_SIZE;
use everycall_format::times::TimeSums;

use crate::all_calls::AllCalls;
use crate::chunk_writer::array;
use crate::memory::Memory;
use crate::summary::Summary;
use crate::value_counts::ValueCounts;

/// The counts of an arena.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    header: DroppedHeader,
    /// Of all functions, by thread slot.
    slots: Vec<u64>,
    functions: Vec<DroppedCalls>,
    /// In a process that only counts: by function and slot.
    counted: Vec<CountedCalls>,
    /// In a process that times calls: by function and slot.
    timed: Vec<TimedCalls>,
    /// Calls of functions that found no place, there.
    others: u64,
    /// All calls, in a process that records, unless they aren't wanted.
    all_calls: Option<AllCalls>,
    /// If it also counts what they allocate.
    memory: Option<Memory>,
    /// In a process that counts calls by their values.
    values: Option<ValueCounts>,
}

impl Dropped {
    /// The counts of an arena with this layout, in which `slots` slots are in use. `read` reads
    /// bytes at an offset, and says whether it could. What was never written isn't read, as far as
    /// possible: reading it may take memory.
    pub fn read(layout: &ArenaHeader, slots: u32, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Dropped {
        let mut bytes = vec![0; DroppedHeader::SIZE];
        let header = Some(()).filter(|()| read(layout.dropped_offset, &mut bytes));
        let Some(header) = header.and_then(|()| DroppedHeader::read(&bytes)) else {
            return Dropped::default();
        };
        let is_counting = header.counting != counting::OFF;
        let places = header.places.clamp(1, layout.functions());
        let mut bytes = vec![0; (places as usize - 1) * DroppedFunction::SIZE];
        if !read(layout.dropped_function_at(1), &mut bytes) {
            return Dropped { header, ..Dropped::default() };
        }
        let functions = bytes.chunks_exact(DroppedFunction::SIZE).filter_map(DroppedFunction::read);
        let functions: Vec<DroppedFunction> = functions.collect();
        let all_calls = match is_counting {
            true => None,
            false => Some(AllCalls::read(layout, slots, &functions, &mut read)),
        };
        let values = ValueCounts::read(layout, &mut read);
        if header.highest_ns == 0 && !is_counting {
            return Dropped { header, all_calls, values, ..Dropped::default() };
        }
        let mut functions: Vec<DroppedCalls> = functions
            .iter()
            .map(|function| DroppedCalls {
                code: function.code,
                ticks: function.ticks,
                ..DroppedCalls::default()
            })
            .collect();
        if counting::has_times(header.counting) {
            let (timed, others) = timed(layout, slots, &functions, &mut read);
            let is_there = header.counting == counting::MEMORY;
            let memory = is_there.then(|| Memory::read(layout, &header, slots, &functions, read));
            return Dropped { header, timed, others, memory, ..Dropped::default() };
        }
        let (mut sums, mut counted, mut others) = (Vec::new(), Vec::new(), 0_u64);
        let mut counts = vec![0; places as usize * WORD_SIZE];
        for slot in 0..slots.min(layout.thread_capacity) {
            let at = layout.dropped_counts_at(slot);
            let mut sum = [0; WORD_SIZE];
            let first = if read(at, &mut sum) { u64::from_le_bytes(sum) } else { 0 };
            if first == 0 && !is_counting || !read(at, &mut counts) {
                sums.push(first);
                continue;
            }
            let mut counts = counts.as_chunks::<WORD_SIZE>().0.iter().map(|count| u64::from_le_bytes(*count));
            let mut sum = counts.next().unwrap_or(0);
            if is_counting {
                let mut count = [0; WORD_SIZE];
                let at = at + u64::from(OTHERS) * WORD_SIZE as u64;
                sum = if read(at, &mut count) { u64::from_le_bytes(count) } else { 0 };
                others = others.saturating_add(sum);
            }
            let counts = (1..).zip(functions.iter_mut().zip(counts));
            for (_, (function, calls)) in counts.filter(|(place, _)| *place != OTHERS) {
                function.calls = function.calls.saturating_add(calls);
                if is_counting && calls > 0 {
                    sum = sum.saturating_add(calls);
                    let DroppedCalls { code, ticks, .. } = *function;
                    counted.push(CountedCalls { code, slot, ticks, calls });
                }
            }
            sums.push(sum);
        }
        functions.retain(|function| function.calls > 0);
        Dropped { header, slots: sums, functions, counted, others, all_calls, ..Dropped::default() }
    }

    /// Whether the process counts its calls and doesn't record them.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.header.counting != counting::OFF
    }

    /// Whether calls are dropped, or were.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.header.highest_ns != 0
    }

    /// Calls that were dropped in a thread slot.
    #[must_use]
    pub fn of_slot(&self, slot: u32) -> u64 {
        self.slots.get(slot as usize).copied().unwrap_or(0)
    }

    /// Calls that were dropped or counted.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let calls = self.functions.iter().map(|function| function.calls);
        let timed = self.timed.iter().map(|function| function.calls);
        calls.chain(timed).fold(self.others, u64::saturating_add)
    }

    /// Adds the counts to a report.
    pub fn add_to(&self, summary: &mut Summary) {
        if let Some(values) = &self.values {
            summary.counted = Some(summary.counted.unwrap_or(0).saturating_add(values.calls()));
        }
        if self.is_counting() {
            summary.counted = Some(summary.counted.unwrap_or(0).saturating_add(self.calls()));
            return;
        }
        summary.dropped = summary.dropped.saturating_add(self.calls());
        summary.min_duration_ns = summary.min_duration_ns.max(self.header.highest_ns);
    }

    /// All calls, in a process that records.
    #[must_use]
    pub fn all_calls(&self) -> Option<&AllCalls> {
        self.all_calls.as_ref()
    }

    /// With all calls since `before`, in the slots that are `wanted`; without them if there is no
    /// `before`.
    #[must_use]
    pub fn since(mut self, before: Option<&AllCalls>, wanted: impl Fn(u32) -> bool) -> Dropped {
        let all = self.all_calls.take().zip(before);
        self.all_calls = all.map(|(all, before)| all.since(before));
        if let Some(all) = &mut self.all_calls {
            all.keep_slots(wanted);
        }
        self
    }

    /// The chunks that have the counts of snapshot number `snapshot`: their kinds, and their parts.
    pub fn chunks(&self, snapshot: u32) -> impl Iterator<Item = (u32, [Vec<u8>; 2])> {
        let memory = self.memory.as_ref().map(|memory| (chunk::MEMORY, memory.chunk(snapshot)));
        let all_calls = self.all_calls.as_ref().map(|all| all.chunk(snapshot));
        let values = self.values.as_ref().map(|values| values.chunk(snapshot));
        self.chunk(snapshot).into_iter().chain(memory).chain(all_calls).chain(values)
    }

    /// The kind of the chunk that has the counts of calls that weren't recorded, and its parts;
    /// `None` if calls are neither dropped nor counted.
    fn chunk(&self, snapshot: u32) -> Option<(u32, [Vec<u8>; 2])> {
        if self.is_counting() {
            let record = CountsRecord {
                snapshot,
                counting: self.header.counting,
                calls: self.calls(),
                others: self.others,
                ..CountsRecord::default()
            };
            return Some(match counting::has_times(self.header.counting) {
                true => (chunk::TIMES, [record.to_bytes().to_vec(), array(&self.timed)]),
                false => (chunk::COUNTS, [record.to_bytes().to_vec(), array(&self.counted)]),
            });
        }
        let record = DroppedRecord {
            snapshot,
            // Short calls of functions with later places are recorded.
            is_full: u32::from(self.header.is_full != 0 || self.header.places > FUNCTIONS),
            threshold_ns: self.header.threshold_ns,
            highest_ns: self.header.highest_ns,
            calls: self.calls(),
            ..DroppedRecord::default()
        };
        self.is_there().then(|| (chunk::DROPPED, [record.to_bytes().to_vec(), array(&self.functions)]))
    }
}

/// Number of a slot's sums that are read at a time: all places are a multiple of it.
const SUMS_AT_ONCE: u32 = 128;

/// The times of an arena in which `slots` slots are in use, by function and slot, and the calls of
/// functions that found no place.
fn timed(
    layout: &ArenaHeader,
    slots: u32,
    functions: &[DroppedCalls],
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> (Vec<TimedCalls>, u64) {
    let (mut timed, mut others) = (Vec::new(), 0_u64);
    let mut bytes = vec![0; SUMS_AT_ONCE as usize * TimeSums::SIZE];
    for slot in 0..slots.min(layout.thread_capacity) {
        let Some(at) = layout.times_at(slot, OTHERS) else { break };
        let one = &mut bytes[..TimeSums::SIZE];
        if read(at, one) {
            others = others.saturating_add(TimeSums::read(one).map_or(0, |sums| sums.calls));
        }
        // Place 0 belongs to no function.
        for first in (0..=functions.len() as u32).step_by(SUMS_AT_ONCE as usize) {
            let Some(at) = layout.times_at(slot, first) else { break };
            if !read(at, &mut bytes) {
                continue;
            }
            let sums = bytes.chunks_exact(TimeSums::SIZE).map(TimeSums::read);
            for (sums, place) in sums.zip(first..) {
                let place = (place as usize).checked_sub(1).filter(|_| place != OTHERS);
                let Some(sums) = sums.filter(|sums| sums.calls > 0) else { continue };
                let Some(function) = place.and_then(|place| functions.get(place)) else { continue };
                let DroppedCalls { code, ticks, .. } = *function;
                timed.push(TimedCalls { code, slot, ticks, ..TimedCalls::of(&sums) });
            }
        }
    }
    (timed, others)
}

/// Truncates the words of a segment to which its thread still writes: `again` was read after
/// `words`. When calls are dropped, words are taken back and written again. Words that are the same
/// in both readings existed together, and so did those before them: everything from the first
/// difference on becomes zero.
pub fn keep_settled(words: &mut [u8], again: &[u8]) {
    let (these, others) = (words.as_chunks::<WORD_SIZE>().0, again.as_chunks::<WORD_SIZE>().0);
    let settled = these.iter().zip(others).take_while(|(one, other)| one == other).count();
    if let Some(rest) = words.get_mut(settled * WORD_SIZE..) {
        rest.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everycall_format::env::RING_SIZE_MIN;

    #[test]
    fn counts_of_several_slots_add_up() {
        let layout = ArenaHeader::with_layout(RING_SIZE_MIN, 2, 0);
        let mut arena = vec![0; layout.segments_offset as usize];
        let mut put = |at: u64, bytes: &[u8]| arena[at as usize..][..bytes.len()].copy_from_slice(bytes);
        let header = DroppedHeader {
            threshold: 1200,
            threshold_ns: 500,
            highest_ns: 500,
            places: 4,
            ..DroppedHeader::default()
        };
        put(layout.dropped_offset, &header.to_bytes());
        for (place, code) in [(1, 0x1000), (2, 0x2000), (3, 0x3000)] {
            let function = DroppedFunction { code, ticks: 7, ..DroppedFunction::default() };
            put(layout.dropped_function_at(place), &function.to_bytes());
        }
        for (slot, counts) in [(0, [8_u64, 5, 3, 0]), (1, [10, 0, 10, 0])] {
            let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
            put(layout.dropped_counts_at(slot), &bytes);
        }
        let read = |at: u64, bytes: &mut [u8]| {
            let from = arena.get(at as usize..at as usize + bytes.len());
            from.map(|from| bytes.copy_from_slice(from)).is_some()
        };
        let dropped = Dropped::read(&layout, 2, read);
        assert_eq!((dropped.of_slot(0), dropped.of_slot(1), dropped.of_slot(2)), (8, 10, 0));
        assert_eq!(dropped.calls(), 18);
        let found: Vec<_> =
            dropped.functions.iter().map(|function| (function.code, function.calls)).collect();
        assert_eq!(found, [(0x1000, 5), (0x2000, 13)]);
        assert!(dropped.chunk(0).is_some_and(|(kind, _)| kind == chunk::DROPPED));
        assert!(Dropped::read(&layout, 2, |_, _| false).chunk(0).is_none());
    }

    #[test]
    fn times_of_several_slots_are_read() {
        let layout = ArenaHeader::with_layout(RING_SIZE_MIN, 2, 0).with_times();
        let header = DroppedHeader { counting: counting::TIMES, places: 3, ..DroppedHeader::default() };
        let function = |code| DroppedFunction { code, ticks: 7, ..DroppedFunction::default() };
        let mut histogram = [0; everycall_format::times::BUCKETS];
        histogram[4] = 2;
        let sums = TimeSums {
            calls: 3,
            total: 40,
            own: u64::MAX,
            shortest: !17,
            longest: 23,
            histogram,
            ..TimeSums::default()
        };
        let parts = [
            (layout.dropped_offset, header.to_bytes().to_vec()),
            (
                layout.dropped_function_at(1),
                [function(0x1000).to_bytes().to_vec(), function(0x2000).to_bytes().to_vec()].concat(),
            ),
            (layout.times_at(1, 2).unwrap(), sums.to_bytes().to_vec()),
            (
                layout.times_at(0, OTHERS).unwrap(),
                TimeSums { calls: 5, ..TimeSums::default() }.to_bytes().to_vec(),
            ),
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
        let times = Dropped::read(&layout, 2, read);
        assert_eq!((times.calls(), times.timed.len()), (8, 1));
        let one = times.timed[0];
        assert_eq!((one.code, one.slot, one.calls, one.total, one.own), (0x2000, 1, 3, 40, 0));
        assert_eq!((one.shortest, one.longest, one.histogram[4]), (17, 23, 2));
        assert!(times.chunk(0).is_some_and(|(kind, _)| kind == chunk::TIMES));
        // An arena without room for times.
        let bare = ArenaHeader { times_offset: 0, ..layout };
        assert_eq!(Dropped::read(&bare, 2, read).calls(), 0);
    }

    #[test]
    fn what_changes_is_cut_with_all_behind_it() {
        let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        let mut words = bytes(&[1, 2, 3, 4]);
        keep_settled(&mut words, &bytes(&[1, 2, 9, 4]));
        assert_eq!(words, bytes(&[1, 2, 0, 0]));
        let mut words = bytes(&[1, 0, 3]);
        keep_settled(&mut words, &bytes(&[1, 0, 3]));
        assert_eq!(words, bytes(&[1, 0, 3]));
    }
}
