//! Which functions are parts of others: compilers put code that rarely runs elsewhere.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::functions::Functions;
use crate::references::References;
use crate::scan::Scans;
use crate::unwind::Unwind;

/// Parts of parts are followed so deep.
const MAX_DEPTH: usize = 8;

/// Functions and their parts, by index.
pub(crate) struct Parts {
    /// The function that each belongs to; `None`: a part whose function isn't known.
    pub(crate) root: Vec<Option<usize>>,
    /// Functions that overlap others, or share parts with them.
    pub(crate) overlapping: Vec<usize>,
}

impl Parts {
    pub(crate) fn find(
        functions: &Functions<'_>,
        scans: &Scans,
        unwind: &Unwind,
        references: &References,
    ) -> Self {
        let finder = Finder::new(functions, scans, unwind, references);
        let mut parents: FxHashMap<usize, FxHashSet<usize>> = FxHashMap::default();
        finder.by_jumps(&mut parents);
        finder.by_how_they_are_reached(&mut parents);
        for &(start, pad) in &unwind.landing_pads {
            let Some(function) = functions.owner(start) else { continue };
            if let Some(owner) = functions.owner(pad).filter(|&owner| owner != function) {
                let (part, of) = if finder.is_part(owner) { (owner, function) } else { (function, owner) };
                parents.entry(part).or_default().insert(of);
            }
        }
        let mut overlapping = Vec::new();
        for (index, pair) in functions.all.windows(2).enumerate() {
            if let [one, next] = pair
                && one.end > next.start
            {
                overlapping.extend([index, index + 1]);
            }
        }
        let root: Vec<Option<usize>> =
            (0..functions.all.len()).map(|index| finder.root(&parents, index)).collect();
        for (&part, of) in &parents {
            let roots: FxHashSet<usize> = of.iter().filter_map(|&parent| *root.get(parent)?).collect();
            if roots.len() > 1 {
                overlapping
                    .extend(of.iter().map(|&parent| root.get(parent).copied().flatten().unwrap_or(parent)));
                overlapping.extend(root.get(part).copied().flatten());
            }
        }
        Self { root, overlapping }
    }
}

struct Finder<'a> {
    functions: &'a Functions<'a>,
    scans: &'a Scans,
    unwind: &'a Unwind,
    /// Called, or their addresses are taken.
    called: FxHashSet<u64>,
}

impl<'a> Finder<'a> {
    fn new(
        functions: &'a Functions<'a>,
        scans: &'a Scans,
        unwind: &'a Unwind,
        references: &References,
    ) -> Self {
        let mut called: FxHashSet<u64> = references.code.iter().chain(&scans.taken).copied().collect();
        called.extend(scans.all.iter().flat_map(|scan| &scan.calls).copied());
        Self { functions, scans, unwind, called }
    }

    /// Whether it can't be a function of its own: by its name, or as its stack at the start isn't
    /// that of an entry, or as it expects flags.
    fn is_part(&self, index: usize) -> bool {
        let (Some(function), Some(scan)) = (self.functions.all.get(index), self.scans.all.get(index)) else {
            return false;
        };
        function.name.contains(".cold")
            || function.has_unwind && self.unwind.is_at_entry_level(function.start) == Some(false)
            || scan.reads_flags && function.name.is_empty() && !self.called.contains(&function.start)
    }

    fn by_jumps(&self, parents: &mut FxHashMap<usize, FxHashSet<usize>>) {
        for (from, scan) in self.scans.all.iter().enumerate() {
            for jump in &scan.leaving {
                let Some(to) = self.functions.owner(jump.to).filter(|&to| to != from) else { continue };
                let is_start = self.functions.all.get(to).is_some_and(|function| function.start == jump.to);
                let has_frame = is_start && self.unwind.is_at_entry_level(jump.at) == Some(false);
                if has_frame || self.is_part(to) {
                    parents.entry(to).or_default().insert(from);
                }
            }
        }
    }

    /// Without symbols, a part whose stack is as at an entry is known by how it is reached: nothing
    /// calls it or takes its address, one function jumps to it, and either by a conditional jump,
    /// or the part jumps back into that function.
    fn by_how_they_are_reached(&self, parents: &mut FxHashMap<usize, FxHashSet<usize>>) {
        #[derive(Default)]
        struct Reached {
            by: Option<usize>,
            by_several: bool,
            is_conditional: bool,
        }
        let mut reached: FxHashMap<usize, Reached> = FxHashMap::default();
        let mut into_middle: FxHashSet<(usize, usize)> = FxHashSet::default();
        for (from, scan) in self.scans.all.iter().enumerate() {
            for jump in &scan.leaving {
                let Some(to) = self.functions.owner(jump.to).filter(|&to| to != from) else { continue };
                if self.functions.all.get(to).is_some_and(|function| function.start == jump.to) {
                    let one = reached.entry(to).or_default();
                    one.by_several |= one.by.is_some_and(|by| by != from);
                    one.by = Some(from);
                    one.is_conditional |= jump.is_conditional;
                } else {
                    into_middle.insert((from, to));
                }
            }
        }
        for (to, one) in reached {
            let Some(function) = self.functions.all.get(to) else { continue };
            let Some(by) = one.by.filter(|_| !one.by_several) else { continue };
            let is_reached_otherwise = !function.name.is_empty() || self.called.contains(&function.start);
            if is_reached_otherwise || parents.contains_key(&to) {
                continue;
            }
            if one.is_conditional || into_middle.contains(&(to, by)) {
                parents.entry(to).or_default().insert(by);
            }
        }
    }

    /// The function that a part, or a part of a part, belongs to.
    fn root(&self, parents: &FxHashMap<usize, FxHashSet<usize>>, mut index: usize) -> Option<usize> {
        for _ in 0..MAX_DEPTH {
            let Some(of) = parents.get(&index) else {
                return (!self.is_part(index)).then_some(index);
            };
            // Several are refused anyway.
            match of.iter().filter(|&&parent| parent != index).min() {
                None => return Some(index),
                Some(&parent) => index = parent,
            }
        }
        None
    }
}
