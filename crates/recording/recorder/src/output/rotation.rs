//! When a stream continues in another file.

use std::io;
use std::time::{Duration, Instant};

/// Binary logarithm of the fraction of a file's size that is written at once, which limits by how
/// much the file may exceed its size.
const FILE_SHARE: u32 = 4;

/// Replaces the output by the next file.
pub type NextFile<W> = Box<dyn FnMut(&mut W) -> io::Result<()>>;

/// When and how a stream continues in another file.
pub struct Rotation<W> {
    /// Size of a file in bytes.
    pub size: u64,
    /// Time that a file covers.
    pub age: Duration,
    /// Replaces the output by the next file.
    pub next: NextFile<W>,
}

impl<W> Rotation<W> {
    /// Whether a file of `size` bytes that began at `begun` must end.
    pub(crate) fn is_due(&self, size: u64, begun: Instant) -> bool {
        size >= self.size || begun.elapsed() >= self.age
    }

    /// The largest number of event bytes to write at once into a file of `size` bytes: few if its
    /// size limit is near.
    pub(crate) fn pass_limit(&self, size: u64) -> u64 {
        self.size.saturating_sub(size).max(self.size >> FILE_SHARE)
    }
}
