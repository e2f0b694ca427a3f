//! Memory of the process, wherever its bytes are in the core.

use std::io;

use everycall_reader::ReadAt;

use crate::elf::Load;

/// Bytes of an event word.
const WORD: u64 = everycall_format::event::WORD_SIZE as u64;

/// A range of the process's memory. Parts that the core omits, because they were never touched or
/// because the core is truncated, read as zeros.
pub(crate) struct Window<'a> {
    file: &'a dyn ReadAt,
    /// By address.
    loads: &'a [Load],
    base: u64,
    size: u64,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn ReadAt, loads: &'a [Load], base: u64, size: u64) -> Window<'a> {
        Window { file, loads, base, size: size.min(u64::MAX - base) }
    }

    /// The bytes of `load` that are in the file, without a truncated word: half an event would be a
    /// wrong one.
    fn there(&self, load: &Load) -> io::Result<u64> {
        let available = self.file.size()?.saturating_sub(load.offset);
        Ok(if available < load.size { available & !(WORD - 1) } else { load.size })
    }

    /// Bytes in this range that the core should contain and that are beyond the end of its file.
    pub fn cut(&self) -> io::Result<u64> {
        let end = self.base + self.size;
        let mut missing = 0_u64;
        for load in self.loads {
            let first = load.address.saturating_add(self.there(load)?).max(self.base);
            let last = load.address.saturating_add(load.size).min(end);
            missing = missing.saturating_add(last.saturating_sub(first));
        }
        Ok(missing)
    }
}

impl ReadAt for Window<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset).min(buffer.len() as u64);
        if left == 0 {
            return Ok(0);
        }
        let address = self.base + offset;
        let behind = self.loads.partition_point(|load| load.address <= address);
        // Up to the next one; in a hostile file they may overlap.
        let until = self.loads.get(behind).map_or(u64::MAX, |next| next.address);
        let mut count = left.min(until - address);
        let load = behind.checked_sub(1).and_then(|index| self.loads.get(index));
        if let Some(load) = load.filter(|load| address - load.address < load.size) {
            let into = address - load.address;
            count = count.min(load.size - into);
            let there = self.there(load)?.saturating_sub(into).min(count);
            if there > 0 {
                return self
                    .file
                    .read_full_at(load.offset.saturating_add(into), &mut buffer[..there as usize]);
            }
        }
        buffer[..count as usize].fill(0);
        Ok(count as usize)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}
