//! A bit for each byte of a module: whether the function there is recorded. For hooks that are
//! always called, whose sites can't be switched.
#![allow(unsafe_code)] // Bits that are mapped here.

use crate::sys::block::Block;
use crate::sys::image::Image;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The bits of a module. They change while the module lock is held; hooks read them at any time. A
/// forked child has its parent's.
pub(crate) struct Bits {
    /// Null: there are none.
    first: AtomicPtr<AtomicU64>,
    /// How many words; behind them are as many others: see [`Bits::set_second`].
    count: AtomicU64,
}

impl Bits {
    pub(crate) const fn none() -> Bits {
        Bits { first: AtomicPtr::new(core::ptr::null_mut()), count: AtomicU64::new(0) }
    }

    /// Sets the bits of what is selected in a module (begins and ends of image addresses), without
    /// those between `except` (of process addresses), and clears all others. Returns their address;
    /// `None` if there is no memory.
    pub(crate) fn set(
        &self,
        image: &Image,
        selected: impl Iterator<Item = (u64, u64)>,
        except: impl Iterator<Item = (u64, u64)>,
    ) -> Option<u64> {
        if self.first.load(Relaxed).is_null() {
            let count = (image.end - image.start).div_ceil(64);
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            let base = system::map(2 * count * 8, PROT_READ | PROT_WRITE, flags, -1)?;
            self.count.store(count, Relaxed);
            self.first.store(base.cast(), Release);
        }
        let words = self.words();
        let mut wanted = Block::new(words.len() as u64 * 8)?;
        let begin = image.start.wrapping_sub(image.base);
        for (first, end) in selected {
            let first = first.max(begin) - begin;
            fill(wanted.bytes_mut(), first, end.saturating_sub(begin), true);
        }
        for (first, end) in except {
            let offset = |address: u64| address.saturating_sub(image.start);
            fill(wanted.bytes_mut(), offset(first), offset(end), false);
        }
        replace(words, &wanted);
        Some(words.as_ptr() as u64)
    }

    /// The module is about to be unloaded.
    pub(crate) fn forget(&self) {
        let first = self.first.swap(core::ptr::null_mut(), Relaxed);
        if !first.is_null() {
            system::unmap(first.cast(), 2 * self.count.load(Relaxed) * 8);
        }
    }

    /// Sets the bits of functions (begins and ends of image addresses) in the second half, and
    /// clears the others: see [`everycall_hooks::CAPTURES`]. The bits are there. Without memory,
    /// they stay as they are.
    pub(crate) fn set_second(&self, image: &Image, functions: impl Iterator<Item = (u64, u64)>) {
        let count = self.words().len();
        let first = self.first.load(Acquire);
        let Some(mut wanted) = Block::new(count as u64 * 8).filter(|_| count > 0) else { return };
        let begin = image.start.wrapping_sub(image.base);
        for (first, end) in functions {
            fill(wanted.bytes_mut(), first.max(begin) - begin, end.saturating_sub(begin), true);
        }
        // SAFETY: mapped by `set`, as many as in the first half.
        replace(unsafe { core::slice::from_raw_parts(first.wrapping_add(count), count) }, &wanted);
    }

    fn words(&self) -> &[AtomicU64] {
        let first = self.first.load(Acquire);
        if first.is_null() {
            return &[];
        }
        // SAFETY: mapped by `set`, which stores the count first.
        unsafe { core::slice::from_raw_parts(first, self.count.load(Relaxed) as usize) }
    }
}

/// Word by word, so what stays selected is selected at any time.
fn replace(words: &[AtomicU64], wanted: &Block) {
    for (word, wanted) in words.iter().zip(wanted.bytes().as_chunks().0) {
        let wanted = u64::from_le_bytes(*wanted);
        if word.load(Relaxed) != wanted {
            word.store(wanted, Relaxed);
        }
    }
}

/// Sets or clears the bits from `first` up to `end`, which may lie beyond the last one.
fn fill(bytes: &mut [u8], first: u64, end: u64, to: bool) {
    let bits = |byte: u64| {
        let (low, high) = (first.max(byte * 8) - byte * 8, end.min(byte * 8 + 8) - byte * 8);
        ((1_u16 << high) - (1_u16 << low)) as u8
    };
    let end_byte = end.div_ceil(8).min(bytes.len() as u64);
    for byte in first / 8..end_byte {
        if let Some(place) = bytes.get_mut(byte as usize).filter(|_| first < end) {
            let bits = bits(byte);
            *place = if to { *place | bits } else { *place & !bits };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_filled_from_and_up_to_any_place() {
        for first in 0..40 {
            for end in 0..40_u64 {
                let mut bytes = [0; 4];
                fill(&mut bytes, first, end, true);
                let is_set = |bit: u64| bytes[bit as usize / 8] >> (bit % 8) & 1 != 0;
                assert!((0..32).all(|bit| is_set(bit) == (first..end).contains(&bit)), "{first} {end}");
                let mut bytes = [0xff; 4];
                fill(&mut bytes, first, end, false);
                let is_set = |bit: u64| bytes[bit as usize / 8] >> (bit % 8) & 1 != 0;
                assert!((0..32).all(|bit| is_set(bit) != (first..end).contains(&bit)), "{first} {end}");
            }
        }
    }
}
