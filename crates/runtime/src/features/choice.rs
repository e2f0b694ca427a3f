//! Which calls of a trigger are kept: the slowest, the first or the newest, a limited number of
//! them, and at most one per interval. The rules are those of `record` (`crates/triggers`,
//! `Choice`).

use crate::state::kept_calls::{Choice, Kept};
use everycall_format::site_set::{KEEP_MAX, SetRule, keep_by};

impl Choice {
    pub(crate) fn kept(&self) -> &[Kept] {
        self.kept.get(..self.count as usize).unwrap_or(&[])
    }

    pub(crate) fn least(&self) -> u64 {
        self.kept().iter().map(|kept| kept.took).min().unwrap_or(0)
    }

    /// The duration of the newest kept call, which is that of the interval that ends at `until`.
    pub(crate) fn current(&self) -> u64 {
        self.kept().iter().max_by_key(|kept| kept.number).map_or(0, |kept| kept.took)
    }

    pub(crate) fn is_full(&self, rule: &SetRule) -> bool {
        self.count >= rule.keep.min(KEEP_MAX)
    }

    /// Whether to keep a call that ended at `end`.
    pub(crate) fn wants(&self, rule: &SetRule, end: u64, took: u64) -> bool {
        let is_late = end >= self.until;
        match rule.by {
            keep_by::FIRST => is_late && !self.is_full(rule),
            keep_by::NEWEST => is_late,
            _ if is_late => !self.is_full(rule) || took > self.least(),
            _ => took > self.current(),
        }
    }

    /// Which kept call is removed for a new one.
    pub(crate) fn goes(&self, rule: &SetRule, end: u64) -> Option<Kept> {
        let kept = self.kept().iter();
        match rule.by {
            keep_by::SLOWEST if end < self.until => kept.max_by_key(|kept| kept.number),
            _ if !self.is_full(rule) => None,
            keep_by::SLOWEST => kept.min_by_key(|kept| (kept.took, kept.number)),
            _ => kept.min_by_key(|kept| kept.number),
        }
        .copied()
    }

    /// Replaces the removed call with the new one.
    pub(crate) fn keep(&mut self, end: u64, every: u64, new: Kept, gone: Option<Kept>) {
        self.wait(end, every);
        let place = gone.and_then(|gone| self.kept().iter().position(|kept| kept.number == gone.number));
        if place.is_none() {
            self.count += 1;
        }
        if let Some(place) = self.kept.get_mut(place.unwrap_or(self.count.saturating_sub(1) as usize)) {
            *place = new;
        }
    }

    pub(crate) fn wait(&mut self, end: u64, every: u64) {
        if end >= self.until {
            self.until = if every == 0 { 0 } else { end.saturating_add(every) };
        }
    }

    /// Which calls need not be posted: until when, up to which duration until then, and up to which
    /// duration always.
    pub(crate) fn quiet(&self, rule: &SetRule) -> (u64, u64, u64) {
        let full = self.is_full(rule);
        let least = match rule.by {
            keep_by::FIRST if full => u64::MAX,
            keep_by::SLOWEST if full => self.least(),
            _ => 0,
        };
        (self.until, if rule.by == keep_by::SLOWEST { self.current() } else { u64::MAX }, least)
    }
}
