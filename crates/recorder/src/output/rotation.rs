//! When a stream goes on in another file.

use std::io;
use std::time::{Duration, Instant};

/// Up to the size of a file, so much of it is stored at once at most, as a power of two: it becomes no larger than that by this much.
const FILE_SHARE: u32 = 4;

/// Puts the next file in the place of the one that ended.
pub type NextFile<W> = Box<dyn FnMut(&mut W) -> io::Result<()>>;

/// When a stream goes on in another file, and how.
pub struct Rotation<W> {
    /// Bytes after which it does.
    pub size: u64,
    /// Time after which it does.
    pub age: Duration,
    /// Puts the next file in the place of the one that ended.
    pub next: NextFile<W>,
}

impl<W> Rotation<W> {
    /// Whether a file of `size` bytes that began at `begun` has to end.
    pub(crate) fn is_due(&self, size: u64, begun: Instant) -> bool {
        size >= self.size || begun.elapsed() >= self.age
    }

    /// Bytes of events that are stored at once at most, into a file of `size` bytes: few where its size is nearly reached.
    pub(crate) fn pass_limit(&self, size: u64) -> u64 {
        self.size.saturating_sub(size).max(self.size >> FILE_SHARE)
    }
}
