//! Lists of what nobody has, which anybody takes from at any time.

use crate::primitive::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// A list of indices. Its head is index plus 1 of the first, 0 where there is none, and a counter of changes in the upper half, so that nobody
/// takes a list for the one that he saw before. Each one on it names the next in the same way, wherever its owner keeps that.
#[derive(Clone, Copy, Debug)]
pub struct FreeList<'a> {
    head: &'a AtomicU64,
}

impl<'a> FreeList<'a> {
    /// The list with that head.
    #[must_use]
    pub fn new(head: &'a AtomicU64) -> FreeList<'a> {
        FreeList { head }
    }

    /// Takes the first one off. `next` tells what an index names as its next one; somebody else may have it by then, and any answer will do.
    /// `None` where there is none.
    #[must_use]
    pub fn take(self, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let mut head = self.head.load(Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            match self.head.compare_exchange_weak(head, changed(head, next(index)?), AcqRel, Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Puts `index` on, which is on no list; `set_next` keeps what it names as its next one.
    pub fn give(self, index: u32, set_next: impl Fn(u32)) {
        let mut head = self.head.load(Relaxed);
        loop {
            set_next(head as u32);
            match self.head.compare_exchange_weak(head, changed(head, index + 1), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The list's next state.
fn changed(head: u64, first: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(first)
}
