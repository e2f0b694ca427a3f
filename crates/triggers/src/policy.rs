//! Which of the calls that met a trigger's condition are kept.

use everycall_recorder::Quiet;

/// Which calls are kept if more met the condition than may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepBy {
    /// The slowest ones stay.
    Slowest,
    /// The first ones stay.
    First,
    /// The newest ones stay.
    Newest,
}

/// How many calls of each trigger are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The largest number of calls.
    pub keep: usize,
    /// Which ones.
    pub by: KeepBy,
    /// At most one in so many nanoseconds.
    pub every_ns: u64,
}

/// A call that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    id: u64,
    took: u64,
}

/// The choice for one trigger. Times are in ticks.
#[derive(Debug)]
pub(crate) struct Choice {
    policy: Policy,
    kept: Vec<Kept>,
    /// A call is already kept for the time until then: the last one.
    until: u64,
    next_id: u64,
}

impl Choice {
    pub fn new(policy: Policy) -> Choice {
        Choice { policy, kept: Vec::new(), until: 0, next_id: 0 }
    }

    /// [`Policy::every_ns`].
    pub fn every_ns(&self) -> u64 {
        self.policy.every_ns
    }

    /// The largest number of calls that are kept.
    pub fn most(&self) -> usize {
        self.policy.keep
    }

    fn is_full(&self) -> bool {
        self.kept.len() >= self.policy.keep
    }

    fn least(&self) -> u64 {
        self.kept.iter().map(|kept| kept.took).min().unwrap_or(0)
    }

    /// The number of the call that is kept for the time until [`Choice::until`].
    fn current(&self) -> u64 {
        self.kept.iter().max_by_key(|kept| kept.id).map_or(0, |kept| kept.took)
    }

    /// Whether a call that ended at `end` is wanted.
    pub fn wants(&self, end: u64, took: u64) -> bool {
        let is_late = end >= self.until;
        match self.policy.by {
            KeepBy::First => is_late && !self.is_full(),
            KeepBy::Newest => is_late,
            KeepBy::Slowest if is_late => !self.is_full() || took > self.least(),
            KeepBy::Slowest => took > self.current(),
        }
    }

    /// Keeps a wanted call. Returns its number, and the number of the call that it replaces.
    pub fn keep(&mut self, end: u64, took: u64, every: u64) -> (u64, Option<u64>) {
        let by_id = |kept: &&Kept| kept.id;
        let gone = match self.policy.by {
            KeepBy::Slowest if end < self.until => self.kept.iter().max_by_key(by_id).copied(),
            _ if !self.is_full() => None,
            KeepBy::Slowest => self.kept.iter().min_by_key(|kept| (kept.took, kept.id)).copied(),
            KeepBy::First | KeepBy::Newest => self.kept.iter().min_by_key(by_id).copied(),
        };
        if end >= self.until {
            self.until = if every == 0 { 0 } else { end.saturating_add(every) };
        }
        self.kept.retain(|kept| Some(*kept) != gone);
        let id = self.next_id;
        self.next_id += 1;
        self.kept.push(Kept { id, took });
        (id, gone.map(|gone| gone.id))
    }

    /// Which calls the runtime doesn't need to post.
    pub fn quiet(&self) -> Quiet {
        let full = self.is_full();
        let least = match self.policy.by {
            KeepBy::First if full => u64::MAX,
            KeepBy::Slowest if full => self.least(),
            _ => 0,
        };
        let bar = if self.policy.by == KeepBy::Slowest { self.current() } else { u64::MAX };
        Quiet { least, until: self.until, bar }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The durations that are kept of calls (end, duration). Calls that `quiet` excludes make no
    /// difference.
    fn kept(by: KeepBy, keep: usize, every: u64, calls: &[(u64, u64)]) -> Vec<u64> {
        let mut choice = Choice::new(Policy { keep, by, every_ns: 0 });
        let mut took_of = std::collections::BTreeMap::new();
        for &(end, took) in calls {
            let quiet = choice.quiet();
            let is_posted = took > quiet.least && (end >= quiet.until || took > quiet.bar);
            assert!(
                is_posted || !choice.wants(end, took),
                "{by:?}: {end} {took} was wanted, and not posted: {quiet:?}"
            );
            if is_posted && choice.wants(end, took) {
                let (id, gone) = choice.keep(end, took, every);
                took_of.insert(id, took);
                gone.map(|gone| took_of.remove(&gone));
                assert!(took_of.len() <= keep);
            }
        }
        took_of.into_values().collect()
    }

    const CALLS: [(u64, u64); 7] = [(10, 5), (11, 9), (12, 7), (30, 6), (50, 8), (70, 1), (71, 20)];

    #[test]
    fn the_slowest() {
        assert_eq!(kept(KeepBy::Slowest, 9, 0, &CALLS), [5, 9, 7, 6, 8, 1, 20]);
        assert_eq!(kept(KeepBy::Slowest, 3, 0, &CALLS), [9, 8, 20]);
        // At most one call in ten ticks: the slowest of each ten ticks.
        assert_eq!(kept(KeepBy::Slowest, 9, 10, &CALLS), [9, 6, 8, 20]);
        assert_eq!(kept(KeepBy::Slowest, 2, 10, &CALLS), [9, 20]);
        assert_eq!(kept(KeepBy::Slowest, 1, 10, &CALLS), [20]);
    }

    #[test]
    fn the_first_and_the_newest() {
        assert_eq!(kept(KeepBy::First, 3, 0, &CALLS), [5, 9, 7]);
        assert_eq!(kept(KeepBy::First, 3, 10, &CALLS), [5, 6, 8]);
        assert_eq!(kept(KeepBy::Newest, 2, 0, &CALLS), [1, 20]);
        assert_eq!(kept(KeepBy::Newest, 2, 10, &CALLS), [8, 1]);
    }
}
