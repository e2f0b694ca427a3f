//! Counts of all calls beside the rings: those of an arena, and their chunk.

use std::collections::HashMap;

use everycall_format::Wire as _;
use everycall_format::arena::ArenaHeader;
use everycall_format::dropped::{DroppedFunction, OTHERS, counting};
use everycall_format::ect::{CountedCalls, CountsRecord, chunk};
use everycall_format::event::WORD_SIZE;

use crate::chunk_writer::array;

/// The counts of all calls that a process has recorded so far, also of those whose events were
/// overwritten.
#[derive(Clone, Debug, Default)]
pub struct AllCalls {
    /// By function and slot.
    functions: Vec<CountedCalls>,
    /// Calls of functions that found no place, by slot; those without any aren't listed.
    others: Vec<(u32, u64)>,
}

impl AllCalls {
    /// The counts of an arena with this layout, in which `slots` slots are in use, of the functions
    /// that have places, from place 1 on. `read` reads bytes at an offset, and says whether it
    /// could.
    pub(crate) fn read(
        layout: &ArenaHeader,
        slots: u32,
        places: &[DroppedFunction],
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> AllCalls {
        let mut all = AllCalls::default();
        let mut counts = vec![0; places.len() * WORD_SIZE];
        for slot in 0..slots.min(layout.thread_capacity) {
            let at = |place: u32| layout.all_calls_at(slot) + u64::from(place) * WORD_SIZE as u64;
            if read(at(1), &mut counts) {
                let counts = counts.as_chunks::<WORD_SIZE>().0.iter().map(|count| u64::from_le_bytes(*count));
                let counts = (1..).zip(places.iter().zip(counts));
                let called = counts.filter(|(place, (_, calls))| *place != OTHERS && *calls > 0);
                all.functions.extend(called.map(|(_, (&DroppedFunction { code, ticks, .. }, calls))| {
                    CountedCalls { code, slot, ticks, calls }
                }));
            }
            let mut others = [0; WORD_SIZE];
            if read(at(OTHERS), &mut others) && others != [0; WORD_SIZE] {
                all.others.push((slot, u64::from_le_bytes(others)));
            }
        }
        all
    }

    /// The calls since `before`, an earlier reading of the same arena.
    #[must_use]
    pub fn since(mut self, before: &AllCalls) -> AllCalls {
        let key = |one: &CountedCalls| (one.slot, one.code, one.ticks);
        let earlier: HashMap<_, u64> = before.functions.iter().map(|one| (key(one), one.calls)).collect();
        for one in &mut self.functions {
            one.calls = one.calls.saturating_sub(earlier.get(&key(one)).copied().unwrap_or(0));
        }
        self.functions.retain(|one| one.calls > 0);
        for (slot, calls) in &mut self.others {
            let earlier = before.others.iter().find(|(before, _)| before == slot);
            *calls = calls.saturating_sub(earlier.map_or(0, |(_, calls)| *calls));
        }
        self.others.retain(|(_, calls)| *calls > 0);
        self
    }

    /// Leaves the slots that are `wanted`.
    pub fn keep_slots(&mut self, wanted: impl Fn(u32) -> bool) {
        self.functions.retain(|one| wanted(one.slot));
        self.others.retain(|(slot, _)| wanted(*slot));
    }

    /// Calls of all functions.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.functions.iter().map(|one| one.calls).fold(self.others(), u64::saturating_add)
    }

    fn others(&self) -> u64 {
        self.others.iter().map(|(_, calls)| *calls).fold(0, u64::saturating_add)
    }

    /// The chunk that has the counts of snapshot number `snapshot` beside its events: its kind, and
    /// its parts.
    #[must_use]
    pub fn chunk(&self, snapshot: u32) -> (u32, [Vec<u8>; 2]) {
        (chunk::ALL_CALLS, self.payload(snapshot, counting::OFF))
    }

    /// The chunk of the counts for a file without events: its kind, and its parts.
    #[must_use]
    pub fn chunk_alone(&self, snapshot: u32) -> (u32, [Vec<u8>; 2]) {
        (chunk::COUNTS, self.payload(snapshot, counting::CALLS))
    }

    fn payload(&self, snapshot: u32, counting: u32) -> [Vec<u8>; 2] {
        let (calls, others) = (self.calls(), self.others());
        let record = CountsRecord { snapshot, counting, calls, others, ..CountsRecord::default() };
        [record.to_bytes().to_vec(), array(&self.functions)]
    }
}
