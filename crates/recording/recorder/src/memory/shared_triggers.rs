//! The triggers in an arena, for the process that keeps calls. Everything read from it is
//! untrusted.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use everycall_format::trigger::{
    CALLS, NEVER, Sites, TYPES, ThrownType, TriggerHeader, TriggerRule, TriggerSite, TriggeredCall, call_at,
    call_state, perhaps_at, rule_at, type_at,
};
use everycall_machine::clock::ticks;

use crate::memory::arena::Arena;
use crate::memory::contents::{ArenaContents, ArenaFront};
use crate::memory::scan::{News, Scan};

/// Replacements for absent fields.
static NO_FIELD: (AtomicU32, AtomicU64) = (AtomicU32::new(0), AtomicU64::new(0));

/// Which calls the traced process doesn't need to post.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quiet {
    /// Calls up to this duration in ticks are only counted.
    pub least: u64,
    /// Until then, ticks, ...
    pub until: u64,
    /// ... calls up to this duration in ticks aren't posted, either.
    pub bar: u64,
}

/// How often a trigger's condition was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Calls that met it, or may have.
    pub calls: u64,
    /// Of these, calls that may have met it.
    pub perhaps: u64,
    /// Of these, calls that should have been kept, but found no free entry.
    pub missed: u64,
}

/// The triggers of an arena, mapped into our memory.
#[derive(Debug)]
pub struct SharedTriggers {
    front: Arc<dyn ArenaFront>,
    at: u64,
    capacity: u32,
}

impl SharedTriggers {
    /// The triggers of `arena`; `None` if it has no room for them.
    ///
    /// # Errors
    ///
    /// It can't be mapped.
    pub fn map(arena: &Arena) -> io::Result<Option<SharedTriggers>> {
        let layout = arena.layout();
        let Some(at) = layout.triggers_at() else { return Ok(None) };
        let front = Arc::new(arena.shared_pool()?);
        Ok(Some(SharedTriggers { front, at, capacity: layout.trigger_sites }))
    }

    /// The triggers in an area at `at`, with room for `capacity` sites.
    #[must_use]
    pub fn in_area(front: Arc<dyn ArenaFront>, at: u64, capacity: u32) -> SharedTriggers {
        SharedTriggers { front, at, capacity }
    }

    /// Scans the events that the process's threads write.
    pub fn scan(&self, arena: &dyn ArenaContents, scan: &mut Scan, each: &mut dyn FnMut(News<'_>)) {
        scan.pass(arena, &*self.front, each);
    }

    fn word(&self, at: u64, field: usize) -> &AtomicU32 {
        self.front.word_at(self.at + at + field as u64).unwrap_or(&NO_FIELD.0)
    }

    fn long(&self, at: u64, field: usize) -> &AtomicU64 {
        self.front.long_at(self.at + at + field as u64).unwrap_or(&NO_FIELD.1)
    }

    /// Changes when a call was posted.
    #[must_use]
    pub fn doorbell(&self) -> u32 {
        self.word(0, offset_of!(TriggerHeader, doorbell)).load(Acquire)
    }

    /// Everything that was posted when the doorbell's value was `doorbell` is pinned, kept or not
    /// wanted: threads no longer need to protect events for it. Later posts stay protected from now
    /// on, because a keeper exists.
    pub fn hear(&self, doorbell: u32) {
        self.long(0, offset_of!(TriggerHeader, posted)).store(ticks(), Relaxed);
        self.word(0, offset_of!(TriggerHeader, heard)).store(doorbell, Release);
    }

    /// When the process last stopped waiting for [`SharedTriggers::replace`], in ticks; 0 if it
    /// hasn't since the last [`SharedTriggers::hear_of`].
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.long(0, offset_of!(TriggerHeader, given_up)).load(SeqCst)
    }

    /// Events before that time were processed.
    pub fn hear_of(&self, given_up: u64) {
        let field = self.long(0, offset_of!(TriggerHeader, given_up));
        let _ = field.compare_exchange(given_up, 0, SeqCst, Relaxed);
    }

    fn sites(&self) -> Sites {
        Sites::of(self.word(0, offset_of!(TriggerHeader, sites)).load(Acquire), self.capacity)
    }

    /// How often all sites were replaced, in this process or the one that it was forked from; 0 if
    /// never.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.word(0, offset_of!(TriggerHeader, generation)).load(Acquire)
    }

    /// Replaces all sites, by writing into the unused half. Returns the sites that had no room.
    #[must_use]
    pub fn replace(&self, mut sites: Vec<TriggerSite>, generation: u32) -> Vec<TriggerSite> {
        sites.sort_by_key(|site| (site.first, site.rule));
        let new = self.sites().other(u32::try_from(sites.len()).unwrap_or(u32::MAX));
        for (index, site) in (0..new.count).zip(&sites) {
            let at = new.at(index);
            self.word(at, offset_of!(TriggerSite, first)).store(site.first, Relaxed);
            self.word(at, offset_of!(TriggerSite, end)).store(site.end, Relaxed);
            self.word(at, offset_of!(TriggerSite, rule)).store(site.rule, Relaxed);
            self.word(at, offset_of!(TriggerSite, flags)).store(site.flags, Relaxed);
            self.long(at, offset_of!(TriggerSite, threshold)).store(site.threshold, Relaxed);
        }
        self.word(0, offset_of!(TriggerHeader, sites)).store(new.word(), Release);
        self.set_floor();
        // Stored last: a forked child that has this value also has the sites.
        self.word(0, offset_of!(TriggerHeader, generation)).store(generation, Release);
        sites.split_off(new.count as usize)
    }

    fn places(&self) -> impl Iterator<Item = u64> + '_ {
        let sites = self.sites();
        (0..sites.count).map(move |index| sites.at(index))
    }

    /// The sites, as they are.
    pub fn all_sites(&self) -> impl Iterator<Item = TriggerSite> + '_ {
        self.places().map(|at| TriggerSite {
            first: self.word(at, offset_of!(TriggerSite, first)).load(Relaxed),
            end: self.word(at, offset_of!(TriggerSite, end)).load(Relaxed),
            rule: self.word(at, offset_of!(TriggerSite, rule)).load(Relaxed),
            flags: self.word(at, offset_of!(TriggerSite, flags)).load(Relaxed),
            threshold: self.long(at, offset_of!(TriggerSite, threshold)).load(Relaxed),
            ..TriggerSite::default()
        })
    }

    /// Updates the thresholds of the sites for which `threshold` returns one.
    pub fn arm(&self, mut threshold: impl FnMut(&TriggerSite) -> Option<u64>) {
        let mut changed = false;
        for (at, site) in self.places().zip(self.all_sites()) {
            if let Some(new) = threshold(&site).filter(|new| *new != site.threshold) {
                self.long(at, offset_of!(TriggerSite, threshold)).store(new, Relaxed);
                changed = true;
            }
        }
        if changed {
            self.set_floor();
        }
    }

    fn set_floor(&self) {
        let lowest = self.all_sites().map(|site| site.threshold).min().unwrap_or(NEVER);
        self.long(0, offset_of!(TriggerHeader, floor)).store(lowest, SeqCst);
    }

    /// Sets the threshold of a trigger for frames by id, in ticks.
    pub fn arm_frames(&self, rule: u32, threshold: u64) {
        self.long(rule_at(rule), offset_of!(TriggerRule, frames_threshold)).store(threshold, SeqCst);
    }

    /// Sets the exceptions that rules wait for, with a bit for each rule: `any` for exceptions of
    /// any type, `anywhere` for those in calls of any function; and the types.
    pub fn set_throws(&self, any: u32, anywhere: u32, types: &[ThrownType]) {
        let types = types.get(..TYPES as usize).unwrap_or(types);
        for (index, thrown) in (0..).zip(types) {
            let at = type_at(index);
            self.long(at, offset_of!(ThrownType, hash)).store(thrown.hash, Relaxed);
            self.word(at, offset_of!(ThrownType, rules)).store(thrown.rules, Relaxed);
        }
        self.word(0, offset_of!(TriggerHeader, thrown_anywhere)).store(anywhere, Release);
        self.word(0, offset_of!(TriggerHeader, thrown_types)).store(types.len() as u32, Release);
        self.word(0, offset_of!(TriggerHeader, thrown)).store(any, Release);
    }

    /// Sets which calls of trigger `rule` aren't wanted.
    pub fn set_quiet(&self, rule: u32, quiet: Quiet) {
        let at = rule_at(rule);
        self.long(at, offset_of!(TriggerRule, least)).store(quiet.least, Relaxed);
        self.long(at, offset_of!(TriggerRule, bar)).store(quiet.bar, Relaxed);
        self.long(at, offset_of!(TriggerRule, quiet_until)).store(quiet.until, Release);
    }

    /// How often trigger `rule` fired.
    #[must_use]
    pub fn fired(&self, rule: u32) -> Fired {
        let at = rule_at(rule);
        Fired {
            calls: self.long(at, offset_of!(TriggerRule, fired)).load(Relaxed),
            missed: self.long(at, offset_of!(TriggerRule, missed)).load(Relaxed),
            perhaps: self.long(perhaps_at(rule), 0).load(Relaxed),
        }
    }

    /// Takes the posted calls, ordered by their ends.
    #[must_use]
    pub fn take_posted(&self) -> Vec<TriggeredCall> {
        let mut posted = Vec::new();
        for index in 0..CALLS {
            let at = call_at(index);
            let state = self.word(at, offset_of!(TriggeredCall, state));
            if state.load(Acquire) != call_state::POSTED {
                continue;
            }
            posted.push(TriggeredCall {
                rule: self.word(at, offset_of!(TriggeredCall, rule)).load(Relaxed),
                code: self.word(at, offset_of!(TriggeredCall, code)).load(Relaxed),
                slot: self.word(at, offset_of!(TriggeredCall, slot)).load(Relaxed),
                generation: self.word(at, offset_of!(TriggeredCall, generation)).load(Relaxed),
                tid: self.word(at, offset_of!(TriggeredCall, tid)).load(Relaxed),
                flags: self.word(at, offset_of!(TriggeredCall, flags)).load(Relaxed),
                start_ticks: self.long(at, offset_of!(TriggeredCall, start_ticks)).load(Relaxed),
                end_ticks: self.long(at, offset_of!(TriggeredCall, end_ticks)).load(Relaxed),
                threshold: self.long(at, offset_of!(TriggeredCall, threshold)).load(Relaxed),
                events_before: self.long(at, offset_of!(TriggeredCall, events_before)).load(Relaxed),
                events_after: self.long(at, offset_of!(TriggeredCall, events_after)).load(Relaxed),
                jump_ticks: self.long(at, offset_of!(TriggeredCall, jump_ticks)).load(Relaxed),
                target: self.long(at, offset_of!(TriggeredCall, target)).load(Relaxed),
                jump_code: self.word(at, offset_of!(TriggeredCall, jump_code)).load(Relaxed),
                ..TriggeredCall::default()
            });
            let _ = state.compare_exchange(call_state::POSTED, call_state::FREE, AcqRel, Relaxed);
        }
        posted.sort_by_key(|call| call.end_ticks);
        posted
    }
}

#[cfg(test)]
mod tests {
    use everycall_format::env::RING_SIZE_MIN;

    use super::*;
    use crate::memory::arena::Unrecorded;
    use crate::memory::capacity::Capacity;

    /// Calls may be posted faster than each check of them ends: the process then never sees that
    /// all were received.
    #[test]
    fn a_keeper_that_never_catches_up_counts_as_alive() {
        let arena = Capacity::find(RING_SIZE_MIN, None, Some(1 << 20), Unrecorded::Nothing, false, 0)
            .unwrap()
            .arena()
            .unwrap();
        let triggers = SharedTriggers::map(&arena).unwrap().unwrap();
        let posted = triggers.long(0, offset_of!(TriggerHeader, posted));
        triggers.word(0, offset_of!(TriggerHeader, doorbell)).store(5, Release);
        posted.store(1, Relaxed);
        let before = ticks();
        triggers.hear(4);
        assert_ne!(triggers.doorbell(), triggers.word(0, offset_of!(TriggerHeader, heard)).load(Acquire));
        assert!(posted.load(Relaxed) >= before);
    }
}
