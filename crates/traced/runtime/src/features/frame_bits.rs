//! A bit for each frame by id: whether it is recorded. For the hooks of frames, where not all are.
#![allow(unsafe_code)] // Bits that are mapped here.

use crate::state::arena::Arena;
use crate::state::frames::{self, Name};
use crate::state::selection;
use crate::sys::block::Block;
use crate::sys::system::{self, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::frame::IDS;

const WORDS: usize = IDS as usize / u64::BITS as usize;

/// [`WORDS`] words; null as long as all frames are recorded. Never unmapped. A forked child has its
/// parent's.
static FIRST: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Likewise, those that are off for the budget; null as long as none ever was.
static OVER_BUDGET: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

fn words() -> &'static [AtomicU64] {
    words_of(&FIRST)
}

fn words_of(place: &AtomicPtr<AtomicU64>) -> &'static [AtomicU64] {
    let first = place.load(Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: mapped by `map` with this size, and never unmapped.
    unsafe { core::slice::from_raw_parts(first, WORDS) }
}

/// Maps the words if they aren't there. Returns false without memory.
fn map(place: &AtomicPtr<AtomicU64>) -> bool {
    if place.load(Relaxed).is_null() {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let Some(base) = system::map(WORDS as u64 * 8, PROT_READ | PROT_WRITE, flags, -1) else {
            return false;
        };
        place.store(base.cast(), Release);
    }
    true
}

/// Takes a frame off for the budget, or back. Returns false without memory. The caller holds the
/// module lock.
pub(crate) fn set_over_budget(id: u32, is_off: bool) -> bool {
    if is_off && !map(&OVER_BUDGET) {
        return false;
    }
    let (index, bit) = place(id);
    if let Some(word) = words_of(&OVER_BUDGET).get(index) {
        match is_off {
            true => word.fetch_or(bit, Relaxed),
            false => word.fetch_and(!bit, Relaxed),
        };
    }
    true
}

/// Whether frames may be off for the budget.
pub(crate) fn has_budget() -> bool {
    !OVER_BUDGET.load(Relaxed).is_null()
}

/// Whether a frame is off for the budget.
fn is_over_budget(id: u32) -> bool {
    let (index, bit) = place(id);
    words_of(&OVER_BUDGET).get(index).is_some_and(|word| word.load(Relaxed) & bit != 0)
}

fn place(id: u32) -> (usize, u64) {
    ((id / u64::BITS) as usize, 1 << (id % u64::BITS))
}

/// Sets the bits of all frames by what is selected. Returns their address; `None` if there is no
/// memory. The caller holds the module lock.
pub(crate) fn set(arena: &Arena) -> Option<u64> {
    if !map(&FIRST) {
        return None;
    }
    let mut wanted = Block::new(WORDS as u64 * 8)?;
    if selection::wants_frame(&[], &[]) {
        wanted.bytes_mut().fill(u8::MAX);
    }
    frames::each(arena, |name| {
        let (byte, bit) = ((name.id / 8) as usize, 1_u8 << (name.id % 8));
        if let Some(byte) = wanted.bytes_mut().get_mut(byte) {
            *byte = if selection::wants_frame(name.name, name.file) { *byte | bit } else { *byte & !bit };
        }
    });
    // Word by word, so what stays selected is selected at any time.
    let mut over_budget = words_of(&OVER_BUDGET).iter();
    for (word, wanted) in words().iter().zip(wanted.bytes().as_chunks().0) {
        let over_budget = over_budget.next().map_or(0, |word| word.load(Relaxed));
        let wanted = u64::from_le_bytes(*wanted) & !over_budget;
        if word.load(Relaxed) != wanted {
            word.store(wanted, Relaxed);
        }
    }
    Some(words().as_ptr() as u64)
}

/// An id was named. The caller holds the module lock.
pub(crate) fn look_at(name: &Name<'_>) {
    let (index, bit) = place(name.id);
    if let Some(word) = words().get(index) {
        match selection::wants_frame(name.name, name.file) && !is_over_budget(name.id) {
            true => word.fetch_or(bit, Relaxed),
            false => word.fetch_and(!bit, Relaxed),
        };
    }
}

/// Whether the bit of an id is set.
pub(crate) fn is_set(id: u32) -> bool {
    let (index, bit) = place(id);
    words().get(index).is_some_and(|word| word.load(Relaxed) & bit != 0)
}
