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
    /// The largest number of calls of these that perhaps didn't exceed the threshold. If it is less
    /// than `keep`, they also never outnumber the others, unless there are no others.
    pub keep_perhaps: usize,
    /// The largest number of bytes that they may take, unless one alone takes more.
    pub bytes: u64,
    /// Which ones.
    pub by: KeepBy,
    /// At most one in so many nanoseconds; 0 for no such limit.
    pub every_ns: u64,
}

/// A limit that left out calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Their number: [`Policy::keep`].
    Count(usize),
    /// Their size: [`Policy::bytes`].
    Bytes(u64),
    /// One in so many nanoseconds: [`Policy::every_ns`].
    Every(u64),
    /// The number of calls that perhaps didn't exceed the threshold: [`Policy::keep_perhaps`].
    Perhaps(usize),
}

/// A call that met a condition. Times are in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// When it ended.
    pub end: u64,
    /// How long it took at least.
    pub took: u64,
    /// Whether it is certain that it met the condition. A call of which it isn't never takes the
    /// place of one of which it is.
    pub is_certain: bool,
}

/// A call that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptCall {
    is_certain: bool,
    took: u64,
    id: u64,
    bytes: u64,
}

impl KeptCall {
    /// By this, the slowest one is the greatest.
    fn rank(&self) -> (bool, u64) {
        (self.is_certain, self.took)
    }
}

/// The choice for one trigger. Times are in ticks.
#[derive(Debug)]
pub(crate) struct Choice {
    policy: Policy,
    kept: Vec<KeptCall>,
    /// A call is already kept for the time until then: the last one.
    until: u64,
    next_id: u64,
    /// Bytes of the newest one.
    newest_bytes: u64,
    /// The limit for which a call was replaced last.
    reached: Option<Limit>,
}

impl Choice {
    pub fn new(policy: Policy) -> Choice {
        Choice { policy, kept: Vec::new(), until: 0, next_id: 0, newest_bytes: 0, reached: None }
    }

    /// [`Policy::every_ns`].
    pub fn every_ns(&self) -> u64 {
        self.policy.every_ns
    }

    /// The largest number of calls that are kept.
    pub fn most(&self) -> usize {
        self.policy.keep
    }

    /// The limits that may have left out calls.
    pub fn limits(&self) -> Vec<Limit> {
        let every = self.policy.every_ns;
        let of_interval = (every > 0 && !self.kept.is_empty()).then_some(Limit::Every(every));
        let of_place = self.reached.or_else(|| self.limit(false));
        of_interval.into_iter().chain(of_place).collect()
    }

    /// Bytes of all that are kept.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).fold(0, u64::saturating_add)
    }

    fn perhaps(&self) -> impl Iterator<Item = &KeptCall> {
        self.kept.iter().filter(|kept| !kept.is_certain)
    }

    /// The limit that leaves no place for another call of the newest one's size.
    fn limit(&self, is_certain: bool) -> Option<Limit> {
        let Policy { keep, keep_perhaps, bytes, .. } = self.policy;
        let is_too_large = self.bytes().saturating_add(self.newest_bytes) > bytes;
        if self.kept.len() >= keep {
            Some(Limit::Count(keep))
        } else if is_too_large && !self.kept.is_empty() {
            Some(Limit::Bytes(bytes))
        } else if !is_certain && self.perhaps().count() >= keep_perhaps {
            Some(Limit::Perhaps(keep_perhaps))
        } else {
            None
        }
    }

    /// The call that is kept for the time until [`Choice::until`].
    fn current(&self) -> Option<&KeptCall> {
        self.kept.iter().max_by_key(|kept| kept.id)
    }

    /// Whether a call is wanted.
    pub fn wants(&self, met: Met) -> bool {
        if met.end < self.until {
            let Some(current) = self.current() else { return true };
            return match self.policy.by {
                KeepBy::Slowest => (met.is_certain, met.took) > current.rank(),
                KeepBy::First | KeepBy::Newest => met.is_certain && !current.is_certain,
            };
        }
        if self.limit(met.is_certain).is_none() {
            return true;
        }
        let has_perhaps = self.perhaps().next().is_some();
        match self.policy.by {
            KeepBy::First => met.is_certain && has_perhaps,
            KeepBy::Newest => met.is_certain || has_perhaps,
            KeepBy::Slowest => self
                .kept
                .iter()
                .map(KeptCall::rank)
                .min()
                .is_none_or(|least| (met.is_certain, met.took) > least),
        }
    }

    /// Keeps a wanted call of this size. Returns its number, and the numbers of those that it
    /// replaces.
    pub fn keep(&mut self, met: Met, bytes: u64, every: u64) -> (u64, Vec<u64>) {
        let mut gone = Vec::new();
        if met.end < self.until {
            gone.extend(self.current().map(|kept| kept.id));
        } else {
            self.until = if every == 0 { 0 } else { met.end.saturating_add(every) };
        }
        self.kept.retain(|kept| !gone.contains(&kept.id));
        self.newest_bytes = bytes;
        // Before the call itself is among them, so that it doesn't replace itself.
        while let Some(limit) = self.limit(met.is_certain) {
            let Some(least) = self.least().filter(|least| self.gives_way(least, met)) else { break };
            let least = least.id;
            self.kept.retain(|kept| kept.id != least);
            self.reached = Some(limit);
            gone.push(least);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.kept.push(KeptCall { is_certain: met.is_certain, took: met.took, id, bytes });
        (id, gone)
    }

    /// The call that is replaced first.
    fn least(&self) -> Option<&KeptCall> {
        let kept = self.kept.iter();
        match self.policy.by {
            KeepBy::Slowest => kept.min_by_key(|kept| (kept.rank(), kept.id)),
            KeepBy::First | KeepBy::Newest => kept.min_by_key(|kept| (kept.is_certain, kept.id)),
        }
    }

    /// Everything has been recorded: the numbers of the calls that perhaps didn't exceed the
    /// threshold and outnumber those that did. The others of them are more likely to have exceeded
    /// it, as they certainly took longer.
    pub fn outnumbering(&mut self) -> Vec<u64> {
        let certain = self.kept.len() - self.perhaps().count();
        if certain == 0 || self.policy.keep_perhaps >= self.policy.keep {
            return Vec::new();
        }
        let mut perhaps: Vec<(u64, u64)> = self.perhaps().map(|kept| (kept.took, kept.id)).collect();
        perhaps.sort_unstable();
        perhaps.truncate(perhaps.len().saturating_sub(certain));
        let gone: Vec<u64> = perhaps.into_iter().map(|(_, id)| id).collect();
        if !gone.is_empty() {
            self.kept.retain(|kept| !gone.contains(&kept.id));
            self.reached = Some(Limit::Perhaps(certain));
        }
        gone
    }

    /// Whether a kept call is replaced by this one if there isn't room for both.
    fn gives_way(&self, kept: &KeptCall, met: Met) -> bool {
        match self.policy.by {
            KeepBy::Slowest => kept.rank() < (met.is_certain, met.took),
            KeepBy::First => !kept.is_certain && met.is_certain,
            KeepBy::Newest => met.is_certain || !kept.is_certain,
        }
    }

    /// Which calls the runtime doesn't need to post. Of calls that are perhaps too long, only what
    /// is certain of their time is compared, and that is below the threshold.
    pub fn quiet(&self) -> Quiet {
        let longest_perhaps = self.perhaps().map(|kept| kept.took).max();
        let shortest_perhaps = self.perhaps().map(|kept| kept.took).min();
        let is_full = self.limit(true).is_some();
        let least = match self.policy.by {
            KeepBy::First if is_full => longest_perhaps.unwrap_or(u64::MAX),
            KeepBy::Slowest if is_full => self.least().map_or(0, |kept| kept.took),
            _ if self.limit(false).is_none() => 0,
            KeepBy::First => longest_perhaps.unwrap_or(0),
            KeepBy::Slowest => shortest_perhaps.unwrap_or(0),
            KeepBy::Newest => 0,
        };
        let bar = match (self.policy.by, self.current()) {
            (_, None) => 0,
            (KeepBy::First | KeepBy::Newest, Some(current)) if current.is_certain => u64::MAX,
            (_, Some(current)) => current.took,
        };
        Quiet { least, until: self.until, bar }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The durations that are kept of calls (end, duration). Calls that `quiet` excludes make no
    /// difference.
    fn kept(by: KeepBy, keep: usize, every: u64, calls: &[(u64, u64)]) -> Vec<u64> {
        let calls: Vec<_> = calls.iter().map(|&(end, took)| (end, took, true)).collect();
        kept_of(by, [keep, 0, usize::MAX], every, &calls)
    }

    /// With calls of which it is uncertain whether they met the condition. `most`: calls, uncertain
    /// ones, bytes; each takes 10 of these.
    fn kept_of(by: KeepBy, most: [usize; 3], every: u64, calls: &[(u64, u64, bool)]) -> Vec<u64> {
        let [keep, keep_perhaps, bytes] = most;
        let mut choice = Choice::new(Policy { keep, keep_perhaps, bytes: bytes as u64, by, every_ns: 0 });
        let mut took_of = std::collections::BTreeMap::new();
        for &(end, took, is_certain) in calls {
            let met = Met { end, took, is_certain };
            let quiet = choice.quiet();
            let is_posted = took > quiet.least && (end >= quiet.until || took > quiet.bar);
            assert!(
                is_posted || !choice.wants(met),
                "{by:?}: {end} {took} was wanted, and not posted: {quiet:?}"
            );
            if is_posted && choice.wants(met) {
                let certain = |choice: &Choice| choice.kept.iter().filter(|kept| kept.is_certain).count();
                let before = certain(&choice);
                let (id, gone) = choice.keep(met, 10, every);
                took_of.insert(id, took);
                took_of.retain(|id, _| !gone.contains(id));
                assert!(took_of.len() <= keep && choice.bytes() <= choice.policy.bytes.max(10));
                assert!(is_certain || certain(&choice) == before, "{by:?}: {met:?} replaced a certain one");
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

    #[test]
    fn a_budget_of_bytes() {
        let certain = CALLS.map(|(end, took)| (end, took, true));
        assert_eq!(kept_of(KeepBy::Slowest, [99, 0, 35], 0, &certain), [9, 8, 20]);
        assert_eq!(kept_of(KeepBy::First, [99, 0, 35], 0, &certain), [5, 9, 7]);
        assert_eq!(kept_of(KeepBy::Newest, [99, 0, 20], 0, &certain), [1, 20]);
        assert_eq!(kept_of(KeepBy::Slowest, [99, 0, 1], 0, &certain), [20], "one is always kept");
    }

    /// Thresholds are above 100: what is certain of the others is below it.
    #[test]
    fn uncertain_calls_never_win() {
        let calls = [
            (10, 50, false),
            (11, 60, false),
            (12, 200, true),
            (13, 70, false),
            (30, 150, true),
            (31, 90, false),
            (50, 170, true),
        ];
        for by in [KeepBy::Slowest, KeepBy::First, KeepBy::Newest] {
            let mut found = kept_of(by, [3, 3, usize::MAX], 0, &calls);
            found.sort_unstable();
            assert_eq!(found, [150, 170, 200], "{by:?}");
            let mut found = kept_of(by, [9, 2, usize::MAX], 0, &calls);
            found.retain(|took| *took > 100);
            assert_eq!(found, [200, 150, 170], "{by:?}");
            // An interval in which an uncertain one came first.
            assert_eq!(kept_of(by, [9, 9, usize::MAX], 10, &calls[..4]), [200], "{by:?}");
        }
        assert_eq!(kept_of(KeepBy::Slowest, [9, 1, usize::MAX], 0, &calls), [200, 150, 90, 170]);
    }

    #[test]
    fn limits_are_known() {
        let mut choice =
            Choice::new(Policy { keep: 2, keep_perhaps: 1, bytes: 100, by: KeepBy::Slowest, every_ns: 7 });
        for (end, took) in [(1, 5), (2, 6), (3, 4)] {
            let met = Met { end, took, is_certain: true };
            if choice.wants(met) {
                choice.keep(met, 10, 0);
            }
        }
        assert_eq!(choice.limits(), [Limit::Every(7), Limit::Count(2)]);
    }

    /// Of the calls that are uncertain, those of the longest certain time stay, as many as there
    /// are certain ones.
    #[test]
    fn uncertain_calls_never_outnumber_certain_ones() {
        let policy = Policy { keep: 100, keep_perhaps: 20, bytes: 1000, by: KeepBy::Slowest, every_ns: 0 };
        let of = |policy: Policy, certain: usize, perhaps: usize| {
            let mut choice = Choice::new(policy);
            let calls = (0..certain).map(|at| (true, 100 + at as u64));
            for (is_certain, took) in calls.chain((0..perhaps).map(|at| (false, 1 + at as u64))) {
                let met = Met { end: 1, took, is_certain };
                assert!(choice.wants(met));
                choice.keep(met, 1, 0);
            }
            let gone = choice.outnumbering().len();
            (gone, choice.perhaps().map(|kept| kept.took).collect::<Vec<_>>(), choice.limits())
        };
        assert_eq!(of(policy, 2, 5), (3, vec![4, 5], vec![Limit::Perhaps(2)]));
        assert_eq!(of(policy, 3, 3), (0, vec![1, 2, 3], vec![]));
        // A function that always ends in a jump to code that isn't traced has no others.
        assert_eq!(of(policy, 0, 3).0, 0);
        // --keep says how many.
        assert_eq!(of(Policy { keep_perhaps: 100, ..policy }, 1, 5).0, 0);
    }
}
