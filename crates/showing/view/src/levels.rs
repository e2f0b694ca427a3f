//! Summary levels of one track: what is drawn at each width of a pixel, without reading events.
//!
//! Level `k` is for pixels of `4^k` ns or more. In each depth it holds, in the order of time, the
//! calls that took at least `4^k` ns, as they are; shorter ones are merged with their neighbours
//! into cells that span at most `4^k` ns. Level 0 holds every call as it is. A level has at most
//! four times as many cells per depth as there are pixels of its width, and each level is made from
//! the one below it while events are read. So if memory is short, the lowest level goes to a file
//! or is dropped, and all others stay as they are.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use crate::cell::Cell;
use crate::packed::Packed;
use crate::spill::Spill;
use everycall_answers::bits;

/// Deeper calls aren't drawn. The timeline has none.
pub(crate) const DEPTH_MAX: usize = 1 << 19;
/// A cell that may grow.
#[derive(Clone, Copy, Debug)]
struct Growing {
    cell: Cell,
    /// By how much the time in its function exceeds that in others.
    lead: u64,
}

/// Merges neighbours into cells that span at most `width`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merger {
    growing: Option<Growing>,
}

impl Merger {
    /// Adds the next cell of the depth; passes on those that can't grow any more.
    #[inline]
    pub fn add(&mut self, cell: Cell, width: u64, out: &mut impl FnMut(Cell)) {
        if cell.length() >= width {
            self.finish(out);
            return out(cell);
        }
        if let Some(growing) = &mut self.growing
            && cell.to().saturating_sub(growing.cell.from) <= width
        {
            growing.merge(&cell);
            return;
        }
        self.finish(out);
        self.growing = Some(Growing { cell, lead: cell.length() });
    }

    /// Passes on the last cell.
    #[inline]
    pub fn finish(&mut self, out: &mut impl FnMut(Cell)) {
        if let Some(growing) = self.growing.take() {
            out(growing.cell);
        }
    }
}

impl Growing {
    #[inline]
    fn merge(&mut self, next: &Cell) {
        let length = next.length();
        if next.function == self.cell.function {
            self.lead = self.lead.saturating_add(length);
        } else if length > self.lead {
            self.cell.function = next.function;
            self.lead = length - self.lead;
        } else {
            self.lead -= length;
        }
        let merged = self.cell.bits() | next.bits();
        // The beginning and end of the cell are no call's.
        let merged = merged & !(bits::CUT_START | bits::CUT_END);
        self.cell.count = self.cell.count.saturating_add(next.count);
        self.cell = self.cell.until(next.to().max(self.cell.to()), merged);
    }
}

/// One level of one depth.
#[derive(Debug, Default)]
struct Level {
    cells: Packed,
    merger: Merger,
}

/// The levels of one depth, from the lowest one that is kept.
#[derive(Debug, Default)]
struct Depth {
    levels: Vec<Level>,
}

/// Which levels there are, and where.
#[derive(Debug)]
struct Kept {
    /// The lowest level that is kept.
    lowest: usize,
    /// The highest level that is made: no view needs one above.
    highest: usize,
    /// The files of the lowest levels.
    spills: VecDeque<Arc<Spill>>,
    /// Bytes of all cells in memory.
    bytes: usize,
}

impl Kept {
    fn spill(&self, level: usize) -> Option<&Spill> {
        self.spills.get(level.checked_sub(self.lowest)?).map(Arc::as_ref)
    }
}

/// The levels of a track.
#[derive(Debug)]
pub(crate) struct Levels {
    depths: Vec<Depth>,
    kept: Kept,
    /// Calls that are too deep to be drawn.
    pub too_deep: u64,
}

/// The width of a pixel for which a level is made, in nanoseconds.
pub(crate) fn width(level: usize) -> u64 {
    1_u64.checked_shl(2 * level as u32).unwrap_or(u64::MAX)
}

impl Levels {
    /// Without calls, for a trace that lasts `duration_ns`, from level `lowest` on.
    pub fn new(duration_ns: u64, lowest: usize) -> Levels {
        // Wider pixels would show the whole trace on a stamp.
        let highest = (0..28).find(|level| width(*level) >= duration_ns / 64).unwrap_or(28);
        let kept = Kept { lowest: lowest.min(highest), highest, spills: VecDeque::new(), bytes: 0 };
        Levels { depths: Vec::new(), kept, too_deep: 0 }
    }

    /// Bytes of memory that the cells and the depths occupy.
    pub fn bytes(&self) -> usize {
        self.kept.bytes + self.depths.len() * (self.kept.highest + 1) * size_of::<Level>()
    }

    /// The lowest level that lies in memory, with the bytes of its cells; `None` if there is no
    /// higher one.
    pub fn lowest_in_memory(&self) -> Option<(usize, usize)> {
        let level = self.kept.lowest + self.kept.spills.len();
        let of_depth =
            |depth: &Depth| depth.levels.get(self.kept.spills.len()).map(|level| level.cells.bytes());
        (level < self.kept.highest).then(|| (level, self.depths.iter().filter_map(of_depth).sum()))
    }

    /// Moves the lowest level that lies in memory to a file, and all that comes to it.
    pub fn spill(&mut self, spill: &Arc<Spill>) {
        let index = self.kept.spills.len();
        let levels = self.depths.iter_mut().filter_map(|depth| depth.levels.get_mut(index));
        levels.for_each(|level| level.cells.spill(spill, &mut self.kept.bytes));
        self.kept.spills.push_back(Arc::clone(spill));
    }

    /// The lowest level that is kept.
    pub fn lowest(&self) -> usize {
        self.kept.lowest
    }

    /// Whether there is a lower level that can be dropped.
    pub fn can_drop(&self) -> bool {
        self.kept.lowest < self.kept.highest
    }

    /// How many depths have calls.
    pub fn depths(&self) -> usize {
        self.depths.len()
    }

    /// Adds a call. In each depth, calls come in the order of time.
    #[inline]
    pub fn add(&mut self, depth: usize, call: Cell) {
        if depth >= DEPTH_MAX {
            self.too_deep += 1;
            return;
        }
        if depth >= self.depths.len() {
            self.depths.resize_with(depth + 1, Depth::default);
        }
        let Some(of) = self.depths.get_mut(depth) else { return };
        of.add(self.kept.lowest, call, &mut self.kept);
    }

    /// Drops the lowest level.
    pub fn drop_lowest(&mut self) {
        if !self.can_drop() {
            return;
        }
        self.kept.lowest += 1;
        self.kept.spills.pop_front();
        for depth in &mut self.depths {
            if depth.levels.is_empty() {
                continue;
            }
            let Level { cells, mut merger } = depth.levels.remove(0);
            self.kept.bytes -= cells.bytes();
            drop(cells);
            let mut last = None;
            merger.finish(&mut |cell| last = Some(cell));
            if let Some(cell) = last {
                depth.add(self.kept.lowest, cell, &mut self.kept);
            }
        }
    }

    /// The level for pixels of `pixel_ns`; a lower one isn't kept if the second value is false.
    pub fn level_for(&self, pixel_ns: u64) -> (usize, bool) {
        let Kept { lowest, highest, .. } = self.kept;
        let wanted = (0..=highest).rev().find(|level| width(*level) <= pixel_ns.max(1)).unwrap_or(0);
        (wanted.max(lowest), wanted >= lowest)
    }

    /// The cells of a level that lie in a window, for each depth in the order of time.
    pub fn cells(&self, level: usize, from: u64, to: u64, out: &mut impl FnMut(usize, Cell)) {
        self.cells_of(0..usize::MAX, level, from, to, out);
    }

    /// The cells of a level that lie in a window, for some depths, each in the order of time.
    pub fn cells_of(
        &self,
        depths: std::ops::Range<usize>,
        level: usize,
        from: u64,
        to: u64,
        out: &mut impl FnMut(usize, Cell),
    ) {
        let some = self.depths.iter().enumerate().take(depths.end).skip(depths.start);
        for (at, depth) in some {
            let Some(index) = level.checked_sub(self.kept.lowest) else { return };
            if let Some(of) = depth.levels.get(index) {
                of.cells.within(from, to, self.kept.spill(level), &mut |cell| out(at, cell));
            }
            // Cells that have not reached the level yet come later, the part of the lowest level
            // last.
            for level in depth.levels.iter().take(index + 1).rev() {
                let growing = level.merger.growing.as_ref().map(|growing| growing.cell);
                if let Some(cell) = growing.filter(|cell| cell.to() >= from && cell.from <= to) {
                    out(at, cell);
                }
            }
        }
    }

    /// The call at a depth that is open at a moment, as the lowest level knows it; of two that meet
    /// there, the later one.
    pub fn find(&self, depth: usize, at_ns: u64) -> Option<Cell> {
        let cells = &self.depths.get(depth)?.levels.first()?.cells;
        let (mut earlier, mut later) = (None, None);
        cells.within(at_ns, at_ns, self.kept.spill(self.kept.lowest), &mut |cell| {
            if cell.to() == at_ns {
                earlier = Some(cell);
            } else if later.is_none() {
                later = Some(cell);
            }
        });
        later.or(earlier)
    }
}

impl Depth {
    #[inline]
    fn add(&mut self, at: usize, cell: Cell, kept: &mut Kept) {
        let index = at - kept.lowest;
        if index >= self.levels.len() {
            self.levels.push(Level::default());
        }
        let Some(level) = self.levels.get_mut(index) else { return };
        if at == 0 {
            level.cells.push(cell, kept.spills.front().map(Arc::as_ref), &mut kept.bytes);
            return if kept.highest > 0 {
                self.add(1, cell, kept)
            };
        }
        let mut done = [None; 2];
        let mut put = 0;
        level.merger.add(cell, width(at), &mut |cell| {
            if let Some(place) = done.get_mut(put) {
                *place = Some(cell);
            }
            put += 1;
        });
        for cell in done.into_iter().flatten() {
            if let Some(level) = self.levels.get_mut(index) {
                let spill = kept.spills.get(index).map(Arc::as_ref);
                level.cells.push(cell, spill, &mut kept.bytes);
            }
            if at < kept.highest {
                self.add(at + 1, cell, kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everycall_synth::Rng;

    use super::*;

    /// Calls of several depths: bursts of short ones, long ones, gaps, some without duration.
    fn calls(seed: u64, count: usize) -> Vec<Vec<Cell>> {
        let mut rng = Rng::new(seed);
        (0..5)
            .map(|_| {
                let mut now = 0;
                (0..count)
                    .map(|_| {
                        let scale = 1 << rng.below(18);
                        now += rng.below(scale);
                        let from = now;
                        now += rng.below(scale);
                        Cell::call(
                            from,
                            now,
                            rng.below(7) as u32,
                            if rng.one_in(50) { bits::UNWOUND } else { 0 },
                        )
                    })
                    .collect()
            })
            .collect()
    }

    fn levels(calls: &[Vec<Cell>], lowest: usize) -> Levels {
        let end = calls.iter().filter_map(|calls| calls.last()).map(Cell::to).max().unwrap();
        let mut levels = Levels::new(end, lowest);
        for (depth, calls) in calls.iter().enumerate() {
            calls.iter().for_each(|call| levels.add(depth, *call));
        }
        levels
    }

    fn all(levels: &Levels, level: usize, depth: usize) -> Vec<Cell> {
        let mut cells = Vec::new();
        levels.cells_of(depth..depth + 1, level, 0, u64::MAX, &mut |_, cell| cells.push(cell));
        cells
    }

    #[test]
    fn every_level_has_every_call_once_and_the_long_ones_as_they_are() {
        for seed in 0..20 {
            let calls = calls(seed, 2000);
            let levels = levels(&calls, 0);
            for level in 0..=levels.kept.highest {
                for (depth, calls) in calls.iter().enumerate() {
                    let cells = all(&levels, level, depth);
                    let mut rest = calls.as_slice();
                    for cell in &cells {
                        let (merged, behind) = rest.split_at(cell.count as usize);
                        rest = behind;
                        assert_eq!((cell.from, cell.to()), (merged[0].from, merged.last().unwrap().to()));
                        let is_long = |call: &Cell| call.to() - call.from >= width(level);
                        if merged.len() == 1 {
                            assert_eq!(*cell, merged[0], "level {level}");
                        } else {
                            assert!(cell.to() - cell.from <= width(level) && level > 0);
                            assert!(!merged.iter().any(is_long));
                            let was = merged.iter().any(|call| call.bits() & bits::UNWOUND != 0);
                            assert_eq!(cell.bits() & bits::UNWOUND != 0, was);
                            assert!(merged.iter().any(|call| call.function == cell.function));
                        }
                    }
                    assert!(rest.is_empty(), "level {level}: {} calls are missing", rest.len());
                    // As many as pixels of this width, a few times over.
                    let last = calls.last().unwrap().to();
                    assert!(cells.len() as u64 <= 4 * (last / width(level) + 2));
                }
            }
        }
    }

    #[test]
    fn dropping_levels_leaves_the_others_as_they_are() {
        let calls = calls(3, 3000);
        let whole = levels(&calls, 0);
        // Some are dropped while calls are added.
        let mut dropped = Levels::new(calls.iter().map(|of| of.last().unwrap().to()).max().unwrap(), 0);
        for at in 0..3000 {
            for (depth, calls) in calls.iter().enumerate() {
                dropped.add(depth, calls[at]);
            }
            if at % 900 == 899 {
                dropped.drop_lowest();
            }
            if at == 2000 {
                let spill = Arc::new(Spill::new(1 << 20).unwrap());
                dropped.spill(&spill);
                assert!(spill.bytes() > 0);
            }
        }
        assert_eq!(dropped.lowest(), 3);
        assert!(dropped.bytes() < whole.bytes());
        let count = |cells: &[Cell]| cells.iter().map(|cell| u64::from(cell.count)).sum::<u64>();
        for level in 3..=whole.kept.highest {
            for depth in 0..calls.len() {
                let (one, other) = (all(&whole, level, depth), all(&dropped, level, depth));
                assert_eq!(count(&one), count(&other));
                let long = |cells: &[Cell]| {
                    let is_long = |cell: &&Cell| cell.count == 1 && cell.to() - cell.from >= width(level);
                    cells.iter().filter(is_long).copied().collect::<Vec<_>>()
                };
                assert!(long(&one) == long(&other), "level {level}, depth {depth}");
            }
        }
    }

    #[test]
    fn a_window_has_what_touches_it() {
        let calls = calls(5, 2000);
        let levels = levels(&calls, 0);
        let mut rng = Rng::new(9);
        for _ in 0..200 {
            let from = rng.below(calls[0].last().unwrap().to());
            let to = from + rng.below(1 << 20);
            for level in [0, 3, 6] {
                let mut found = Vec::new();
                levels.cells(level, from, to, &mut |depth, cell| found.push((depth, cell)));
                let touches = |cell: &Cell| cell.to() >= from && cell.from <= to;
                let direct = (0..calls.len()).flat_map(|depth| {
                    all(&levels, level, depth).into_iter().filter(touches).map(move |cell| (depth, cell))
                });
                assert_eq!(found, direct.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn recursion_of_any_depth_takes_little_memory() {
        let mut levels = Levels::new(1 << 30, 0);
        for depth in (0..100_000_usize).rev() {
            levels.add(depth, Cell::call(depth as u64, (1 << 21) - depth as u64, 1, 0));
        }
        assert_eq!(levels.depths(), 100_000);
        assert_eq!(levels.find(99_999, 1 << 20).unwrap().from, 99_999);
        levels.add(DEPTH_MAX, Cell::call(0, 1, 1, 0));
        assert_eq!(levels.too_deep, 1);
    }
}
