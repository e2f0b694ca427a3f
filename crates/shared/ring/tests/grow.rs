//! Requests to leave the oldest segments alone, by several processes.
#![cfg(not(loom))]

use everycall_ring::{GrowRequest, Pool};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

thread_local! {
    /// The time.
    static NOW: Cell<u64> = const { Cell::new(1 << 32) };
}

fn now() -> u64 {
    NOW.get()
}

fn pass(ticks: u64) {
    NOW.set(NOW.get() + ticks);
}

/// The parts of a pool that a request needs.
#[derive(Default)]
struct Memory {
    counts: [AtomicU32; 3],
    free: AtomicU64,
    grow_until: AtomicU64,
}

impl Memory {
    fn pool(&self) -> Pool<'_> {
        Pool {
            entries: &[],
            words: &[],
            base: 0,
            segment_words: 512,
            taken: &self.counts[0],
            free: &self.free,
            in_use: &self.counts[1],
            ring_segments: &self.counts[2],
            extra: 0,
            grow_until: &self.grow_until,
            room: None,
        }
    }
}

/// Whether threads that come to a segment's end now leave their oldest alone.
fn stands(pool: &Pool<'_>) -> bool {
    pool.grow_until.load(Relaxed) > now()
}

#[test]
fn the_first_request_to_end_leaves_the_others() {
    let memory = Memory::default();
    let pool = memory.pool();
    // The first request is for a shorter or a longer time.
    for (first, second) in [(10_000, 20_000), (20_000, 10_000), (10_000, 10_000)] {
        let one = GrowRequest::begin(&pool, now, first);
        let two = GrowRequest::begin(&pool, now, second);
        pass(1_000);
        drop(one);
        assert!(stands(&pool), "{first} {second}");
        pass(second - 1_500);
        assert!(stands(&pool), "{first} {second}: until the second one's time is over");
        drop(two);
        assert!(!stands(&pool), "{first} {second}: the last one takes it back");
        let many: Vec<GrowRequest<'_>> =
            (0..20).map(|number| GrowRequest::begin(&pool, now, 5_000 + number)).collect();
        for keep in many {
            assert!(stands(&pool));
            drop(keep);
        }
        assert!(!stands(&pool));
    }
}

#[test]
fn renewing_counts_once() {
    let memory = Memory::default();
    let pool = memory.pool();
    let mut one = GrowRequest::begin(&pool, now, 10_000);
    for _ in 0..300 {
        pass(5_000);
        one.renew(10_000);
        assert!(stands(&pool));
    }
    drop(one);
    assert!(!stands(&pool));
}

#[test]
fn dead_or_delayed_grow_requests_dont_affect_others() {
    let memory = Memory::default();
    let pool = memory.pool();
    std::mem::forget(GrowRequest::begin(&pool, now, 10_000));
    drop(GrowRequest::begin(&pool, now, 1_000));
    assert!(stands(&pool), "nobody knows that it died");
    pass(20_000);
    assert!(!stands(&pool), "its time is over");
    // One that was stopped until its time was over, while another one began.
    let mut late = GrowRequest::begin(&pool, now, 10_000);
    let later = GrowRequest::begin(&pool, now, 10_000);
    pass(20_000);
    let other = GrowRequest::begin(&pool, now, 10_000);
    drop(later);
    assert!(stands(&pool));
    late.renew(10_000);
    drop(late);
    assert!(stands(&pool));
    drop(other);
    assert!(!stands(&pool));
    // More than can be counted: the time ends it.
    let many: Vec<GrowRequest<'_>> = (0..300).map(|_| GrowRequest::begin(&pool, now, 10_000)).collect();
    let last = GrowRequest::begin(&pool, now, 10_000);
    drop(many);
    assert!(stands(&pool));
    drop(last);
    pass(20_000);
    assert!(!stands(&pool));
}
