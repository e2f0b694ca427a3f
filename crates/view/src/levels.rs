//! Summary levels of one track: what is drawn at each width of a pixel, without reading events.
//!
//! Level `k` is for pixels of `4^k` ns or more. In each depth it holds, in the order of time, the
//! calls that took at least `4^k` ns, as they are; shorter ones are merged with their neighbours
//! into cells that span at most `4^k` ns. Level 0 holds every call as it is. A level has at most
//! four times as many cells per depth as there are pixels of its width, and each level is made from
//! the one below it while events are read. So if memory is short, the lowest level is dropped, and
//! all others stay as they are.

use std::mem::size_of;

/// Deeper calls aren't drawn. The timeline has none.
pub(crate) const DEPTH_MAX: usize = 1 << 19;
/// A cell of several calls, where none took the most time, or of none.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// Facts about a call, as bits.
pub(crate) mod bits {
    /// It began before the recorded range.
    pub const CUT_START: u8 = 1;
    /// It ended after the recorded range, or its end isn't known.
    pub const CUT_END: u8 = 2;
    /// It was left without an exit.
    pub const UNWOUND: u8 = 4;
    /// It ended by jumping into another function.
    pub const TAIL: u8 = 8;
    /// Its duration is an upper bound.
    pub const AT_MOST: u8 = 16;
    /// The call around it may not have made it.
    pub const CALLER_UNSURE: u8 = 32;
}

/// A call, or several neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// When the first call begins, in nanoseconds since the origin.
    pub from: u64,
    /// When the last one ends.
    to_and_bits: u64,
    /// The function; of several calls, the one that takes the most time, as far as that is known.
    pub function: u32,
    /// How many calls.
    pub count: u32,
}

/// Times are below this; the bits above hold [`bits`].
const TIME_MAX: u64 = (1 << 56) - 1;

impl Cell {
    /// One call.
    pub fn call(from: u64, to: u64, function: u32, bits: u8) -> Cell {
        let (from, to) = (from.min(TIME_MAX), to.min(TIME_MAX).max(from.min(TIME_MAX)));
        Cell { from, to_and_bits: to | u64::from(bits) << 56, function, count: 1 }
    }

    /// When the last call ends.
    pub fn to(&self) -> u64 {
        self.to_and_bits & TIME_MAX
    }

    /// Facts that hold for one of the calls.
    pub fn bits(&self) -> u8 {
        (self.to_and_bits >> 56) as u8
    }

    fn length(&self) -> u64 {
        self.to() - self.from
    }
}

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
        self.cell.to_and_bits = next.to().max(self.cell.to()) | u64::from(merged) << 56;
    }
}

/// One level of one depth.
#[derive(Clone, Debug, Default)]
struct Level {
    cells: Vec<Cell>,
    merger: Merger,
}

impl Level {
    #[inline]
    fn push(&mut self, cell: Cell) {
        if self.cells.capacity() == 0 {
            // Deep recursion has many levels of one cell.
            self.cells.reserve_exact(1);
        }
        self.cells.push(cell);
    }
}

/// The levels of one depth, from the lowest one that is kept.
#[derive(Clone, Debug, Default)]
struct Depth {
    levels: Vec<Level>,
}

/// The levels of a track.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    depths: Vec<Depth>,
    /// The lowest level that is kept.
    lowest: usize,
    /// No level above is made: nobody looks from so far.
    highest: usize,
    cells: usize,
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
        Levels { depths: Vec::new(), lowest: lowest.min(highest), highest, cells: 0, too_deep: 0 }
    }

    /// Bytes that the cells and the depths occupy.
    pub fn bytes(&self) -> usize {
        self.cells * size_of::<Cell>() + self.depths.len() * (self.highest + 1) * size_of::<Level>()
    }

    /// The lowest level that is kept.
    pub fn lowest(&self) -> usize {
        self.lowest
    }

    /// Whether there is a lower level that can be dropped.
    pub fn can_drop(&self) -> bool {
        self.lowest < self.highest
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
        of.add(self.lowest, self.lowest, self.highest, call, &mut self.cells);
    }

    /// Drops the lowest level.
    pub fn drop_lowest(&mut self) {
        if !self.can_drop() {
            return;
        }
        let (lowest, highest) = (self.lowest, self.highest);
        for depth in &mut self.depths {
            if depth.levels.is_empty() {
                continue;
            }
            let Level { cells, mut merger } = depth.levels.remove(0);
            self.cells -= cells.len();
            drop(cells);
            let mut last = None;
            merger.finish(&mut |cell| last = Some(cell));
            if let Some(cell) = last {
                depth.add(lowest + 1, lowest + 1, highest, cell, &mut self.cells);
            }
        }
        self.lowest += 1;
    }

    /// The level for pixels of `pixel_ns`; a lower one isn't kept if the second value is false.
    pub fn level_for(&self, pixel_ns: u64) -> (usize, bool) {
        let wanted = (0..=self.highest).rev().find(|level| width(*level) <= pixel_ns.max(1)).unwrap_or(0);
        (wanted.max(self.lowest), wanted >= self.lowest)
    }

    /// The cells of a level that lie in a window, for each depth in the order of time.
    pub fn cells(&self, level: usize, from: u64, to: u64, out: &mut impl FnMut(usize, Cell)) {
        self.cells_of(0..usize::MAX, level, from, to, out);
    }

    /// The same of some depths.
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
            let Some(index) = level.checked_sub(self.lowest) else { return };
            if let Some(level) = depth.levels.get(index) {
                let first = level.cells.partition_point(|cell| cell.to() < from);
                let cells = level.cells.get(first..).unwrap_or_default();
                cells.iter().take_while(|cell| cell.from <= to).for_each(|cell| out(at, *cell));
            }
            // What has not reached the level yet comes later, the part of the lowest level last.
            for level in depth.levels.iter().take(index + 1).rev() {
                let growing = level.merger.growing.as_ref().map(|growing| growing.cell);
                if let Some(cell) = growing.filter(|cell| cell.to() >= from && cell.from <= to) {
                    out(at, cell);
                }
            }
        }
    }

    /// The call at a depth that is open at a moment, as the lowest level knows it; of two that meet there, the later one.
    pub fn find(&self, depth: usize, at_ns: u64) -> Option<Cell> {
        let cells = &self.depths.get(depth)?.levels.first()?.cells;
        let index = cells.partition_point(|cell| cell.to() <= at_ns);
        let is_open = |cell: &Cell| cell.from <= at_ns && cell.to() >= at_ns;
        let later = cells.get(index).copied().filter(is_open);
        later.or_else(|| cells.get(index.checked_sub(1)?).copied().filter(is_open))
    }
}

impl Depth {
    #[inline]
    fn add(&mut self, lowest: usize, at: usize, highest: usize, cell: Cell, count: &mut usize) {
        let index = at - lowest;
        if index >= self.levels.len() {
            self.levels.push(Level::default());
        }
        let Some(level) = self.levels.get_mut(index) else { return };
        if at == 0 {
            level.push(cell);
            *count += 1;
            return if highest > 0 {
                self.add(lowest, 1, highest, cell, count)
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
                level.push(cell);
                *count += 1;
            }
            if at < highest {
                self.add(lowest, at + 1, highest, cell, count);
            }
        }
    }
}
