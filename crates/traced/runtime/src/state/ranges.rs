//! The table of known stacks that aren't threads' own: their bounds and slots. It is searched at
//! each context switch without a lock, and changed with a lock.
//!
//! The entries are ordered by their lower ends. They overlap only if one lies within another: a
//! stack in a local variable of a function that runs on a fiber.

use crate::sys::lock::Lock;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// Limit on the stacks that are known at a time.
const CAPACITY: usize = 8192;

/// Limit on the entries that are removed under one lock.
pub(crate) const TAKEN_AT_ONCE: usize = 16;
/// Limit on the entries that are checked under one lock: other threads that need the table wait.
const LOOKED_AT_AT_ONCE: usize = 256;

/// [`Range::flags`].
pub(crate) mod flags {
    /// The program has begun something new on the stack, so the calls that were open were unwound.
    pub const BEGUN_ANEW: u32 = 1;
    /// There was no slot for the stack. Its events are lost, and counted.
    pub const REFUSED: u32 = 2;
    /// The bounds are a guess.
    pub const GUESSED: u32 = 4;
    /// The program registered the stack, and registers it again when something new begins on it.
    pub const TOLD: u32 = 8;
}

/// A stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// Its slot, plus 1. 0 before its first event.
    pub(crate) slot: u32,
    /// A set of [`flags`].
    pub(crate) flags: u32,
    /// The thread that registered it.
    pub(crate) tid: u32,
    /// Its name, NUL padded. Empty if it has none.
    pub(crate) name: [u8; 16],
    /// The call in whose frames it lies, if it lies within another stack.
    pub(crate) around: Around,
}

/// The innermost open call of the outer stack that surrounds a stack within it: see
/// `threads::nested`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    /// Slot of the outer stack, plus 1. 0 if no such call is known.
    pub(crate) slot: u32,
    /// The call's index in the open-call stack.
    pub(crate) place: u32,
    /// Its event word.
    pub(crate) word: u64,
    /// The return address of the call that it had made, if the stack lies in that call's frames; 0
    /// if unknown.
    pub(crate) callee_returns_to: u64,
}

impl Range {
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.low..self.high).contains(&address)
    }

    pub(crate) fn is_within(&self, low: u64, high: u64) -> bool {
        low <= self.low && self.high <= high
    }
}

/// A range in shared form, for lock-free readers.
#[derive(Debug, Default)]
struct Entry {
    low: AtomicU64,
    high: AtomicU64,
    /// The highest end of this range and all ranges before it: a downward search stops if it is too
    /// low.
    reach: AtomicU64,
    slot_and_flags: AtomicU64,
    tid: AtomicU64,
    name: [AtomicU64; 2],
    around: [AtomicU64; 3],
}

impl Entry {
    fn get(&self) -> Range {
        let both = self.slot_and_flags.load(Relaxed);
        let mut name = [0; 16];
        for (half, part) in self.name.iter().zip(name.as_chunks_mut::<8>().0) {
            *part = half.load(Relaxed).to_le_bytes();
        }
        let [slot_and_place, word, callee_returns_to] = &self.around;
        let slot_and_place = slot_and_place.load(Relaxed);
        Range {
            low: self.low.load(Relaxed),
            high: self.high.load(Relaxed),
            slot: both as u32,
            flags: (both >> 32) as u32,
            tid: self.tid.load(Relaxed) as u32,
            name,
            around: Around {
                slot: slot_and_place as u32,
                place: (slot_and_place >> 32) as u32,
                word: word.load(Relaxed),
                callee_returns_to: callee_returns_to.load(Relaxed),
            },
        }
    }

    fn set(&self, range: &Range) {
        self.low.store(range.low, Relaxed);
        self.high.store(range.high, Relaxed);
        self.slot_and_flags.store(u64::from(range.slot) | u64::from(range.flags) << 32, Relaxed);
        self.tid.store(range.tid.into(), Relaxed);
        for (half, part) in self.name.iter().zip(range.name.as_chunks::<8>().0) {
            half.store(u64::from_le_bytes(*part), Relaxed);
        }
        let around = &range.around;
        let words =
            [u64::from(around.slot) | u64::from(around.place) << 32, around.word, around.callee_returns_to];
        self.around.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// The table. All zero is an empty table.
#[derive(Debug)]
pub(crate) struct Ranges {
    lock: AtomicU32,
    /// Odd while the table is being changed.
    version: AtomicU32,
    count: AtomicU32,
    entries: [Entry; CAPACITY],
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// A number that changes with the table.
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Acquire)
    }

    /// The smallest range that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<Range> {
        self.read(|table| table.search(address))
    }

    /// The smallest range that contains this memory and is larger.
    pub(crate) fn find_around(&self, low: u64, high: u64) -> Option<Range> {
        self.read(|table| {
            let behind = table.first_from(low.saturating_add(1));
            table.reaching(behind, high).next()
        })
    }

    /// The end of the highest range that ends at `address` or below it. 0 if there is none.
    pub(crate) fn end_below(&self, address: u64) -> u64 {
        self.read(|table| table.below(address).map_or(0, |range| range.high))
    }

    /// The lowest range that begins above `address`.
    pub(crate) fn next_above(&self, address: u64) -> Option<Range> {
        self.read(|table| {
            let next = table.first_from(address.saturating_add(1));
            (next < table.len()).then(|| table.get(next))
        })
    }

    /// Whether any range overlaps this one.
    pub(crate) fn overlaps(&self, low: u64, high: u64) -> bool {
        self.read(|table| table.overlapping(low, high).is_some())
    }

    /// Whether any range of an unregistered stack overlaps this one.
    pub(crate) fn overlaps_guessed(&self, low: u64, high: u64) -> bool {
        let lock = self.lock();
        lock.overlapping(low, high, |range| range.flags & flags::GUESSED != 0).is_some()
    }

    /// The end of the highest range within this memory, except the same range. `low` if there is
    /// none.
    pub(crate) fn end_within(&self, low: u64, high: u64) -> u64 {
        self.highest_within(low, high).map_or(low, |range| range.high)
    }

    /// The range within this memory with the highest end, except the same range.
    pub(crate) fn highest_within(&self, low: u64, high: u64) -> Option<Range> {
        self.read(|table| {
            let is_inside =
                |range: &Range| range.is_within(low, high) && (range.low, range.high) != (low, high);
            let last = table.first_from(high);
            table.reaching(last, low).filter(is_inside).max_by_key(|range| range.high)
        })
    }

    /// Removes all entries.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.count.store(0, Relaxed);
    }

    /// Runs `look` on a consistent table: repeats it if the table changes meanwhile.
    fn read<T>(&self, look: impl Fn(&Ranges) -> T) -> T {
        loop {
            let version = self.version.load(Acquire);
            if version.is_multiple_of(2) {
                let result = look(self);
                fence(Acquire);
                if self.version.load(Relaxed) == version {
                    return result;
                }
            }
            crate::sys::system::yield_now();
        }
    }

    /// Locks the table for changes.
    pub(crate) fn lock(&self) -> Change<'_> {
        Change { ranges: self, _lock: Lock::take(&self.lock) }
    }

    fn get(&self, index: usize) -> Range {
        self.entries.get(index).map(Entry::get).unwrap_or_default()
    }

    fn len(&self) -> usize {
        (self.count.load(Relaxed) as usize).min(CAPACITY)
    }

    /// Index of the first entry that begins at `address` or above it.
    fn first_from(&self, address: u64) -> usize {
        let (mut first, mut end) = (0, self.len());
        while first < end {
            let middle = first.midpoint(end);
            if self.entries.get(middle).is_some_and(|entry| entry.low.load(Relaxed) < address) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        first
    }

    fn search(&self, address: u64) -> Option<Range> {
        let behind = self.first_from(address.saturating_add(1));
        self.reaching(behind, address).next()
    }

    fn below(&self, address: u64) -> Option<Range> {
        let behind = self.first_from(address);
        let nearest = (0..behind).rev().map(|index| self.get(index)).find(|range| range.high <= address)?;
        // A range with a higher end can only be one around this range.
        let around = |range: &Range| {
            let behind = self.first_from(range.low.saturating_add(1));
            self.reaching(behind, range.high).next().filter(|range| range.high <= address)
        };
        core::iter::successors(Some(nearest), around).last()
    }

    fn overlapping(&self, low: u64, high: u64) -> Option<Range> {
        self.reaching(self.first_from(high), low).next()
    }

    /// The ranges before index `place` that end above `address`, nearest first.
    fn reaching(&self, place: usize, address: u64) -> impl Iterator<Item = Range> {
        let reach = |index: usize| self.entries.get(index).map_or(0, |entry| entry.reach.load(Relaxed));
        let may_reach = move |index: &usize| reach(*index) > address;
        (0..place)
            .rev()
            .take_while(may_reach)
            .map(|index| self.get(index))
            .filter(move |range| range.high > address)
    }
}

/// The table, locked for changes.
pub(crate) struct Change<'a> {
    ranges: &'a Ranges,
    _lock: Lock<'a>,
}

impl Change<'_> {
    /// A range that overlaps this memory and that `is_meant` accepts.
    pub(crate) fn overlapping(
        &self,
        low: u64,
        high: u64,
        is_meant: impl Fn(&Range) -> bool,
    ) -> Option<Range> {
        let behind = self.ranges.first_from(high);
        self.ranges.reaching(behind, low).find(is_meant)
    }

    /// Inserts a range. Returns false if there is no space.
    pub(crate) fn insert(&self, range: &Range) -> bool {
        let count = self.ranges.len();
        if count >= CAPACITY {
            return false;
        }
        self.changed(|| {
            let first = self.ranges.first_from(range.low);
            // Of several ranges with the same lower end, the larger ones come first.
            let is_before = |other: Range| other.low == range.low && other.high > range.high;
            let place = (first..count).find(|&index| !is_before(self.ranges.get(index))).unwrap_or(count);
            for index in (place..count).rev() {
                self.put(index + 1, &self.ranges.get(index));
            }
            self.put(place, range);
            self.set_count(count + 1, place);
        });
        true
    }

    /// Removes a range.
    pub(crate) fn remove(&self, range: &Range) {
        let Some(place) = self.place(range) else { return };
        let count = self.ranges.len();
        self.changed(|| {
            for index in place + 1..count {
                self.put(index - 1, &self.ranges.get(index));
            }
            self.set_count(count - 1, place);
        });
    }

    /// Checks the next few ranges that begin at `from` or above it. Removes those that `is_meant`
    /// accepts, up to the size of the buffer. Returns their number, and where the next ones begin,
    /// or `None` at the end.
    pub(crate) fn take_some(
        &self,
        from: u64,
        taken: &mut [Range; TAKEN_AT_ONCE],
        is_meant: impl Fn(&Range) -> bool,
    ) -> (usize, Option<u64>) {
        let count = self.ranges.len();
        let first = self.ranges.first_from(from);
        let mut places = [0; TAKEN_AT_ONCE];
        let (mut found, mut next) = (0, None);
        for index in first..count {
            let range = self.ranges.get(index);
            let (Some(place), Some(out)) = (places.get_mut(found), taken.get_mut(found)) else {
                next = Some(range.low);
                break;
            };
            if index - first >= LOOKED_AT_AT_ONCE {
                next = Some(range.low);
                break;
            }
            if is_meant(&range) {
                (*place, *out) = (index, range);
                found += 1;
            }
        }
        let places = places.get(..found).unwrap_or(&[]);
        if let Some(hole) = places.first() {
            self.changed(|| {
                let mut kept = *hole;
                for index in (*hole..count).filter(|index| !places.contains(index)) {
                    self.put(kept, &self.ranges.get(index));
                    kept += 1;
                }
                self.set_count(kept, *hole);
            });
        }
        (found, next)
    }

    /// Changes a range, except for its bounds. Returns false if the range isn't in the table any
    /// more.
    pub(crate) fn update(&self, range: &Range, change: impl FnOnce(&mut Range)) -> bool {
        let Some(place) = self.place(range) else { return false };
        self.changed(|| {
            let mut changed = self.ranges.get(place);
            change(&mut changed);
            self.put(place, &Range { low: range.low, high: range.high, ..changed });
        });
        true
    }

    fn place(&self, range: &Range) -> Option<usize> {
        let first = self.ranges.first_from(range.low);
        (first..self.ranges.len())
            .map(|index| (index, self.ranges.get(index)))
            .take_while(|(_, other)| other.low == range.low)
            .find(|(_, other)| other.high == range.high)
            .map(|(index, _)| index)
    }

    fn put(&self, index: usize, range: &Range) {
        if let Some(entry) = self.ranges.entries.get(index) {
            entry.set(range);
        }
    }

    /// Sets the number of entries, and recomputes `reach` from the first changed entry on.
    fn set_count(&self, count: usize, changed: usize) {
        self.ranges.count.store(count as u32, Relaxed);
        let entries = &self.ranges.entries;
        let before = changed.checked_sub(1).and_then(|index| entries.get(index));
        let mut reach = before.map_or(0, |entry| entry.reach.load(Relaxed));
        for entry in entries.get(changed..count).unwrap_or(&[]) {
            reach = reach.max(entry.high.load(Relaxed));
            entry.reach.store(reach, Relaxed);
        }
    }

    /// Runs `change`. Readers repeat their search if it overlaps the change.
    fn changed(&self, change: impl FnOnce()) {
        let version = &self.ranges.version;
        version.store(version.load(Relaxed).wrapping_add(1), Relaxed);
        fence(Release);
        change();
        version.store(version.load(Relaxed).wrapping_add(1), Release);
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // A large table, made where it lies.
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    fn table() -> Box<Ranges> {
        // SAFETY: all zero is an empty table.
        unsafe { Box::<Ranges>::new_zeroed().assume_init() }
    }

    fn range(low: u64, high: u64) -> Range {
        Range { low, high, ..Range::default() }
    }

    #[test]
    fn ranges_are_found() {
        let table = table();
        for low in [500, 100, 300, 900] {
            assert!(table.lock().insert(&range(low, low + 100)));
        }
        for (address, found) in [
            (99, None),
            (100, Some(100)),
            (199, Some(100)),
            (200, None),
            (350, Some(300)),
            (999, Some(900)),
            (1000, None),
        ] {
            assert_eq!(table.find(address).map(|range| range.low), found, "{address}");
        }
        assert_eq!((table.end_below(300), table.end_below(399), table.end_below(100)), (200, 200, 0));
        let above = |address| table.next_above(address).map(|range| range.low);
        assert_eq!([above(99), above(100), above(899), above(900)], [Some(100), Some(300), Some(900), None]);
        assert!(table.overlaps(150, 160) && table.overlaps(0, 101) && !table.overlaps(200, 300));
        assert_eq!((table.end_within(0, 450), table.end_within(200, 300)), (400, 200));
        assert!(table.lock().update(&range(300, 400), |range| range.slot = 7));
        assert_eq!(table.find(300).unwrap().slot, 7);
        table.lock().remove(&range(300, 400));
        assert_eq!((table.find(350), table.find(501).unwrap().low), (None, 500));
    }

    #[test]
    fn the_smallest_one_counts() {
        let table = table();
        for (low, high) in [(1000, 9000), (2000, 3000), (4000, 5000)] {
            table.lock().insert(&range(low, high));
        }
        let low = |address| table.find(address).map(|range| range.low);
        assert_eq!(
            [low(2500), low(3500), low(4999), low(8999), low(9000)],
            [Some(2000), Some(1000), Some(4000), Some(1000), None]
        );
        assert_eq!(table.end_within(1000, 9000), 5000);
        // A range within another one begins higher and ends lower.
        assert_eq!(table.end_within(0, 10_000), 9000);
        let around = |low, high| table.find_around(low, high).map(|range| range.low);
        assert_eq!(
            [around(2000, 2990), around(2000, 3000), around(4500, 5500), around(1000, 9000)],
            [Some(2000), Some(1000), Some(1000), None]
        );
    }

    #[test]
    fn however_many_lie_within_one() {
        let table = table();
        let outer = range(10_000, 90_000);
        for index in 0..500 {
            table.lock().insert(&range(100 * index, 100 * index + 50));
            table.lock().insert(&range(20_000 + 100 * index, 20_000 + 100 * index + 50));
        }
        for range in [outer, range(80_000, 90_000), range(80_000, 81_000)] {
            table.lock().insert(&range);
        }
        let low = |address| table.find(address).map(|range| range.low);
        assert_eq!(
            [low(69_960), low(69_940), low(15_060), low(9_960)],
            [Some(10_000), Some(69_900), Some(10_000), None]
        );
        let around = |low, high| table.find_around(low, high).map(|range| (range.low, range.high));
        assert_eq!(around(60_060, 60_070), Some((10_000, 90_000)));
        assert_eq!(around(80_000, 80_900), Some((80_000, 81_000)));
        assert_eq!(around(80_000, 81_000), Some((80_000, 90_000)));
        assert_eq!((table.end_within(10_000, 90_000), table.end_within(10_000, 89_000)), (90_000, 81_000));
        assert_eq!(
            (table.end_below(95_000), table.end_below(85_000), table.end_below(20_075)),
            (90_000, 81_000, 20_050)
        );
        table.lock().remove(&outer);
        assert_eq!([low(69_960), low(69_940), low(85_000)], [None, Some(69_900), Some(80_000)]);
    }

    #[test]
    fn those_within_a_threads_stack() {
        let table = table();
        for (low, high) in [(100, 200), (2000, 3000), (4000, 5000)] {
            table.lock().insert(&range(low, high));
        }
        assert_eq!([table.end_within(1000, u64::MAX), table.end_within(1000, 4500)], [5000, 3000]);
        assert_eq!([table.end_within(4000, 5000), table.end_within(250, 1900)], [4000, 250]);
    }

    #[test]
    fn many_are_taken_out() {
        let table = table();
        for index in 0..2000 {
            table.lock().insert(&range(100 * index, 100 * index + 50));
        }
        for (divisor, left) in [(3, 1333), (2, 667), (1, 0)] {
            let is_meant = |range: &Range| (range.low / 100).is_multiple_of(divisor);
            let (mut from, mut all) = (Some(0), 0);
            while let Some(begin) = from {
                let mut taken = [Range::default(); TAKEN_AT_ONCE];
                let count;
                (count, from) = table.lock().take_some(begin, &mut taken, is_meant);
                assert!(taken[..count].iter().all(is_meant));
                all += count;
            }
            assert_eq!(table.len(), left, "{divisor}: {all}");
            let there = |index: u64| table.find(100 * index).is_some();
            assert!((0..2000).all(|index| !there(index) || !is_meant(&range(100 * index, 0))), "{divisor}");
        }
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let table = table();
        for index in 0..CAPACITY as u64 {
            assert!(
                table
                    .lock()
                    .insert(&range((CAPACITY as u64 - index) * 16, (CAPACITY as u64 - index) * 16 + 16))
            );
        }
        assert!(!table.lock().insert(&range(1 << 40, 1 << 41)));
        assert!(
            (1..=CAPACITY as u64)
                .all(|index| table.find(index * 16 + 15).is_some_and(|range| range.low == index * 16))
        );
    }
}
