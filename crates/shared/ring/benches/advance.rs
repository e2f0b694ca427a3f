//! The cost of advancing to the next segment of a warm ring.
//!
//! `cargo bench -p everycall-ring`; nanoseconds per segment, and per word of it. Medians of 31; pin
//! it: `taskset -c 1`.

use everycall_ring::{Advance, Control, Pool, Ring, SegmentEntry, Shortage, Size};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const SEGMENTS: usize = 16;
const SEGMENT_WORDS: usize = 8 << 10;
const ROUNDS: u32 = 1000;

fn main() {
    let words: Vec<AtomicU64> = (0..SEGMENTS * SEGMENT_WORDS).map(|_| AtomicU64::new(1)).collect();
    let entries: Vec<SegmentEntry> = (0..SEGMENTS).map(|_| SegmentEntry::default()).collect();
    let counts: [AtomicU32; 3] = [0, 0, SEGMENTS as u32].map(AtomicU32::new);
    let (free, grow_until) = (AtomicU64::new(0), AtomicU64::new(0));
    let pool = Pool {
        entries: &entries,
        words: &words,
        base: 0,
        segment_words: SEGMENT_WORDS,
        taken: &counts[0],
        free: &free,
        in_use: &counts[1],
        ring_segments: &counts[2],
        extra: 0,
        grow_until: &grow_until,
        room: None,
    };
    let (control, published) = (Control::new(), AtomicU64::new(0));
    let ring = Ring::new(pool, &control, &published, 0);
    assert!(ring.start(SEGMENTS as u32, 0, 0));
    let go_on = |ticks: u32| {
        // As if hooks had filled the segment.
        control.position.store(control.segment_end.load(Relaxed), Relaxed);
        let ticks = ticks.into();
        let how = Advance { ticks, open_calls: 0, size: Size::Limit, shortage: Shortage::Overwrite };
        black_box(ring).close(ticks, false);
        assert!(ring.advance(how, |_, _| ()));
    };
    report("going on", go_on);
    report("going on and filling it", |ticks| {
        go_on(ticks);
        while control.position.load(Relaxed) < control.end.load(Relaxed) {
            let slot = control.position.load(Relaxed);
            control.position.store(slot + 8, Relaxed);
            if let Some(word) = words.get(slot as usize / 8) {
                word.store(u64::from(ticks) << 32 | 0x1000, Relaxed);
            }
        }
    });
}

fn report(what: &str, mut run: impl FnMut(u32)) {
    let mut samples: Vec<f64> = (0..31)
        .map(|_| {
            let begin = Instant::now();
            (0..ROUNDS).for_each(&mut run);
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    println!("{what}: {median:.0} ns a segment, {:.3} ns a word", median / SEGMENT_WORDS as f64);
}
