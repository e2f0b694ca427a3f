//! Words to try, and a second decoder.
#![allow(dead_code)]

use everycall_synth::{Rng, basic};

/// A word of a longer record.
pub fn record(ticks: u64, kind: u64, count: u64) -> u64 {
    ticks << 32 | 0x7f00_0000 | kind << 16 | count << 8
}

/// A record's following word.
pub fn payload(value: u64, kind: u64, index: u64) -> u64 {
    value << 32 | 0xff00_0000 | kind << 16 | index << 8
}

/// The words of a program whose functions call each other in ever the same ways, at a clock that
/// moves in steps.
pub fn calls(rng: &mut Rng, count: usize, step: u64) -> Vec<u64> {
    let mut words = vec![record(0, 1, 3), payload(0, 1, 1), payload(0, 1, 2), payload(7, 1, 3)];
    let mut ticks = rng.below(1 << 40);
    let mut open: Vec<u64> = Vec::new();
    while words.len() < count {
        ticks += step * (1 + rng.below(4));
        if rng.one_in(50) {
            // A signal handler ran in between, or the thread waited.
            ticks = if rng.one_in(2) { ticks.saturating_sub(300) } else { ticks + rng.below(1 << 24) };
        }
        let caller = open.last().copied().unwrap_or(1);
        match rng.below(100) {
            _ if open.len() > 40 => {
                words.push(ticks << 32 | 1 << 31 | (open.pop().unwrap_or(1) * 64 + 0x1020))
            }
            0..48 => {
                let callee = (caller * 7 + rng.below(3)) % 500;
                open.push(callee);
                words.push(ticks << 32 | (callee * 64 + 0x1000));
            }
            48..96 => {
                let left = open.pop().unwrap_or(1);
                words.push(ticks << 32 | 1 << 31 | (left * 64 + 0x1020 + 4 * rng.below(2)));
            }
            96 => {
                open.truncate(open.len() / 2);
                words.extend([record(ticks, 3, 2), payload(open.len() as u64, 3, 1), payload(3, 3, 2)]);
            }
            97 => words.push(0),
            98 => words.extend([record(ticks, 14, 0)].repeat(rng.below(100) as usize)),
            _ => words.extend([record(ticks, 2, 1), payload(ticks >> 32, 2, 1)]),
        }
    }
    words
}

/// Sequences of many kinds, from the likely to the hostile.
pub fn sequences() -> Vec<Vec<u64>> {
    let mut rng = Rng::new(5);
    let mut all =
        vec![vec![], vec![0], vec![u64::MAX], vec![0; 70_000], vec![u64::MAX; 3], vec![1 << 63; 200_000]];
    for thread in basic().threads {
        all.push(thread.ring.segments().flatten().copied().collect());
    }
    for step in [1, 26, 90, 400, 3_000, 70_000, 1 << 33] {
        all.push(calls(&mut rng, 20_000, step));
    }
    for bits in [1, 8, 16, 31, 32, 33, 40, 64] {
        let random = (0..5_000).map(|_| rng.number() >> (64 - bits));
        all.push(random.collect());
        let upper = (0..5_000).map(|_| rng.number() << (64 - bits));
        all.push(upper.collect());
    }
    // All lengths of runs about a block and about the longest, of words of every kind.
    for word in [0, 5 << 32, 0x1234_0000_1000, record(9, 14, 0), payload(77, 1, 1)] {
        for length in [1, 2, 3, 4, 5, 31, 32, 33, 127, 128, 129, 65_535, 65_536, 65_537] {
            let mut words = vec![0x1_0000_2000];
            words.extend(vec![word; length]);
            words.push(0x2_0000_2000);
            all.push(words);
        }
    }
    // Every length of the words held back, and differences around every limit.
    for difference in [0, 1, 191, 192, 193, 255, 256, 4031, 4032, 4033, 65_535, 65_536, u64::from(u32::MAX)] {
        for run in [1, 2, 31, 32, 33, 64, 65, 200] {
            let ticks = (0..run).map(|index| (index * difference) << 32 | 0x1000);
            all.push(
                ticks
                    .chain([0x3000])
                    .chain((0..40).map(|index| (index * difference) << 32 | 0x1000))
                    .collect(),
            );
        }
    }
    all
}

/// Decodes as docs/format.md says; it uses no code of the crate.
pub fn by_the_book(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut recent, mut called, mut known) = (vec![0_u32; 8192], vec![0_u32; 4096], vec![0_u32; 4096]);
    let mut open = [0_u32; 256];
    let (mut top, mut history) = (0_usize, 0_u64);
    let (mut low, mut high, mut ticks, mut difference) = (0_u32, 0_u32, 0_u32, 0_u32);
    let mut input = bytes.iter().copied();
    let mut number =
        |size: u32| (0..size).try_fold(0_u32, |sum, byte| Some(sum | u32::from(input.next()?) << (8 * byte)));
    let mut words = Vec::new();
    while words.len() < count {
        let first = number(1)?;
        let (times, kind) = match first {
            0x00..=0xbf => {
                difference = first;
                (1, 0)
            }
            0xc0..=0xdf => (first - 0xc0 + 1, 0),
            0xe0..=0xee => {
                difference = 192 + (first - 0xe0) * 256 + number(1)?;
                (1, 0)
            }
            0xef => {
                for _ in 0..=number(2)? {
                    words.push(u64::from(high) << 32 | u64::from(low));
                }
                continue;
            }
            _ => {
                match first % 4 {
                    0 => {}
                    1 => difference = number(1)?,
                    2 => difference = number(2)?,
                    _ => difference = number(4)?,
                }
                (1, first / 4 % 4)
            }
        };
        for _ in 0..times {
            let r = (history.wrapping_mul(SPREAD) >> 51) as usize;
            let c = ((u64::from(low) << 32 | u64::from(open[top])).wrapping_mul(SPREAD) >> 52) as usize;
            low = match kind {
                0 => recent[r],
                1 => called[c],
                2 => *known.get(number(2)? as usize)?,
                _ => number(4)?,
            };
            if kind != 0 {
                recent[r] = low;
                called[c] = low;
                known[(u64::from(low).wrapping_mul(SPREAD) >> 52) as usize] = low;
            }
            if low == 0 || low >= 0xff00_0000 {
                high = difference;
            } else {
                ticks = ticks.wrapping_add(difference);
                high = ticks;
            }
            history = history << 6 ^ u64::from(low);
            open[(top + 1) % 256] = low;
            if low < 0x7f00_0000 {
                top = (top + 1) % 256;
            } else if (0x8000_0000..0xff00_0000).contains(&low) {
                top = (top + 255) % 256;
            }
            words.push(u64::from(high) << 32 | u64::from(low));
        }
    }
    (words.len() == count && number(1).is_none()).then_some(words)
}
