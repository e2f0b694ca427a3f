//! The path of a file that is read again later: the program may have changed its environment since.

use crate::sys::folder::FOLDER_MAX;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// A path; empty at first.
pub(crate) struct KeptPath {
    bytes: [AtomicU8; FOLDER_MAX],
    length: AtomicUsize,
}

impl KeptPath {
    pub(crate) const fn none() -> KeptPath {
        KeptPath { bytes: [const { AtomicU8::new(0) }; FOLDER_MAX], length: AtomicUsize::new(0) }
    }

    pub(crate) fn keep(&self, path: &[u8]) {
        for (place, byte) in self.bytes.iter().zip(path) {
            place.store(*byte, Relaxed);
        }
        self.length.store(path.len().min(FOLDER_MAX), Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Relaxed) == 0
    }

    pub(crate) fn read<'a>(&self, into: &'a mut [u8; FOLDER_MAX]) -> &'a [u8] {
        for (byte, place) in into.iter_mut().zip(&self.bytes) {
            *byte = place.load(Relaxed);
        }
        into.get(..self.length.load(Relaxed)).unwrap_or(&[])
    }
}
