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

fn words() -> &'static [AtomicU64] {
    let first = FIRST.load(Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: mapped by `set` with this size, and never unmapped.
    unsafe { core::slice::from_raw_parts(first, WORDS) }
}

fn place(id: u32) -> (usize, u64) {
    ((id / u64::BITS) as usize, 1 << (id % u64::BITS))
}

/// Sets the bits of all frames by what is selected. Returns their address; `None` if there is no
/// memory. The caller holds the module lock.
pub(crate) fn set(arena: &Arena) -> Option<u64> {
    if FIRST.load(Relaxed).is_null() {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let base = system::map(WORDS as u64 * 8, PROT_READ | PROT_WRITE, flags, -1)?;
        FIRST.store(base.cast(), Release);
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
    for (word, wanted) in words().iter().zip(wanted.bytes().as_chunks().0) {
        let wanted = u64::from_le_bytes(*wanted);
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
        match selection::wants_frame(name.name, name.file) {
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
