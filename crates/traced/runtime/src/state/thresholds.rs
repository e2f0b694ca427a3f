//! The process's own set of triggers, if there is one, and the triggers' thresholds in ticks.
//!
//! The set's thresholds are in nanoseconds, but hooks compare ticks, and the runtime can't wait
//! until the clock's rate is known exactly. So sites get a lower bound of the threshold. A call
//! that took longer than that is compared again, with a rate measured over at least half of the
//! process's run time. So the comparison is exact to a fraction of a microsecond, from the first
//! call on.
#![allow(unsafe_code)] // Written once, at the start, before there is anybody else to read it.

use crate::sys::lock::Lock;
use crate::sys::system::{self, CLOCK_MONOTONIC_RAW};
use crate::sys::{clock, disk};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::arena::ClockReading;
use everycall_format::site_set::SiteSet;
use everycall_format::trigger::{NEVER, RULES};

/// Nanoseconds for which the clock is measured at the start. Its rate is then known to some
/// thousandths.
const FIRST_NS: u64 = 300_000;

/// Fraction bits of a rate.
const RATE_BITS: u32 = 28;

/// The set and what belongs to it. Written at the start, before other threads exist.
struct TriggerSet {
    set: UnsafeCell<Option<SiteSet<'static>>>,
    /// The clock reading at the start.
    first: UnsafeCell<ClockReading>,
    /// Standard error at the start: device and inode.
    messages: UnsafeCell<Option<(u64, u64)>>,
}

// SAFETY: written only at the start, before any other thread can read it.
unsafe impl Sync for TriggerSet {}

static KNOWN: TriggerSet = TriggerSet {
    set: UnsafeCell::new(None),
    first: UnsafeCell::new(ClockReading {
        ticks: 0,
        monotonic_ns: 0,
        monotonic_raw_ns: 0,
        realtime_ns: 0,
        bracket: 0,
    }),
    messages: UnsafeCell::new(None),
};
static IS_THERE: AtomicBool = AtomicBool::new(false);
/// The triggers' thresholds in ticks, as exactly as they are known.
static EXACT: [AtomicU64; RULES as usize] = [const { AtomicU64::new(NEVER) }; RULES as usize];
/// When they are to be recomputed, in ticks.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Held while they are recomputed.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Stores a set, and measures the clock for a moment. Call it only at the start.
pub(crate) fn begin(set: SiteSet<'static>) -> Option<&'static SiteSet<'static>> {
    let first = clock::reading();
    while system::clock_ns(CLOCK_MONOTONIC_RAW).saturating_sub(first.monotonic_raw_ns) < FIRST_NS {}
    // SAFETY: there are no other threads at the start.
    unsafe {
        *KNOWN.set.get() = Some(set);
        *KNOWN.first.get() = first;
        *KNOWN.messages.get() = disk::identity_of(2);
    }
    IS_THERE.store(true, Release);
    self::set()
}

/// Removes the set again.
pub(crate) fn forget() {
    IS_THERE.store(false, Release);
}

/// The set, if there is one.
pub(crate) fn set() -> Option<&'static SiteSet<'static>> {
    if !IS_THERE.load(Acquire) {
        return None;
    }
    // SAFETY: written before the mark that was read.
    unsafe { (*KNOWN.set.get()).as_ref() }
}

/// Whether standard error is still the file that it was at the start, for messages. The program may
/// have replaced it.
pub(crate) fn is_heard() -> bool {
    // SAFETY: written before the set was published.
    let messages = unsafe { *KNOWN.messages.get() };
    messages.is_some() && disk::identity_of(2) == messages
}

/// The threshold of a trigger in ticks, as exactly as the clock's rate is known by now. `None` if
/// there is no set.
pub(crate) fn exact_threshold(rule: u32) -> Option<u64> {
    let set = set()?;
    let now = everycall_hooks::ticks();
    if now < DUE.load(Acquire) {
        return Some(EXACT.get(rule as usize).map_or(NEVER, |exact| exact.load(Relaxed)));
    }
    if let Some(_lock) = Lock::try_take(&LOCK) {
        for (exact, rule) in EXACT.iter().zip(0..set.rule_count()) {
            exact.store(
                set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Nearest)),
                Relaxed,
            );
        }
        // SAFETY: written before the set was published.
        let first = unsafe { &*KNOWN.first.get() };
        DUE.store(now.saturating_add(now.saturating_sub(first.ticks)), Release);
    }
    Some(set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Nearest)))
}

/// Which bound of a number of ticks to compute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Nearest,
    /// A lower bound.
    Lower,
}

/// Converts nanoseconds to ticks, by the rate measured since the start.
pub(crate) fn ticks(nanoseconds: u64, bound: Bound) -> u64 {
    // SAFETY: written before the set was published.
    let first = unsafe { &*KNOWN.first.get() };
    let now = clock::reading();
    let unsure = if bound == Bound::Lower { first.bracket.saturating_add(now.bracket) } else { 0 };
    let ticks = now.ticks.saturating_sub(first.ticks).saturating_sub(unsure);
    scale(nanoseconds, ticks, now.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns))
}

/// `value * by / from`, with a relative error of 1e-8. It avoids 128-bit numbers, whose division is
/// a library function. The result is below [`NEVER`].
fn scale(value: u64, by: u64, from: u64) -> u64 {
    let excess = (u64::BITS - by.leading_zeros()).saturating_sub(u64::BITS - 1 - RATE_BITS);
    let Some(rate) = ((by >> excess) << RATE_BITS).checked_div(from >> excess) else { return 0 };
    let whole = (value >> RATE_BITS).saturating_mul(rate);
    let rest = (value & ((1 << RATE_BITS) - 1)).saturating_mul(rate) >> RATE_BITS;
    whole.saturating_add(rest).min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_scaled_without_wide_numbers() {
        for (value, by, from) in [
            (20_000_000, 750_123, 300_000),
            (1, 2_500_000_000, 1_000_000_000),
            (60_000_000_000, 2_400_000_123_456, 999_999_876_543),
            (1_000, 1, 1),
            (u64::MAX / 8, 3_000_000_000_000_000, 1_000_000_000_000_000),
        ] {
            let exact = u128::from(value) * u128::from(by) / u128::from(from);
            let found = u128::from(scale(value, by, from));
            assert!(found.abs_diff(exact) <= exact / 100_000_000 + 1, "{value} {by} {from}: {found} {exact}");
        }
        assert_eq!(scale(u64::MAX, 4, 1), NEVER - 1);
        assert_eq!(scale(5, 5, 0), 0);
    }
}
