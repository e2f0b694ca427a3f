//! The request to all threads not to overwrite their oldest segments for a moment, because a
//! process is about to pin them.
//!
//! Several processes may request this at the same time, each for its own duration. The first to
//! finish must not end the requests of the others. So the arena's `grow_until` holds both the time
//! and the number of requests: its low byte is the number, which makes the time wrong by less than
//! 256 ticks. The last requester withdraws the request. A requester that dies stays counted: then
//! the request expires.

use crate::pool::Pool;
use crate::primitive::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

/// The byte that counts requests. At its highest value, the requests only expire.
const REQUESTS: u64 = 0xff;

/// A request; withdrawn when dropped.
#[derive(Debug)]
pub struct GrowRequest<'a> {
    field: &'a AtomicU64,
    until: u64,
    ticks: fn() -> u64,
}

impl<'a> GrowRequest<'a> {
    /// Requests `length` ticks from now, by the clock `ticks`.
    #[must_use]
    pub fn begin(pool: &Pool<'a>, ticks: fn() -> u64, length: u64) -> GrowRequest<'a> {
        let mut request = GrowRequest { field: pool.grow_until, until: 0, ticks };
        request.renew(length);
        request
    }

    /// Requests `length` ticks from now on.
    pub fn renew(&mut self, length: u64) {
        let now = (self.ticks)();
        // An expired request is no longer counted if another one began since.
        let is_counted = self.until > now;
        self.until = now.saturating_add(length) & !REQUESTS;
        let until = self.until;
        let asked = |value: u64| {
            let (others, requests) = if value > now { (value & !REQUESTS, value & REQUESTS) } else { (0, 0) };
            let more = if is_counted && requests > 0 { 0 } else { 1 };
            Some(others.max(until) | (requests + more).min(REQUESTS))
        };
        let _ = self.field.fetch_update(AcqRel, Relaxed, asked);
    }
}

impl Drop for GrowRequest<'_> {
    fn drop(&mut self) {
        let (until, ticks) = (self.until, self.ticks);
        let one_less = |value: u64| {
            // If ours has expired, the counted ones may have begun since.
            let is_counted = until > ticks() && value & REQUESTS != REQUESTS;
            let requests = (value & REQUESTS).checked_sub(1).filter(|_| is_counted)?;
            Some(if requests == 0 { 0 } else { value & !REQUESTS | requests })
        };
        let _ = self.field.fetch_update(AcqRel, Relaxed, one_less);
    }
}
