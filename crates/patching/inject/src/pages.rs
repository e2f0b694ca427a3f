//! Patches that are written page by page: one read and one write each, however many patches there
//! are in it.
//!
//! The kernel writes within a page at once: a tracer that is killed has written all of it or
//! nothing. So patches of one page need no order. Where a patch on one page jumps to one on
//! another, that one is written first ([`Phase`]). No patch is on two pages ([`is_on_one`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use crate::memory::Memory;
use crate::patches::{Patch, PatchSet};

const PAGE: u64 = 4096;

/// Whether a patch can be written as a whole or not at all, even by a tracer that is killed.
pub(crate) fn is_on_one(patch: &Patch) -> bool {
    patch.at % PAGE + patch.new.len() as u64 <= PAGE
}

/// Bytes that are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Others,
    /// Short jumps, which reach no trampoline: they lead to another patch.
    ShortJumps,
}

impl Phase {
    fn of(patch: &Patch) -> Self {
        const SHORT_JUMP: u8 = 0xeb;
        if patch.new.first() == Some(&SHORT_JUMP) { Self::ShortJumps } else { Self::Others }
    }
}

/// The pages that patches touch, as they are in the process while all of its threads are stopped.
pub(crate) struct Pages<'a> {
    memory: &'a Memory,
    /// As they are, or are about to be.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Bytes that a patch finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Old,
    New,
    Foreign,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(memory: &'a Memory) -> Self {
        Self { memory, pages: BTreeMap::new() }
    }

    /// The bytes at a patch's place. Those that can't be read are foreign.
    pub(crate) fn find(&mut self, patch: &Patch) -> Found {
        let (size, offset) = (patch.old.len(), (patch.at % PAGE) as usize);
        let page = self.page(patch.at & !(PAGE - 1));
        let bytes = page.and_then(|page| page.get(offset..offset + size));
        match bytes {
            Some(bytes) if bytes == patch.old => Found::Old,
            Some(bytes) if bytes == patch.new => Found::New,
            _ => Found::Foreign,
        }
    }

    fn page(&mut self, start: u64) -> Option<&[u8]> {
        match self.pages.entry(start) {
            Entry::Occupied(page) => Some(page.into_mut()),
            Entry::Vacant(place) => Some(place.insert(self.memory.read(start, PAGE as usize).ok()?)),
        }
    }

    /// Writes all patches of these sets.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to write. What was written is written back.
    pub(crate) fn apply(&mut self, sets: &[&PatchSet]) -> io::Result<()> {
        let patches: Vec<&Patch> = sets.iter().flat_map(|set| &set.patches).collect();
        let [others, jumps] = by_phase(&patches);
        let result =
            self.write(&others, |patch| &patch.new).and_then(|()| self.write(&jumps, |patch| &patch.new));
        result.inspect_err(|_| {
            let _ = self.write(&jumps, |patch| &patch.old).and(self.write(&others, |patch| &patch.old));
        })
    }

    /// Writes the old bytes of these patches back.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to write.
    pub(crate) fn undo(&mut self, patches: &[&Patch]) -> io::Result<()> {
        let [others, jumps] = by_phase(patches);
        self.write(&jumps, |patch| &patch.old)?;
        self.write(&others, |patch| &patch.old)
    }

    fn write(&mut self, patches: &[&Patch], bytes: impl Fn(&Patch) -> &Vec<u8>) -> io::Result<()> {
        let mut changed: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for patch in patches {
            let (start, offset) = (patch.at & !(PAGE - 1), (patch.at % PAGE) as usize);
            let end = self.put(patch.at, bytes(patch));
            let range = changed.entry(start).or_insert((offset, end));
            *range = (range.0.min(offset), range.1.max(end));
        }
        for (start, (from, to)) in changed {
            if let Some(part) = self.pages.get(&start).and_then(|page| page.get(from..to)) {
                self.memory.write(start + from as u64, part)?;
            }
        }
        Ok(())
    }

    /// Puts bytes into a page that was read. Returns their end in it.
    fn put(&mut self, at: u64, bytes: &[u8]) -> usize {
        let offset = (at % PAGE) as usize;
        let end = offset + bytes.len();
        let page = self.pages.get_mut(&(at & !(PAGE - 1)));
        if let Some(place) = page.and_then(|page| page.get_mut(offset..end)) {
            place.copy_from_slice(bytes);
        }
        end
    }
}

fn by_phase<'p>(patches: &[&'p Patch]) -> [Vec<&'p Patch>; 2] {
    let (jumps, others) = patches.iter().partition(|patch| Phase::of(patch) == Phase::ShortJumps);
    [others, jumps]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(patches: &[(u64, &[u8], &[u8])]) -> PatchSet {
        let patches =
            patches.iter().map(|(at, old, new)| Patch { at: *at, old: old.to_vec(), new: new.to_vec() });
        PatchSet { patches: patches.collect(), moves: Vec::new() }
    }

    #[test]
    fn patches_are_written_and_written_back() {
        // Memory of this process: four pages, of which the first one begins somewhere in it.
        let own: Vec<u8> = (0..5 * PAGE).map(|index| (index % 251) as u8).collect();
        let start = (own.as_ptr() as u64).next_multiple_of(PAGE);
        let memory = Memory::open(std::process::id().cast_signed()).expect("own memory");
        let before = memory.read(start, 4 * PAGE as usize).expect("own memory");
        let old = |at: u64, size: usize| before[at as usize..][..size].to_vec();
        // A page's begin and end, a short jump that another one's place follows.
        let places = [(0, 5), (PAGE - 2, 2), (PAGE + 10, 2), (2 * PAGE - 5, 5), (2 * PAGE, 2)];
        let new = |at: u64, size: usize| if size == 2 { vec![0xeb, 9] } else { vec![at as u8 ^ 0x55; size] };
        let sets: Vec<PatchSet> =
            places.iter().map(|&(at, size)| set(&[(start + at, &old(at, size), &new(at, size))])).collect();
        let mut expected = before.clone();
        for (at, size) in places {
            expected[at as usize..][..size].copy_from_slice(&new(at, size));
        }
        let all: Vec<&PatchSet> = sets.iter().collect();
        let mut pages = Pages::new(&memory);
        assert!(sets.iter().all(|set| pages.find(&set.patches[0]) == Found::Old));
        pages.apply(&all).expect("writable");
        assert!(memory.read(start, before.len()).expect("own memory") == expected);
        let mut pages = Pages::new(&memory);
        assert!(sets.iter().all(|set| pages.find(&set.patches[0]) == Found::New));
        let patches: Vec<&Patch> = sets.iter().flat_map(|set| &set.patches).collect();
        pages.undo(&patches).expect("writable");
        assert!(memory.read(start, before.len()).expect("own memory") == before);
        let nowhere = set(&[(8, b"old", b"new")]);
        assert_eq!(pages.find(&nowhere.patches[0]), Found::Foreign);
        // One that can't be written: the others are as before.
        let all: Vec<&PatchSet> = sets.iter().chain([&nowhere]).collect();
        let mut pages = Pages::new(&memory);
        assert!(sets.iter().all(|set| pages.find(&set.patches[0]) == Found::Old));
        // Without its page, as if it had been unmapped since.
        pages.pages.insert(0, vec![0; PAGE as usize]);
        assert!(pages.apply(&all).is_err());
        assert!(memory.read(start, before.len()).expect("own memory") == before);
        drop(own);
    }
}
