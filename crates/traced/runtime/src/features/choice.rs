//! Which calls of a trigger are kept: the slowest, the first or the newest, a limited number and
//! size of them, and at most one per interval. The rules are those of `record`
//! (`crates/recording/triggers`, `Choice`).

use crate::state::kept_calls::{Choice, Kept};
use everycall_format::site_set::{KEEP_MAX, KEEP_PERHAPS, SetRule, keep_by};

impl Choice {
    pub(crate) fn kept(&self) -> &[Kept] {
        self.kept.get(..self.count as usize).unwrap_or(&[])
    }

    fn perhaps(&self) -> impl Iterator<Item = &Kept> {
        self.kept().iter().filter(|kept| !kept.is_certain)
    }

    /// The newest kept call, which is that of the interval that ends at `until`.
    fn current(&self) -> Option<&Kept> {
        self.kept().iter().max_by_key(|kept| kept.number)
    }

    /// Whether there is no place for another call of the newest one's size.
    fn is_full(&self, rule: &SetRule, is_certain: bool) -> bool {
        let kib = |kept: &Kept| u64::from(kept.kib);
        let size: u64 = self.kept().iter().map(kib).sum::<u64>() + u64::from(self.newest_kib);
        let is_too_large = rule.keep_kib != 0 && self.count > 0 && size > rule.keep_kib.into();
        self.count >= rule.keep.min(KEEP_MAX)
            || is_too_large
            || !is_certain && self.perhaps().count() >= rule.keep.min(KEEP_PERHAPS) as usize
    }

    /// Whether to keep a call.
    pub(crate) fn wants(&self, rule: &SetRule, end: u64, met: (bool, u64)) -> bool {
        if end < self.until {
            let Some(current) = self.current() else { return true };
            return match rule.by {
                keep_by::SLOWEST => met > current.rank(),
                _ => met.0 && !current.is_certain,
            };
        }
        if !self.is_full(rule, met.0) {
            return true;
        }
        let has_perhaps = self.perhaps().next().is_some();
        match rule.by {
            keep_by::FIRST => met.0 && has_perhaps,
            keep_by::NEWEST => met.0 || has_perhaps,
            _ => self.kept().iter().map(Kept::rank).min().is_none_or(|least| met > least),
        }
    }

    /// Whether a wanted call takes the place of another one.
    pub(crate) fn has_no_place(&self, rule: &SetRule, end: u64, is_certain: bool) -> bool {
        self.count > 0 && (end < self.until || self.is_full(rule, is_certain))
    }

    /// A call is to be kept: takes out a kept call that it replaces. Call this until there are no
    /// more. `is_of_interval`: it takes the place of the interval's call.
    pub(crate) fn replaced(&mut self, rule: &SetRule, is_of_interval: bool, new: &Kept) -> Option<Kept> {
        let gone = if is_of_interval { self.current() } else { self.giving_way(rule, new) }.copied()?;
        let place = self.kept().iter().position(|kept| kept.number == gone.number)?;
        self.count -= 1;
        if let (Some(last), Some(place)) =
            (self.kept.get(self.count as usize).copied(), self.kept.get_mut(place))
        {
            *place = last;
        }
        Some(gone)
    }

    /// The kept call that is replaced by a new one for lack of a place.
    fn giving_way(&self, rule: &SetRule, new: &Kept) -> Option<&Kept> {
        if !self.is_full(rule, new.is_certain) {
            return None;
        }
        let kept = self.kept().iter();
        let least = match rule.by {
            keep_by::SLOWEST => kept.min_by_key(|kept| (kept.rank(), kept.number)),
            _ => kept.min_by_key(|kept| (kept.is_certain, kept.number)),
        }?;
        let gives_way = match rule.by {
            keep_by::SLOWEST => least.rank() < new.rank(),
            keep_by::FIRST => !least.is_certain && new.is_certain,
            _ => new.is_certain || !least.is_certain,
        };
        gives_way.then_some(least)
    }

    /// Adds a call.
    pub(crate) fn keep(&mut self, new: Kept) {
        if let Some(place) = self.kept.get_mut(self.count as usize) {
            *place = new;
            self.count += 1;
        }
    }

    /// Begins the interval in which no other call is kept.
    pub(crate) fn wait(&mut self, end: u64, every: u64) {
        if end >= self.until {
            self.until = if every == 0 { 0 } else { end.saturating_add(every) };
        }
    }

    /// Which calls need not be posted: until when, up to which duration until then, and up to which
    /// duration always.
    pub(crate) fn quiet(&self, rule: &SetRule) -> (u64, u64, u64) {
        let longest_perhaps = self.perhaps().map(|kept| kept.took).max();
        let shortest_perhaps = self.perhaps().map(|kept| kept.took).min();
        let least = match rule.by {
            keep_by::FIRST if self.is_full(rule, true) => longest_perhaps.unwrap_or(u64::MAX),
            keep_by::SLOWEST if self.is_full(rule, true) => {
                self.kept().iter().map(Kept::rank).min().map_or(0, |(_, took)| took)
            }
            _ if !self.is_full(rule, false) => 0,
            keep_by::FIRST => longest_perhaps.unwrap_or(0),
            keep_by::SLOWEST => shortest_perhaps.unwrap_or(0),
            _ => 0,
        };
        let bar = match self.current() {
            None => 0,
            Some(current) if rule.by != keep_by::SLOWEST && current.is_certain => u64::MAX,
            Some(current) => current.took,
        };
        (self.until, bar, least)
    }
}

impl Kept {
    /// By this, the slowest one is the greatest.
    fn rank(&self) -> (bool, u64) {
        (self.is_certain, self.took)
    }
}
