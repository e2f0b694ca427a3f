//! The request to all threads to leave their oldest segments alone for a moment: somebody is about to hold them.
//!
//! Several may ask at the same time, and each wants the promise for as long as it needs it; whoever ends first must not
//! take it from the others. So the arena's `keep_until` says both until when, and how many ask: its low byte counts the askers, and as a time
//! its value is wrong by less than 256 ticks. The last one takes the request back. An asker that dies is never
//! uncounted: then nobody takes the request back, and the time ends it.

use crate::pool::Pool;
use crate::primitive::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

/// The byte that counts askers. Where it is full, nobody takes the request back.
const ASKERS: u64 = 0xff;

/// A request; taken back when dropped.
#[derive(Debug)]
pub struct Keep<'a> {
    field: &'a AtomicU64,
    until: u64,
    ticks: fn() -> u64,
}

impl<'a> Keep<'a> {
    /// Asks for `length` ticks from now, by the clock `ticks`.
    #[must_use]
    pub fn begin(pool: &Pool<'a>, ticks: fn() -> u64, length: u64) -> Keep<'a> {
        let mut keep = Keep { field: pool.keep_until, until: 0, ticks };
        keep.renew(length);
        keep
    }

    /// Asks for `length` ticks from now on.
    pub fn renew(&mut self, length: u64) {
        let now = (self.ticks)();
        // One that ran out isn't counted any more where another began since.
        let is_counted = self.until > now;
        self.until = now.saturating_add(length) & !ASKERS;
        let until = self.until;
        let asked = |value: u64| {
            let (others, askers) = if value > now { (value & !ASKERS, value & ASKERS) } else { (0, 0) };
            let more = if is_counted && askers > 0 { 0 } else { 1 };
            Some(others.max(until) | (askers + more).min(ASKERS))
        };
        let _ = self.field.fetch_update(AcqRel, Relaxed, asked);
    }
}

impl Drop for Keep<'_> {
    fn drop(&mut self) {
        let (until, ticks) = (self.until, self.ticks);
        let one_less = |value: u64| {
            // Where ours ran out, those who are counted may have begun since.
            let is_counted = until > ticks() && value & ASKERS != ASKERS;
            let askers = (value & ASKERS).checked_sub(1).filter(|_| is_counted)?;
            Some(if askers == 0 { 0 } else { value & !ASKERS | askers })
        };
        let _ = self.field.fetch_update(AcqRel, Relaxed, one_less);
    }
}
