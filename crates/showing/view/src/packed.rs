//! Cells of one depth in the order of time, packed: about eight bytes each. Blocks of them lie in
//! memory or in a file.

use crate::cell::Cell;
use crate::spill::Spill;

/// Cells that are packed together, and read together.
const BLOCK: usize = 256;

/// Cells in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    blocks: Vec<Block>,
    /// Those that are too few for a block.
    tail: Vec<Cell>,
}

#[derive(Debug)]
struct Block {
    from: u64,
    to: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Box<[u8]>),
    File { at: u64, length: u32 },
}

impl Block {
    fn bytes(&self) -> usize {
        let packed = if let Place::Memory(packed) = &self.place { packed.len() } else { 0 };
        size_of::<Block>() + packed
    }
}

impl Packed {
    /// Adds a cell behind all others. `bytes` counts what is in memory.
    #[inline]
    pub fn push(&mut self, cell: Cell, spill: Option<&Spill>, bytes: &mut usize) {
        if self.tail.capacity() == 0 {
            // Deep recursion has many levels of one cell.
            self.tail.reserve_exact(1);
        }
        self.tail.push(cell);
        *bytes += size_of::<Cell>();
        if self.tail.len() == BLOCK {
            self.pack(spill, bytes);
        }
    }

    #[cold]
    fn pack(&mut self, spill: Option<&Spill>, bytes: &mut usize) {
        let Some(first) = self.tail.first() else { return };
        let from = first.from;
        let (mut before, mut packed) = (from, Vec::with_capacity(BLOCK * 10));
        for cell in &self.tail {
            put(&mut packed, zigzag(cell.from.wrapping_sub(before)));
            put(&mut packed, cell.length());
            put(&mut packed, u64::from(cell.function.wrapping_add(1)) << 1 | u64::from(cell.bits() != 0));
            put(&mut packed, u64::from(cell.count));
            if cell.bits() != 0 {
                packed.push(cell.bits());
            }
            before = cell.to();
        }
        *bytes -= self.tail.len() * size_of::<Cell>();
        self.tail.clear();
        let block = Block { from, to: before, place: place(packed.into_boxed_slice(), spill) };
        *bytes += block.bytes();
        self.blocks.push(block);
    }

    /// Moves what it can to a file.
    pub fn spill(&mut self, spill: &Spill, bytes: &mut usize) {
        for block in &mut self.blocks {
            *bytes -= block.bytes();
            if let Place::Memory(packed) = &mut block.place {
                block.place = place(std::mem::take(packed), Some(spill));
            }
            *bytes += block.bytes();
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).sum::<usize>() + self.tail.len() * size_of::<Cell>()
    }

    /// Passes the cells that touch a window, in the order of time.
    pub fn within(&self, from: u64, to: u64, spill: Option<&Spill>, out: &mut impl FnMut(Cell)) {
        let touches = |cell: &Cell| cell.to() >= from && cell.from <= to;
        let first = self.blocks.partition_point(|block| block.to < from);
        let blocks = self.blocks.get(first..).unwrap_or_default();
        let mut read = Vec::new();
        for block in blocks.iter().take_while(|block| block.from <= to) {
            let packed = match (&block.place, spill) {
                (Place::Memory(packed), _) => packed,
                (Place::File { at, length }, Some(spill)) => {
                    spill.read(*at, *length as usize, &mut read);
                    read.as_slice()
                }
                (Place::File { .. }, None) => continue,
            };
            Unpacker { packed, before: block.from }.filter(touches).for_each(&mut *out);
        }
        let first = self.tail.partition_point(|cell| cell.to() < from);
        let tail = self.tail.get(first..).unwrap_or_default();
        tail.iter().take_while(|cell| cell.from <= to).for_each(|cell| out(*cell));
    }
}

/// Where packed cells lie: in the file, as long as it takes them.
fn place(packed: Box<[u8]>, spill: Option<&Spill>) -> Place {
    match spill.and_then(|spill| spill.write(&packed)) {
        Some(at) => Place::File { at, length: packed.len() as u32 },
        None => Place::Memory(packed),
    }
}

/// The cells of a block.
struct Unpacker<'p> {
    packed: &'p [u8],
    /// When the cell before ends.
    before: u64,
}

impl Iterator for Unpacker<'_> {
    type Item = Cell;

    #[inline]
    fn next(&mut self) -> Option<Cell> {
        let from = self.before.wrapping_add(unzigzag(take(&mut self.packed)?));
        let to = from.wrapping_add(take(&mut self.packed)?);
        let function = take(&mut self.packed)?;
        let count = take(&mut self.packed)? as u32;
        let bits = if function & 1 == 0 {
            0
        } else {
            let (bits, rest) = self.packed.split_first()?;
            self.packed = rest;
            *bits
        };
        self.before = to;
        Some(Cell::call(from, to, ((function >> 1) as u32).wrapping_sub(1), bits).times(count))
    }
}

pub(crate) fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// LEB128.
#[inline]
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 || shift > 63 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use everycall_synth::Rng;

    use super::*;
    use crate::cell::SEVERAL;

    fn cells() -> Vec<Cell> {
        let (mut rng, mut now) = (Rng::new(4), 0);
        let cell = |at: usize| {
            let scale = 1 << rng.below(40);
            // Some begin when the one before ends.
            let from = if at % 50 == 7 { now } else { now + rng.below(scale) };
            now = from + rng.below(scale);
            let function = if rng.one_in(9) { SEVERAL } else { rng.below(1 << 31) as u32 };
            let bits = if rng.one_in(5) { rng.below(64) as u8 } else { 0 };
            Cell::call(from, now, function, bits).times(1 + rng.below(1 << 31) as u32)
        };
        (0..2000).map(cell).collect()
    }

    fn all(packed: &Packed, from: u64, to: u64, spill: Option<&Spill>) -> Vec<Cell> {
        let mut all = Vec::new();
        packed.within(from, to, spill, &mut |cell| all.push(cell));
        all
    }

    #[test]
    fn cells_come_back_from_memory_and_from_a_file() {
        let cells = cells();
        let spill = Spill::new(1 << 20).expect("a folder for temporary files");
        for spilled_at in [None, Some(0), Some(1000), Some(2000)] {
            let (mut packed, mut bytes, mut file) = (Packed::default(), 0, None);
            for (index, cell) in cells.iter().enumerate() {
                if spilled_at == Some(index) {
                    packed.spill(&spill, &mut bytes);
                    file = Some(&spill);
                }
                packed.push(*cell, file, &mut bytes);
            }
            if spilled_at == Some(cells.len()) {
                packed.spill(&spill, &mut bytes);
                file = Some(&spill);
            }
            assert_eq!(bytes, packed.bytes());
            assert_eq!(bytes < 10_000, spilled_at.is_some(), "{bytes}");
            assert_eq!(all(&packed, 0, u64::MAX, file), cells);
            let last = cells[cells.len() - 1].to();
            let mut rng = Rng::new(1);
            for _ in 0..100 {
                let from = rng.below(last);
                let to = from + rng.below(last / 10);
                let touches = |cell: &&Cell| cell.to() >= from && cell.from <= to;
                let direct: Vec<Cell> = cells.iter().filter(touches).copied().collect();
                assert_eq!(all(&packed, from, to, file), direct);
            }
        }
    }

    #[test]
    fn a_full_file_leaves_cells_in_memory() {
        let spill = Spill::new(1 << 12).expect("a folder for temporary files");
        let (mut packed, mut bytes) = (Packed::default(), 0);
        let cells = cells();
        cells.iter().for_each(|cell| packed.push(*cell, Some(&spill), &mut bytes));
        assert!(spill.bytes() <= 1 << 12);
        assert!(bytes > 10_000, "{bytes}");
        assert_eq!(all(&packed, 0, u64::MAX, Some(&spill)), cells);
    }
}
