//! Cost of the hooks on this machine, measured at the start by the hooks themselves
//! (`docs/design/corrected.md` says why so): loops of calls, with hooks and without. Meanwhile the
//! thread has a control block with a ring of its own, on its stack, so that nothing of it is in the
//! trace. It takes about 0.2 ms.
#![allow(unsafe_code)] // Loops in assembly, which write to our stack.

use everycall_format::calibration::{Calibration, HookPrices, Price, calibration_state};

/// How often each loop runs.
const SAMPLES: usize = 7;
/// The least number of samples of each loop that have to be whole.
const SAMPLES_LEAST: usize = 3;
/// Prices are in thousandths of a tick.
const PARTS: u64 = 1000;
/// Largest credible cost of two hooks, in ticks: some hundred times the usual. More was caused by
/// something else.
const TICKS_MOST: u64 = 20_000;
/// In percent, what hooks cost more in a program, because a ring leaves the nearest cache and its
/// segments are cleared; and how far programs were beyond these loops otherwise
/// (`docs/design/corrected.md`).
const RING: u64 = 105;
const BEYOND: u64 = 6;

/// Figures of several samples, in thousandths of a tick per call; as many as were whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Samples {
    sorted: [u64; SAMPLES],
    count: usize,
}

impl Samples {
    fn of(samples: [Option<u64>; SAMPLES]) -> Samples {
        let mut all = Samples { sorted: [0; SAMPLES], count: 0 };
        for sample in samples.into_iter().flatten() {
            // Inserted in its place.
            let mut rest = sample;
            for place in all.sorted.iter_mut().take(all.count) {
                if rest < *place {
                    core::mem::swap(place, &mut rest);
                }
            }
            if let Some(place) = all.sorted.get_mut(all.count) {
                *place = rest;
            }
            all.count += 1;
        }
        all
    }

    /// The sample with this share of the others below it, in quarters; `None` of too few samples.
    fn quartile(&self, quarter: usize) -> Option<u64> {
        if self.count < SAMPLES_LEAST {
            return None;
        }
        self.sorted.get((self.count - 1) * quarter / 4).copied()
    }
}

/// Measurements of one kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    /// Of a call without hooks.
    plain: Samples,
    /// Of a call with hooks.
    hooked: Samples,
    /// Between the stamps of a call with hooks.
    between: Samples,
}

impl Loop {
    /// The time that hooks add to a call, by the quartile of the loop with hooks.
    fn added(&self, quarter: usize) -> Option<u64> {
        self.hooked.quartile(quarter)?.checked_sub(self.plain.quartile(2)?)
    }
}

/// The prices that follow; `None` if the figures make no sense. What part of it is between the
/// stamps is known of the calls that do nothing.
fn prices(empty: &Loop, work: &Loop) -> Option<HookPrices> {
    let whole = empty.hooked.quartile(2).filter(|whole| *whole > 0)?;
    let between = empty.between.quartile(2).filter(|between| (1..whole).contains(between))?;
    let ends = |quarter: usize| Some((empty.added(quarter)?, work.added(quarter)?));
    let (low, middle, high) = (ends(1)?, ends(2)?, ends(3)?);
    let range = [
        low.0.min(low.1) * (100 - BEYOND) / 100,
        (middle.0 + middle.1) / 2,
        high.0.max(high.1) * (100 + BEYOND) / 100,
    ];
    let range = range.map(|figure| figure * RING / 100);
    if range.iter().any(|figure| !(1..TICKS_MOST * PARTS).contains(figure)) {
        return None;
    }
    let price = |part: u64| {
        let [low, value, high] = range.map(|figure| (figure * part / whole) as u32);
        Price { low, value, high }
    };
    Some(HookPrices { inside: price(between), outside: price(whole - between) })
}

/// The record of what was measured of three kinds of hooks.
fn calibration(kinds: [Option<HookPrices>; 3]) -> Calibration {
    let is_whole = kinds.iter().all(Option::is_some);
    let [sites, bodies, frames] = kinds.map(Option::unwrap_or_default);
    let state = if is_whole { calibration_state::MEASURED } else { calibration_state::FAILED };
    Calibration { record_size: size_of::<Calibration>() as u32, state, sites, bodies, frames, cpu_ns: 0 }
}

#[cfg(any(feature = "executable", feature = "shared"))]
pub(crate) use measuring::measure;

#[cfg(any(feature = "executable", feature = "shared"))]
mod measuring {
    use super::{Calibration, HookPrices, Loop, PARTS, SAMPLES, Samples, calibration, prices};
    use crate::state::local;
    use crate::sys::system;
    use core::array;
    use core::hint::black_box;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use everycall_format::event::WORD_SIZE;
    use everycall_format::frame::STEP;
    use everycall_hooks::ModuleDescriptor;
    use everycall_hooks::arch::calibration::{
        BODY_LOOPS, FRAME_LOOPS, LOOP_CALLS, LOOP_WORDS, Loop as Code, PLAIN_LOOPS, SITE_LOOPS, loop_code,
    };
    use everycall_ring::{Control, state};

    /// Rounds of each loop.
    const ROUNDS: u64 = 24;
    const CALLS: u64 = ROUNDS * LOOP_CALLS;
    const EVENTS: usize = 2 * CALLS as usize;
    /// Bytes of the loops' code, at the most, and of the addresses of frames by id.
    const CODE_MAX: usize = 4096;
    /// Each byte of the table of places: whichever four of them a hook reads.
    const PLACE: u8 = 1;
    const PLACES: u64 = u32::from_ne_bytes([PLACE; 4]) as u64;

    /// Memory that hooks write to during the measurement.
    #[repr(C, align(64))]
    struct Scratch {
        control: Control,
        /// The sentinel, an open call that stands for the machine's call around frames by id, and
        /// room for calls that lose their exits.
        open: [[AtomicU64; 3]; 8],
        ring: [AtomicU64; EVENTS + 8],
        places: [u8; CODE_MAX + 4],
        /// How often calls were counted.
        count: AtomicU64,
    }

    const _: () = assert!(LOOP_CALLS as usize * STEP as usize <= CODE_MAX);

    /// Sets a field, and takes the change back in the end.
    struct Changed<'a>(&'a AtomicU64, u64);

    impl Changed<'_> {
        fn set(field: &AtomicU64, value: u64) -> Changed<'_> {
            Changed(field, field.swap(value, Relaxed))
        }
    }

    impl Drop for Changed<'_> {
        fn drop(&mut self) {
            self.0.store(self.1, Relaxed);
        }
    }

    /// Measures. For a thread that has no control block yet, in a process whose modules aren't
    /// registered: nothing else uses the descriptors. `thread_slot` is as in [`ModuleDescriptor`].
    #[inline(never)]
    pub(crate) fn measure(thread_slot: u64) -> Calibration {
        let code = loop_code();
        // The program steps itself, and each instruction would be a signal.
        if everycall_hooks::is_stepping() || code.end - code.start > CODE_MAX as u64 {
            return calibration([None; 3]);
        }
        let mask = system::set_signal_mask(u64::MAX);
        let mut scratch = Scratch {
            control: Control::new(),
            open: [const { [const { AtomicU64::new(0) }; 3] }; 8],
            ring: [const { AtomicU64::new(0) }; EVENTS + 8],
            places: [PLACE; CODE_MAX + 4],
            count: AtomicU64::new(0),
        };
        let mut words = [0_u64; LOOP_WORDS];
        // Otherwise, each process would branch alike.
        words[0] = everycall_hooks::ticks();
        scratch.begin();
        let scratch = black_box(&mut scratch);
        local::set_current(&raw const scratch.control);
        let kinds = measure_all(scratch, &mut words, thread_slot, code.start);
        local::set_current(core::ptr::null());
        system::set_signal_mask(mask);
        calibration(kinds)
    }

    fn measure_all(
        scratch: &Scratch,
        words: &mut [u64; LOOP_WORDS],
        thread_slot: u64,
        code: u64,
    ) -> [Option<HookPrices>; 3] {
        let places = scratch.places.as_ptr() as u64;
        let module: &ModuleDescriptor = everycall_hooks::own_descriptor();
        let frames = everycall_hooks::frames();
        let _changed = [
            Changed::set(&module.thread_slot, thread_slot),
            Changed::set(&module.on, 1),
            Changed::set(&module.start, 0),
            Changed::set(&module.size, u64::MAX),
            Changed::set(&module.recorded_places, places.wrapping_sub(code)),
            Changed::set(&frames.on, 1),
            Changed::set(&frames.recorded_places, places),
        ];
        let plain = PLAIN_LOOPS.map(|code| scratch.samples(code, words, false).0);
        [SITE_LOOPS, BODY_LOOPS, FRAME_LOOPS].map(|kind| {
            let [empty, work] = array::from_fn(|which| {
                let (hooked, between) = scratch.samples(*kind.get(which)?, words, true);
                Some(Loop { plain: *plain.get(which)?, hooked, between })
            });
            prices(&empty?, &work?)
        })
    }

    impl Scratch {
        fn begin(&mut self) {
            let control = &self.control;
            // The slow path returns at once.
            control.state.store(state::OFF, Relaxed);
            control.stack_high.store(u64::MAX, Relaxed);
            let count = (&raw const self.count) as u64;
            control.counts.store(count.wrapping_sub(PLACES), Relaxed);
            let [sentinel, around, ..] = &self.open;
            let [_, pointer, _] = sentinel;
            pointer.store(u64::MAX, Relaxed);
            let [word, pointer, _] = around;
            word.store(1, Relaxed);
            pointer.store(u64::MAX / 2 & !7, Relaxed);
        }

        /// Runs a loop several times. Returns thousandths of a tick per call, and of those between
        /// its stamps.
        fn samples(&self, code: Code, words: &mut [u64; LOOP_WORDS], is_hooked: bool) -> (Samples, Samples) {
            // The first time, its code and memory come into the caches.
            self.sample(code, words, is_hooked);
            let samples: [_; SAMPLES] = array::from_fn(|_| self.sample(code, words, is_hooked).unzip());
            (Samples::of(samples.map(|(whole, _)| whole)), Samples::of(samples.map(|(_, between)| between)))
        }

        /// One time; `None` if an event went missing, because the counter's upper half changed.
        fn sample(&self, code: Code, words: &mut [u64; LOOP_WORDS], is_hooked: bool) -> Option<(u64, u64)> {
            let control = &self.control;
            let first = (&raw const self.ring) as u64;
            let top = (&raw const self.open) as u64 + 2 * size_of_val(&self.open[0]) as u64;
            self.ring.iter().for_each(|word| word.store(0, Relaxed));
            self.open.iter().skip(2).flatten().for_each(|word| word.store(0, Relaxed));
            control.position.store(first, Relaxed);
            control.end.store(first + (EVENTS * WORD_SIZE) as u64, Relaxed);
            control.open_top.store(top, Relaxed);
            control.ticks_high.store((everycall_hooks::ticks() >> 32) as u32, Relaxed);
            let begin = everycall_hooks::ticks();
            // SAFETY: the loops write these words, and what the control block leads to.
            unsafe { code(ROUNDS, words.as_mut_ptr()) };
            let took = everycall_hooks::ticks().wrapping_sub(begin);
            let mut between = 0;
            if is_hooked {
                let events = self.ring.get(..EVENTS)?;
                let is_whole = events.iter().all(|word| word.load(Relaxed) as u32 != 0)
                    && control.open_top.load(Relaxed) == top;
                if !is_whole {
                    return None;
                }
                for [entry, exit] in events.as_chunks().0 {
                    let (entry, exit) = (entry.load(Relaxed) >> 32, exit.load(Relaxed) >> 32);
                    between += exit.saturating_sub(entry);
                }
            }
            Some((took * PARTS / CALLS, between * PARTS / CALLS))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::array;

    fn samples(all: &[u64]) -> Samples {
        Samples::of(array::from_fn(|index| all.get(index).copied()))
    }

    fn measured(plain: &[u64], hooked: &[u64], between: &[u64]) -> Loop {
        Loop { plain: samples(plain), hooked: samples(hooked), between: samples(between) }
    }

    #[test]
    fn quartiles_of_samples_in_any_order() {
        let all = samples(&[7, 1, 6, 2, 5, 3, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(|quarter| all.quartile(quarter)), [1, 2, 4, 5, 7].map(Some));
        assert_eq!(samples(&[9, 1, 5]).quartile(2), Some(5));
        assert_eq!(samples(&[9, 1]).quartile(2), None, "too few");
    }

    #[test]
    fn prices_range_from_calls_that_work_to_empty_ones() {
        let empty =
            measured(&[2_000; 7], &[51_000, 52_000, 52_000, 52_000, 52_000, 53_000, 900_000], &[26_000; 7]);
        let work = measured(&[12_000; 5], &[52_000; 5], &[30_000; 5]);
        // Half of a call's 52 ticks are between its stamps. Calls that work cost 40 ticks more, and
        // empty ones 50: 45 on the whole, and 5 % more in a program. The ends are 6 % farther.
        let half = Price { low: 19_740, value: 23_625, high: 27_825 };
        assert_eq!(prices(&empty, &work), Some(HookPrices { inside: half, outside: half }));
    }

    #[test]
    fn figures_that_make_no_sense_are_no_prices() {
        let sound = measured(&[2_000; 7], &[52_000; 7], &[26_000; 7]);
        assert!(prices(&sound, &sound).is_some());
        let faster = measured(&[60_000; 7], &[52_000; 7], &[26_000; 7]);
        let outside = measured(&[2_000; 7], &[52_000; 7], &[60_000; 7]);
        let preempted = measured(&[2_000; 7], &[90_000_000; 7], &[26_000; 7]);
        let few = measured(&[2_000; 7], &[52_000; 2], &[26_000; 2]);
        for wrong in [faster, outside, preempted, few] {
            assert_eq!(prices(&wrong, &sound), None, "{wrong:?}");
        }
        let figures = prices(&sound, &sound);
        assert_eq!(calibration([figures; 3]).state, calibration_state::MEASURED);
        assert_eq!(calibration([figures, None, figures]).state, calibration_state::FAILED);
    }
}
