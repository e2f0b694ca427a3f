//! Clearing many words in plain Rust: for model checkers, interpreters, and processors without an
//! instruction for it.

use crate::primitive::{AtomicU64, Ordering};

/// Stores zero into each word, in no particular order.
pub(crate) fn clear(words: &[AtomicU64]) {
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}
