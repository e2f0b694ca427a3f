//! Which code each process has mapped where, as the kernel's records tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Processes whose maps are kept after their end: samples of theirs may still come.
const ENDED_KEPT: usize = 256;

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub end: u64,
    /// The number of the file, or of what is no file.
    pub code: usize,
    /// Where its first byte lies in the file.
    pub offset: u64,
}

/// Mappings by their beginning.
type Maps = BTreeMap<u64, Mapping>;

/// The mappings of all processes.
#[derive(Debug, Default)]
pub struct AllMaps {
    processes: FxHashMap<u32, Arc<Maps>>,
    ended: Vec<u32>,
}

impl AllMaps {
    /// A process has mapped code.
    pub fn map(&mut self, pid: u32, begin: u64, mapping: Mapping) {
        let maps = Arc::make_mut(self.processes.entry(pid).or_default());
        let before = maps.range(..mapping.end).rev();
        let covered: Vec<u64> =
            before.take_while(|(_, other)| other.end > begin).map(|(at, _)| *at).collect();
        for at in covered {
            let Some(old) = maps.remove(&at) else { continue };
            if at < begin {
                maps.insert(at, Mapping { end: begin, ..old });
            }
            if old.end > mapping.end {
                let offset = old.offset.wrapping_add(mapping.end - at);
                maps.insert(mapping.end, Mapping { offset, ..old });
            }
        }
        maps.insert(begin, mapping);
    }

    /// A process has forked another one.
    pub fn forked(&mut self, parent: u32, child: u32) {
        if parent != child {
            let maps = self.processes.get(&parent).cloned().unwrap_or_default();
            self.processes.insert(child, maps);
        }
    }

    /// A process executes a program.
    pub fn executes(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
        if self.ended.len() > ENDED_KEPT {
            for pid in self.ended.drain(..ENDED_KEPT / 2) {
                self.processes.remove(&pid);
            }
        }
    }

    /// The mapping that contains an address.
    pub fn at(&self, pid: u32, address: u64) -> Option<(u64, Mapping)> {
        let (begin, mapping) = self.processes.get(&pid)?.range(..=address).next_back()?;
        (address < mapping.end).then_some((*begin, *mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(end: u64, code: usize, offset: u64) -> Mapping {
        Mapping { end, code, offset }
    }

    #[test]
    fn newer_mappings_replace_what_they_cover() {
        let mut all = AllMaps::default();
        all.map(1, 10, mapping(50, 7, 100));
        all.map(1, 20, mapping(30, 8, 0));
        assert_eq!(all.at(1, 19), Some((10, mapping(20, 7, 100))));
        assert_eq!(all.at(1, 20), Some((20, mapping(30, 8, 0))));
        assert_eq!(all.at(1, 30), Some((30, mapping(50, 7, 120))));
        assert_eq!(all.at(1, 50), None);
        all.map(1, 0, mapping(60, 9, 0));
        assert_eq!(all.at(1, 25), Some((0, mapping(60, 9, 0))));
        assert_eq!(all.at(2, 25), None);
    }

    #[test]
    fn children_have_their_parents_maps_until_they_execute() {
        let mut all = AllMaps::default();
        all.map(1, 10, mapping(50, 7, 0));
        all.forked(1, 2);
        all.map(2, 50, mapping(60, 8, 0));
        assert!(all.at(2, 10).is_some() && all.at(2, 55).is_some() && all.at(1, 55).is_none());
        all.executes(2);
        assert!(all.at(2, 10).is_none() && all.at(1, 10).is_some());
        (0..300).for_each(|pid| all.ended(pid));
        assert!(all.at(1, 10).is_none(), "long ended");
    }
}
