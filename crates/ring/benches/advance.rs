//! What does it cost to go on to the next segment of a warm ring?
//!
//! `cargo bench -p everycall-ring`; nanoseconds per segment, and per word of it. Medians of 31; pin it: `taskset -c 1`.

use everycall_ring::{Control, Ring};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const WORDS: usize = 128 << 10;
const SEGMENT_WORDS: usize = 8 << 10;
const ROUNDS: u32 = 1000;

fn main() {
    let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(1)).collect();
    let (control, published) = (Control::new(), AtomicU64::new(0));
    let ring = Ring::new(&words, SEGMENT_WORDS, &control, &published);
    ring.start(0, 0, 0, false);
    let go_on = |ticks: u32| {
        // As if hooks had filled the segment.
        control.position.store(control.segment_end.load(Relaxed), Relaxed);
        black_box(ring).advance(ticks.into(), 0, false);
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
