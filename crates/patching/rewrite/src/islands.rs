//! Places away from the module that jumps with a chosen part of their displacement lead to.

use std::collections::BTreeSet;

use crate::image::{FileKind, Image};
use crate::layout::{PAGE, region_below};
use crate::windows::{SLOT, Window};

/// Reach of a displacement of 32 bits, with a reserve for the rest.
const REACH: i64 = 0x6000_0000;
/// Targets that are tried.
const CHOICES: i64 = 4096;
/// Kept clear of below a library, where others may be.
const LIBRARY_GAP: i64 = 64 << 20;
/// Kept clear of above an executable, for its heap.
const HEAP_GAP: i64 = 1 << 30;
/// The lowest address that a program can map.
const LOWEST: i64 = 0x1_0000;

/// Taken addresses.
pub(crate) struct Islands {
    taken: BTreeSet<i64>,
    image: (i64, i64),
    /// Where the trampolines may be.
    region: (i64, i64),
}

impl Islands {
    pub(crate) fn new(image: &Image<'_>) -> Self {
        let (low, high) = (image.range.0 & !(PAGE - 1), image.range.1.saturating_add(PAGE - 1) & !(PAGE - 1));
        Self { taken: BTreeSet::new(), image: (low as i64, high as i64), region: region_below(image) }
    }

    /// Whether a page there can be had.
    fn is_mappable(&self, kind: FileKind, at: i64) -> bool {
        let (low, high) = self.image;
        let end = at + PAGE as i64;
        let is_in_reach = at > low - REACH && end < high + REACH;
        let is_clear = end < self.region.0 || at >= self.region.1;
        let is_above = at > high + HEAP_GAP;
        let is_outside = match kind {
            // The first 64 KiB are the kernel's and the null pointer's.
            FileKind::Fixed => at >= LOWEST && (end < low || is_above),
            FileKind::Pie => end < low || is_above,
            FileKind::Library => end < low - LIBRARY_GAP,
        };
        is_in_reach && is_clear && is_outside
    }

    /// A target for `jmp rel32` at a window's start whose displacement ends with the bytes behind
    /// the window.
    pub(crate) fn pun(&mut self, image: &Image<'_>, window: Window) -> Option<i64> {
        let free = u32::try_from(window.len().checked_sub(1)?).ok()?;
        let bytes = image.bytes(window.start + 1, window.start + SLOT);
        let fixed = i64::from(i32::from_le_bytes(bytes.try_into().ok()?));
        let step = 1_i64.checked_shl(8 * free).filter(|step| *step < 1 << 32)?;
        let base = (fixed & !(step - 1)) + (window.start + SLOT) as i64;
        let choices = step.min(CHOICES);
        let candidates = (0..choices).map(|choice| base + choice * (step / choices));
        let slot = SLOT as i64;
        let target = candidates.into_iter().find(|&target| {
            let is_free = self.taken.range(target - slot + 1..target + slot).next().is_none();
            let is_whole = target & (PAGE as i64 - 1) <= PAGE as i64 - slot;
            is_free && is_whole && self.is_mappable(image.kind, target)
        })?;
        self.taken.insert(target);
        Some(target)
    }
}
