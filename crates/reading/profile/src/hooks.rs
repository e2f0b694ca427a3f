//! Times without what the hooks cost: the arithmetic of `report --corrected`.
//!
//! ```text
//! own time of f    measured - inside * calls of f - outside * calls of its direct callees
//! total time of f  measured - inside * calls of f - (inside + outside) * all calls within
//! ```
//!
//! `inside` is what the two hooks of a call cost between their stamps, `outside` the rest
//! (`everycall_format::calibration`). Both were measured at the start of the recording as ranges,
//! and the price in a program lies anywhere in them. If it is known what the whole program takes
//! without tracing, then so is what all of its hooks cost together
//! ([`Correction::with_untraced`]); only how that is shared among functions remains uncertain.

use std::borrow::Cow;

use everycall_calls::{Bars, End, EndKind, Location};

/// Parts of a whole: prices relative to their middle are counted in these.
const WHOLE: u64 = 1_000_000;
/// Picoseconds in a nanosecond.
pub const PS: u64 = 1_000;
/// How much the CPU times of two runs of one program differ at the least, in parts of [`WHOLE`].
const NOISE: u64 = WHOLE / 100;

/// A corrected time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// The time; never below 0.
    pub time: Bars,
    /// Whether the hooks should have cost more than was measured, so that the time was set to 0.
    pub is_clamped: bool,
}

/// Cost of hooks in some calls, in picoseconds, by the middle of the prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookTime {
    /// In their own times.
    pub own_ps: u64,
    /// In their total times; calls within another call of the same group add nothing.
    pub total_ps: u64,
}

impl HookTime {
    pub(crate) fn add(&mut self, own_ps: u64, total_ps: u64) {
        self.own_ps = self.own_ps.saturating_add(own_ps);
        self.total_ps = self.total_ps.saturating_add(total_ps);
    }
}

/// Why the times of a trace can't be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPrices {
    /// The trace doesn't say what hooks cost.
    Missing,
    /// It was tried to measure it, but the figures made no sense.
    Failed,
    /// Events have no times of their own, so the hooks were others than those that were measured.
    Bounded,
}

/// Cost of a call's hooks, in picoseconds: between the stamps, and outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallPrice {
    /// Within its duration.
    pub inside_ps: u64,
    /// In its caller's.
    pub outside_ps: u64,
}

/// Cost of a call's hooks, for each module of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// By module index.
    modules: Vec<CallPrice>,
    /// Of calls in no module.
    other: CallPrice,
}

impl Prices {
    /// By module index, and of calls in no module.
    #[must_use]
    pub fn new(modules: Vec<CallPrice>, other: CallPrice) -> Prices {
        Prices { modules, other }
    }

    /// One price for all calls.
    #[cfg(test)]
    pub(crate) fn of_all(inside_ps: u64, outside_ps: u64) -> Prices {
        Prices { modules: Vec::new(), other: CallPrice { inside_ps, outside_ps } }
    }

    /// Cost of a call's hooks at a location if `events` of its entry and exit were recorded.
    #[inline]
    pub(crate) fn of_call(&self, location: Location, events: u64) -> CallPrice {
        let module = location.module_index().and_then(|index| self.modules.get(index));
        let CallPrice { inside_ps, outside_ps } = *module.unwrap_or(&self.other);
        CallPrice { inside_ps: inside_ps * events / 2, outside_ps: outside_ps * events / 2 }
    }
}

/// Cost of hooks in the open calls of a thread.
#[derive(Debug)]
pub struct OpenHooks<'p> {
    prices: Cow<'p, Prices>,
    /// By open call: the cost of its callees' hooks.
    inner: Vec<HookTime>,
}

impl<'p> OpenHooks<'p> {
    /// Before the first event of a thread.
    #[must_use]
    pub fn new(prices: Cow<'p, Prices>) -> OpenHooks<'p> {
        OpenHooks { prices, inner: Vec::new() }
    }

    /// A call begins.
    pub fn begin(&mut self) {
        self.inner.push(HookTime::default());
    }

    /// The innermost call ends. The cost of its hooks outside of it is its caller's.
    pub fn end(&mut self, end: &End) -> HookTime {
        let has_exit = matches!(end.how, EndKind::Returned | EndKind::Jumped | EndKind::ReturnedAfterGap);
        let events = u64::from(!end.start_cut) + u64::from(has_exit);
        let CallPrice { inside_ps, outside_ps } = self.prices.of_call(end.location, events);
        let mut hooks = self.inner.pop().unwrap_or_default();
        hooks.add(inside_ps, inside_ps);
        if let Some(around) = self.inner.last_mut() {
            around.add(outside_ps, outside_ps.saturating_add(hooks.total_ps));
        }
        hooks
    }
}

/// How far prices reach below and above their middle, in parts of [`WHOLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    below: u64,
    above: u64,
}

impl Range {
    /// Includes a price: at the least, on the whole, at the most.
    pub fn add(&mut self, [low, value, high]: [u32; 3]) {
        let part = |part: u32| u64::from(part) * WHOLE / u64::from(value.max(1));
        self.below = self.below.max(part(value.saturating_sub(low)));
        self.above = self.above.max(part(high.saturating_sub(value)));
    }

    pub(crate) fn include(&mut self, other: Range) {
        self.below = self.below.max(other.below);
        self.above = self.above.max(other.above);
    }
}

/// Total cost of a program's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    /// By the middle of the prices.
    by_prices_ps: u64,
    /// By the program's CPU time without tracing: at the least, on the whole, at the most.
    really_ps: [u64; 3],
}

/// How times are corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correction {
    range: Range,
    whole: Option<Whole>,
}

/// CPU times of whole runs of a program, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeRun {
    /// While it was recorded.
    pub traced_ns: u64,
    /// Without tracing, between these two.
    pub untraced_ns: (u64, u64),
    /// Cost of its hooks by the prices, in picoseconds.
    pub hooks_ps: u64,
}

impl Correction {
    /// By prices that reach so far.
    #[must_use]
    pub fn new(range: Range) -> Correction {
        Correction { range, whole: None }
    }

    /// By what all hooks together have cost: the CPU time of the recorded run less that of the
    /// program without tracing. `None` if tracing would have cost nothing.
    #[must_use]
    pub fn with_untraced(self, run: WholeRun) -> Option<Correction> {
        let WholeRun { traced_ns, untraced_ns: (least, most), hooks_ps } = run;
        let noise = (u128::from(traced_ns) * u128::from(NOISE) / u128::from(WHOLE)) as u64;
        let cost = |untraced: u64| traced_ns.checked_sub(untraced);
        let middle = cost(least.midpoint(most)).filter(|cost| *cost > 0 && hooks_ps > 0)?;
        let low = cost(most).unwrap_or(0).saturating_sub(noise);
        let high = cost(least)?.saturating_add(noise);
        let really_ps = [low, middle, high].map(|ns| ns.saturating_mul(PS));
        Some(Correction { whole: Some(Whole { by_prices_ps: hooks_ps, really_ps }), ..self })
    }

    /// Cost of hooks in nanoseconds, where it is `cost_ps` by the middle of the prices.
    #[must_use]
    pub fn cost(&self, cost_ps: u64) -> Bars {
        let [low, value, high] = self.costs(cost_ps).map(|cost| cost.div_ceil(PS));
        Bars { low, value, high }
    }

    /// A time without what hooks cost in it, which is `cost_ps` by the middle of the prices.
    #[must_use]
    pub fn corrected(&self, measured_ns: u64, cost_ps: u64) -> Corrected {
        let cost = self.cost(cost_ps);
        let without = |cost: u64| measured_ns.saturating_sub(cost);
        Corrected {
            time: Bars { low: without(cost.high), value: without(cost.value), high: without(cost.low) },
            is_clamped: cost.value > measured_ns,
        }
    }

    /// Cost of hooks at the least, on the whole and at the most, in picoseconds.
    fn costs(&self, cost_ps: u64) -> [u64; 3] {
        let times = |ps: u64, part: u64, whole: u64| {
            let product = u128::from(ps) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(product).unwrap_or(u64::MAX)
        };
        let Range { below, above } = self.range;
        let Some(Whole { by_prices_ps, really_ps }) = self.whole else {
            let low = cost_ps.saturating_sub(times(cost_ps, below, WHOLE));
            return [low, cost_ps, cost_ps.saturating_add(times(cost_ps, above, WHOLE))];
        };
        let [low, middle, high] = really_ps.map(|really| times(cost_ps, really, by_prices_ps));
        // If the hooks of these calls cost more than those of others, the others' cost less, by the
        // same time; and neither by more than prices reach.
        let rest = by_prices_ps.saturating_sub(cost_ps).min(cost_ps);
        let differs = times(times(rest, really_ps[1], by_prices_ps), below.max(above), WHOLE);
        [low.saturating_sub(differs), middle, high.saturating_add(differs)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: u32, value: u32, high: u32) -> Range {
        let mut range = Range::default();
        range.add([low, value, high]);
        range
    }

    fn times(corrected: Corrected) -> (u64, u64, u64) {
        (corrected.time.low, corrected.time.value, corrected.time.high)
    }

    #[test]
    fn what_hooks_cost_is_subtracted_with_its_bounds() {
        let correction = Correction::new(range(15_000, 20_000, 22_000));
        // 1,000 calls of 17 ns: 12.75 to 18.7 us.
        let corrected = correction.corrected(50_000, 17_000_000);
        assert_eq!((times(corrected), corrected.is_clamped), ((31_300, 33_000, 37_250), false));
        assert_eq!(corrected.time.error(), 4_250);
        // Without hooks, nothing is uncertain.
        assert_eq!(times(correction.corrected(50_000, 0)), (50_000, 50_000, 50_000));
    }

    #[test]
    fn no_time_is_below_zero() {
        let correction = Correction::new(range(15_000, 20_000, 25_000));
        let corrected = correction.corrected(16_000, 20_000_000);
        assert_eq!((times(corrected), corrected.is_clamped), ((0, 0, 1_000), true));
        let corrected = correction.corrected(u64::MAX, u64::MAX);
        assert!(corrected.time.low <= corrected.time.value && corrected.time.value <= corrected.time.high);
    }

    #[test]
    fn the_whole_runs_hooks_cost_what_the_untraced_run_took_less() {
        let correction = Correction::new(range(16_000, 20_000, 24_000));
        // By the prices, the hooks cost 150 ms; really, 120 ms.
        let run = WholeRun {
            traced_ns: 180_000_000,
            untraced_ns: (60_000_000, 60_000_000),
            hooks_ps: 150_000_000_000,
        };
        let pinned = correction.with_untraced(run).unwrap();
        // All of it: what remains is the noise of the two runs.
        let whole = pinned.corrected(180_000_000, 150_000_000_000);
        assert_eq!(times(whole), (58_200_000, 60_000_000, 61_800_000));
        // A tenth of it: 12 ms, and a fifth of that.
        let tenth = pinned.corrected(30_000_000, 15_000_000_000);
        assert_eq!(times(tenth), (15_420_000, 18_000_000, 20_580_000));
        // Nine tenths are as uncertain as the last one.
        let most = pinned.corrected(170_000_000, 135_000_000_000);
        assert_eq!(times(most), (170_000_000 - 112_020_000, 62_000_000, 170_000_000 - 103_980_000));
        // Between two figures.
        let between = correction.with_untraced(WholeRun { untraced_ns: (58_000_000, 62_000_000), ..run });
        assert_eq!(
            times(between.unwrap().corrected(180_000_000, 150_000_000_000)),
            (56_200_000, 60_000_000, 63_800_000)
        );
    }

    #[test]
    fn tracing_that_cost_nothing_is_no_measure() {
        let correction = Correction::new(range(16_000, 20_000, 24_000));
        let run = WholeRun { traced_ns: 60, untraced_ns: (60, 70), hooks_ps: 1 };
        assert_eq!(correction.with_untraced(run), None);
        assert_eq!(correction.with_untraced(WholeRun { untraced_ns: (1, 2), hooks_ps: 0, ..run }), None);
    }
}
