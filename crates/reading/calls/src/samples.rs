//! Samples of the kernel's counts for a thread.

/// Moments of a thread's samples, with its CPU time.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// In the order of time.
    pub all: Vec<Sample>,
}

/// A reading of the counts.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Between these two moments, they were read.
    pub before: u64,
    /// The later of them.
    pub after: u64,
    /// CPU time since the first sample, in nanoseconds. It lags behind while the thread runs.
    pub ran: u64,
    /// CPU time at the next sample at which it had changed: it lags behind no more than that.
    pub ran_next: u64,
}

impl Samples {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The samples around a time between two others: whatever began and ended it lies within them.
    #[must_use]
    pub fn around(&self, from: u64, to: u64) -> (u64, u64) {
        let first = self.all.partition_point(|sample| sample.after < from).checked_sub(1);
        let last = self.all.partition_point(|sample| sample.before <= to);
        let begin = first.and_then(|first| self.all.get(first)).map_or(from, |sample| sample.before);
        (begin, self.all.get(last).map_or(to, |sample| sample.after))
    }

    /// Nanoseconds that the thread was off the CPU from `from` to `to`, at most; `None` if there
    /// are no samples around that time.
    #[must_use]
    pub fn off_at_most(&self, from: u64, to: u64) -> Option<u64> {
        let first = self.all.partition_point(|sample| sample.after <= from).checked_sub(1)?;
        let last = self.all.partition_point(|sample| sample.before < to);
        let (first, last) = (self.all.get(first)?, self.all.get(last)?);
        let ran = last.ran.saturating_sub(first.ran_next);
        Some(last.after.saturating_sub(first.before).saturating_sub(ran))
    }
}
