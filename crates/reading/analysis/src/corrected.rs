//! Prices of hooks in a trace, and durations without them. The arithmetic is `profile`'s.

use std::borrow::Cow;

use everycall_profile::{CallPrice, Correction, NoPrices, OpenHooks, PS, Prices, Range};
use everycall_timeline::{Bars, HookPrices, Price, TimelineEvent, Trace};

/// Cost of an event, in nanoseconds: half the cost of a call's two hooks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventPrice {
    /// Within the call's duration: at the least, on the whole, at the most.
    pub inside_ns: [f64; 3],
    /// Outside of it, in its caller's.
    pub outside_ns: [f64; 3],
}

impl EventPrice {
    /// Of hooks with these prices, in a trace.
    #[must_use]
    pub fn of(trace: &Trace<'_>, prices: &HookPrices) -> EventPrice {
        let ps = ps_of_million_ticks(trace) as f64;
        let ns =
            |price: Price| [price.low, price.value, price.high].map(|part| f64::from(part) / 2.0 * ps / 1e12);
        EventPrice { inside_ns: ns(prices.inside), outside_ns: ns(prices.outside) }
    }

    /// Both together.
    #[must_use]
    pub fn ns(&self) -> [f64; 3] {
        std::array::from_fn(|end| self.inside_ns[end] + self.outside_ns[end])
    }
}

/// Picoseconds of a million ticks, so that a price doesn't lose digits.
fn ps_of_million_ticks(trace: &Trace<'_>) -> u64 {
    let clock = trace.clock();
    let origin = clock.origin_ticks();
    clock.ns(origin.saturating_add(1_000_000)).saturating_sub(clock.ns(origin)) * PS
}

/// Those of a trace, and how far the price in a program may be from them.
pub(crate) fn prices_of(trace: &Trace<'_>) -> Result<(Prices, Range), NoPrices> {
    if trace.has_bounds() {
        return Err(NoPrices::Bounded);
    }
    let all = trace.calibrations();
    let known: Vec<_> = all.iter().filter(|known| known.is_measured).collect();
    if known.is_empty() {
        return Err(if all.is_empty() { NoPrices::Missing } else { NoPrices::Failed });
    }
    let ps_of_million = ps_of_million_ticks(trace);
    // Thousandths of a tick.
    let ps = |price: u64| (u128::from(price) * u128::from(ps_of_million) / 1_000_000_000) as u64;
    let count = known.len() as u64;
    // Programs that a process executed have measured anew.
    let mean = |of: fn(&everycall_timeline::ProcessCalibration) -> HookPrices| {
        let sum = |part: fn(&HookPrices) -> Price| {
            ps(known.iter().map(|known| u64::from(part(&of(known)).value)).sum::<u64>() / count)
        };
        CallPrice { inside_ps: sum(|prices| prices.inside), outside_ps: sum(|prices| prices.outside) }
    };
    let (sites, bodies, frames) =
        (mean(|known| known.sites), mean(|known| known.bodies), mean(|known| known.frames));
    let price = |module: &everycall_reader::Module| match () {
        () if module.is_frames() => frames,
        () if module.has_sites() => sites,
        () => bodies,
    };
    let mut range = Range::default();
    for known in known {
        for prices in [known.sites, known.bodies, known.frames] {
            for Price { low, value, high } in [prices.inside, prices.outside] {
                range.add([low, value, high]);
            }
        }
    }
    Ok((Prices::new(trace.modules().iter().map(price).collect(), bodies), range))
}

/// Follows a thread's timeline, and computes the times of calls without their hooks.
#[derive(Debug)]
pub(crate) struct WithoutHooks<'p> {
    hooks: OpenHooks<'p>,
    correction: Correction,
}

impl WithoutHooks<'_> {
    pub(crate) fn new(prices: &Prices, correction: Correction) -> WithoutHooks<'_> {
        WithoutHooks { hooks: OpenHooks::new(Cow::Borrowed(prices)), correction }
    }
}

impl everycall_export::Correcting for WithoutHooks<'_> {
    fn event(&mut self, event: &TimelineEvent) -> Option<Bars> {
        match event {
            TimelineEvent::Begin(_) => self.hooks.begin(),
            TimelineEvent::End(end) => {
                let cost_ps = self.hooks.end(end).total_ps;
                let took = end.end_ns.saturating_sub(end.start_ns);
                return Some(self.correction.corrected(took, cost_ps).time);
            }
            _ => {}
        }
        None
    }
}
