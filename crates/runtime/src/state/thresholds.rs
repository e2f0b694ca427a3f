//! The set of functions that triggers name, where there is one, and its thresholds in ticks.
//!
//! Its thresholds are nanoseconds, and ticks are compared. Nobody waits until the clock's rate is
//! known well: sites get what the threshold can't be less than, and a call that took longer than
//! that is compared once more, with a rate that was measured for at least half as long as the
//! process runs. So it is exact to a fraction of a microsecond for each call, from the first one
//! on.
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

/// Nanoseconds for which the clock is measured before anything else: its rate is known to some
/// thousandths then.
const FIRST_NS: u64 = 300_000;

/// Bits of a rate behind the point.
const RATE_BITS: u32 = 28;

/// What is known of the set. Written at the start, before there is anybody else.
struct Known {
    set: UnsafeCell<Option<SiteSet<'static>>>,
    /// The clocks at the start.
    first: UnsafeCell<ClockReading>,
    /// Standard error as it was at the start: device and inode.
    messages: UnsafeCell<Option<(u64, u64)>>,
}

// SAFETY: written at the start alone, before there is anybody else to read it.
unsafe impl Sync for Known {}

static KNOWN: Known = Known {
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
/// The triggers' thresholds as exactly as they are known, in ticks.
static EXACT: [AtomicU64; RULES as usize] = [const { AtomicU64::new(NEVER) }; RULES as usize];
/// When they are to be computed anew, ticks; held while they are.
static DUE: AtomicU64 = AtomicU64::new(0);
static LOCK: AtomicU32 = AtomicU32::new(0);

/// There is a set: measures the clock for a moment. For the start alone.
pub(crate) fn begin(set: SiteSet<'static>) -> Option<&'static SiteSet<'static>> {
    let first = clock::reading();
    while system::clock_ns(CLOCK_MONOTONIC_RAW).saturating_sub(first.monotonic_raw_ns) < FIRST_NS {}
    // SAFETY: at the start there is nobody else.
    unsafe {
        *KNOWN.set.get() = Some(set);
        *KNOWN.first.get() = first;
        *KNOWN.messages.get() = disk::identity_of(2);
    }
    IS_THERE.store(true, Release);
    self::set()
}

/// There is no set, after all.
pub(crate) fn forget() {
    IS_THERE.store(false, Release);
}

/// The set, where there is one.
pub(crate) fn set() -> Option<&'static SiteSet<'static>> {
    if !IS_THERE.load(Acquire) {
        return None;
    }
    // SAFETY: written before the mark that was looked at.
    unsafe { (*KNOWN.set.get()).as_ref() }
}

/// Whether standard error is what it was at the start: the program may have put something else in
/// its place since.
pub(crate) fn is_heard() -> bool {
    // SAFETY: written before the set was there.
    let messages = unsafe { *KNOWN.messages.get() };
    messages.is_some() && disk::identity_of(2) == messages
}

/// The threshold of a trigger in ticks, as exactly as the clock's rate is known by now; `None`
/// where there is no set.
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
        // SAFETY: written before the set was there.
        let first = unsafe { &*KNOWN.first.get() };
        DUE.store(now.saturating_add(now.saturating_sub(first.ticks)), Release);
    }
    Some(set.rule(rule).map_or(NEVER, |rule| ticks(rule.threshold_ns, Bound::Nearest)))
}

/// Which ticks are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Nearest,
    /// Such as they can't be fewer.
    Lower,
}

/// The ticks of so many nanoseconds, by what was measured since the start.
pub(crate) fn ticks(nanoseconds: u64, bound: Bound) -> u64 {
    // SAFETY: written before the set was there.
    let first = unsafe { &*KNOWN.first.get() };
    let now = clock::reading();
    let unsure = if bound == Bound::Lower { first.bracket.saturating_add(now.bracket) } else { 0 };
    let ticks = now.ticks.saturating_sub(first.ticks).saturating_sub(unsure);
    scale(nanoseconds, ticks, now.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns))
}

/// `value * by / from`, exact to a hundred-millionth of it: without 128 bits, whose division is a
/// library's. Below [`NEVER`].
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
