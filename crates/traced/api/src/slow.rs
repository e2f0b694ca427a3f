//! Snapshots of scopes that took too long.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Snapshot, now, ticks_per_second};

/// The longest duration of scopes of one kind, shared by all of them, also between threads.
#[derive(Debug, Default)]
pub struct Slowest {
    ns: AtomicU64,
}

impl Slowest {
    /// Scopes that are shorter than this don't count.
    #[must_use]
    pub const fn new(at_least: Duration) -> Slowest {
        // No scope lasts for 584 years.
        Slowest { ns: AtomicU64::new(at_least.as_nanos() as u64) }
    }

    /// The longest duration so far.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Ordering::Relaxed))
    }

    /// Whether `ns` exceeds all durations before it. Records it.
    fn is_beaten_by(&self, ns: u64) -> bool {
        self.ns.fetch_max(ns, Ordering::Relaxed) < ns
    }
}

/// Writes a snapshot of the time that its scope took, if that was at least a threshold, or more
/// than in any scope with the same [`Slowest`] before.
///
/// ```
/// static SLOWEST: everycall::Slowest = everycall::Slowest::new(std::time::Duration::ZERO);
/// let _guard = everycall::SlowScope::slowest("slowest.ect", &SLOWEST);
/// ```
#[derive(Debug)]
pub struct SlowScope<'s> {
    start: u64,
    threshold_ns: u64,
    slowest: Option<&'s Slowest>,
    path: PathBuf,
}

impl<'s> SlowScope<'s> {
    /// For scopes of at least this duration; each replaces the file.
    #[must_use = "the scope ends where this is dropped"]
    pub fn longer(path: impl AsRef<Path>, threshold: Duration) -> SlowScope<'static> {
        let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        SlowScope { start: now(), threshold_ns, slowest: None, path: path.as_ref().to_owned() }
    }

    /// For the slowest scope so far.
    #[must_use = "the scope ends where this is dropped"]
    pub fn slowest(path: impl AsRef<Path>, slowest: &'s Slowest) -> SlowScope<'s> {
        let threshold_ns = slowest.ns.load(Ordering::Relaxed);
        SlowScope { start: now(), threshold_ns, slowest: Some(slowest), path: path.as_ref().to_owned() }
    }
}

impl Drop for SlowScope<'_> {
    fn drop(&mut self) {
        let ticks = now().saturating_sub(self.start);
        // No counter is slower than half a tick in a nanosecond: the rate is only needed for scopes
        // that may be too slow.
        if self.start == 0 || ticks < self.threshold_ns / 2 {
            return;
        }
        let ns = (u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second().max(1))) as u64;
        let is_slow = self.slowest.map_or(ns >= self.threshold_ns, |slowest| slowest.is_beaten_by(ns));
        if is_slow {
            // The program continues without it: an error can't be reported here.
            let _ = Snapshot::take_since(self.start).and_then(|snapshot| snapshot.write(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_longer_scopes_beat_the_slowest() {
        let slowest = Slowest::new(Duration::from_nanos(10));
        assert!(!slowest.is_beaten_by(10) && slowest.is_beaten_by(11) && !slowest.is_beaten_by(11));
        assert_eq!(slowest.duration(), Duration::from_nanos(11));
    }
}
