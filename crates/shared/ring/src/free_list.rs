//! Lock-free lists of free indices.

use crate::primitive::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// A list of indices. The head is the first index plus 1 (0: empty), with a counter of changes in
/// the upper half, so that a changed list is never mistaken for the one seen before (ABA problem).
/// Each element names the next one in the same way; the caller stores these links.
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

    /// Removes the first element. `next` returns an index's link; if another thread has taken that
    /// index meanwhile, any value will do. `None` if the list is empty.
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

    /// Adds `index`, which must be on no list; `set_next` stores its link.
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
