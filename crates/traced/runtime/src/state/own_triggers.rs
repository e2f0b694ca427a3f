//! Triggers that the traced process itself writes: those of its own arena, from a set, and those of
//! clients. With `record`, the recorder does this.
#![allow(unsafe_code)] // Shared memory: structures in the arena, by their addresses.

use crate::state::arena::Arena;
use crate::state::trigger_table::Triggers;
use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use everycall_format::Wire;
use everycall_format::site_set::{SetRule, SiteSet, throws};
use everycall_format::trigger::{
    CALLS, FRAME_TEXTS_OFFSET, GROW_TICKS, NEVER, RULES, TYPES, ThrownType, TriggerHeader, TriggerRule,
    TriggerSite, TriggeredCall, call_state, places_of_texts, site_flags, type_at,
};

impl Triggers {
    /// Writes the header of a fresh arena, which has no sites yet. Threads may use `memory` bytes
    /// beyond their rings.
    pub(crate) fn begin(&self, arena: &Arena, memory: u64) {
        let segments = memory.checked_div(arena.layout().segment_size).unwrap_or(0);
        let header = TriggerHeader {
            floor: NEVER,
            segments_allowed: u32::try_from(segments).unwrap_or(u32::MAX),
            grow_ticks: GROW_TICKS,
            ..TriggerHeader::default()
        };
        let bytes = header.to_bytes();
        arena.put_bytes(arena.offset_of(self.base as u64), &bytes);
    }

    /// Writes the header of an area for a client, which has no sites yet. Threads may use `memory`
    /// bytes beyond their rings.
    pub(crate) fn begin_live(&self, arena: &Arena, memory: u64) {
        self.end_live();
        for index in 0..RULES {
            self.perhaps(index).store(0, Relaxed);
            let rule = self.rule(index);
            for count in [
                field!(rule, TriggerRule, quiet_until, AtomicU64),
                field!(rule, TriggerRule, bar, AtomicU64),
                field!(rule, TriggerRule, least, AtomicU64),
                field!(rule, TriggerRule, fired, AtomicU64),
                field!(rule, TriggerRule, missed, AtomicU64),
                field!(rule, TriggerRule, not_armed, AtomicU64),
            ] {
                count.store(0, Relaxed);
            }
        }
        for call in (0..CALLS).map(|index| self.call(index)) {
            // An entry that is being filled is freed by the process that takes it.
            let state = field!(call, TriggeredCall, state, AtomicU32);
            let _ = state.compare_exchange(call_state::POSTED, call_state::FREE, Release, Relaxed);
        }
        let segments = memory.checked_div(arena.layout().segment_size).unwrap_or(0);
        let allowed = u32::try_from(segments).unwrap_or(u32::MAX);
        field!(self.base, TriggerHeader, segments_allowed, AtomicU32).store(allowed, Relaxed);
        field!(self.base, TriggerHeader, grow_ticks, AtomicU64).store(GROW_TICKS, Relaxed);
        self.hear(self.doorbell());
        field!(self.base, TriggerHeader, in_use, AtomicU32).store(1, Release);
    }

    /// Empties a client's area.
    pub(crate) fn end_live(&self) {
        field!(self.base, TriggerHeader, in_use, AtomicU32).store(0, Relaxed);
        field!(self.base, TriggerHeader, floor, AtomicU64).store(NEVER, SeqCst);
        for word in [
            field!(self.base, TriggerHeader, sites, AtomicU32),
            field!(self.base, TriggerHeader, thrown, AtomicU32),
            field!(self.base, TriggerHeader, thrown_anywhere, AtomicU32),
            field!(self.base, TriggerHeader, thrown_types, AtomicU32),
        ] {
            word.store(0, Release);
        }
    }

    /// Replaces the sites in a module's range of code, `first` to `end`, by `sites`, which are in
    /// order. All are written into the half that isn't in use. Returns how many had no space. The
    /// caller holds the module lock.
    pub(crate) fn replace(&self, first: u32, end: u32, sites: impl Iterator<Item = TriggerSite>) -> u32 {
        let old = self.sites();
        let target = old.other(old.room);
        let is_before = |site: &TriggerSite| site.first < first;
        let is_behind = |site: &TriggerSite| site.first >= end;
        let known = || (0..old.count).map(|index| read(self.at(old.at(index))));
        let all = known().filter(is_before).chain(sites).chain(known().filter(is_behind));
        let (mut written, mut left_out, mut floor) = (0, 0, NEVER);
        for site in all {
            if written == target.room {
                left_out += 1;
                let rule = self.rule(site.rule.min(RULES - 1));
                field!(rule, TriggerRule, not_armed, AtomicU64).fetch_add(1, Relaxed);
                continue;
            }
            let place = self.at(target.at(written));
            field!(place, TriggerSite, first, AtomicU32).store(site.first, Relaxed);
            field!(place, TriggerSite, end, AtomicU32).store(site.end, Relaxed);
            field!(place, TriggerSite, rule, AtomicU32).store(site.rule, Relaxed);
            field!(place, TriggerSite, flags, AtomicU32).store(site.flags, Relaxed);
            field!(place, TriggerSite, threshold, AtomicU64).store(site.threshold, Relaxed);
            floor = floor.min(site.threshold);
            written += 1;
        }
        field!(self.base, TriggerHeader, sites, AtomicU32).store(old.other(written).word(), Release);
        field!(self.base, TriggerHeader, floor, AtomicU64).store(floor, SeqCst);
        left_out
    }

    /// The doorbell's value, which changes when a call is posted.
    pub(crate) fn doorbell(&self) -> u32 {
        field!(self.base, TriggerHeader, doorbell, AtomicU32).load(Acquire)
    }

    /// All calls that were posted up to the doorbell's value `doorbell` were written or rejected:
    /// threads need not keep events for them any more. Calls that were posted since wait from now
    /// on, because this shows that a reader exists.
    pub(crate) fn hear(&self, doorbell: u32) {
        field!(self.base, TriggerHeader, posted, AtomicU64).store(everycall_hooks::ticks(), Relaxed);
        field!(self.base, TriggerHeader, heard, AtomicU32).store(doorbell, Release);
    }

    /// Takes the posted call that ended first, and frees its entry.
    pub(crate) fn take_posted(&self) -> Option<TriggeredCall> {
        let is_posted = |call: &*mut u8| {
            field!(*call, TriggeredCall, state, AtomicU32).load(Acquire) == call_state::POSTED
        };
        let end = |call: &*mut u8| field!(*call, TriggeredCall, end_ticks, AtomicU64).load(Relaxed);
        let place = (0..CALLS).map(|index| self.call(index)).filter(is_posted).min_by_key(end)?;
        let call = TriggeredCall {
            rule: field!(place, TriggeredCall, rule, AtomicU32).load(Relaxed),
            code: field!(place, TriggeredCall, code, AtomicU32).load(Relaxed),
            slot: field!(place, TriggeredCall, slot, AtomicU32).load(Relaxed),
            generation: field!(place, TriggeredCall, generation, AtomicU32).load(Relaxed),
            tid: field!(place, TriggeredCall, tid, AtomicU32).load(Relaxed),
            flags: field!(place, TriggeredCall, flags, AtomicU32).load(Relaxed),
            start_ticks: field!(place, TriggeredCall, start_ticks, AtomicU64).load(Relaxed),
            end_ticks: field!(place, TriggeredCall, end_ticks, AtomicU64).load(Relaxed),
            threshold: field!(place, TriggeredCall, threshold, AtomicU64).load(Relaxed),
            events_before: field!(place, TriggeredCall, events_before, AtomicU64).load(Relaxed),
            events_after: field!(place, TriggeredCall, events_after, AtomicU64).load(Relaxed),
            jump_ticks: field!(place, TriggeredCall, jump_ticks, AtomicU64).load(Relaxed),
            target: field!(place, TriggeredCall, target, AtomicU64).load(Relaxed),
            jump_code: field!(place, TriggeredCall, jump_code, AtomicU32).load(Relaxed),
            ..TriggeredCall::default()
        };
        take_back(place);
        Some(call)
    }

    /// Sets which calls of a trigger need not be posted: those up to `until` that took no longer
    /// than `bar`, and all that took no longer than `least`. All values are ticks.
    pub(crate) fn set_quiet(&self, rule: u32, until: u64, bar: u64, least: u64) {
        let rule = self.rule(rule);
        field!(rule, TriggerRule, least, AtomicU64).store(least, Relaxed);
        field!(rule, TriggerRule, bar, AtomicU64).store(bar, Relaxed);
        field!(rule, TriggerRule, quiet_until, AtomicU64).store(until, Release);
    }

    /// Counts a call, posted in entry `index`, that should have been kept and couldn't be.
    pub(crate) fn miss(&self, index: u32) {
        let call = self.call(index);
        let rule = field!(call, TriggeredCall, rule, AtomicU32).load(Relaxed);
        take_back(call);
        self.count_missed(rule.min(RULES - 1));
    }

    /// Functions of a trigger for which there was no space.
    pub(crate) fn not_armed(&self, rule: u32) -> u64 {
        field!(self.rule(rule), TriggerRule, not_armed, AtomicU64).load(Relaxed)
    }

    /// Number of calls that met a trigger's condition, and of those that should have been kept and
    /// couldn't be.
    pub(crate) fn counts(&self, rule: u32) -> (u64, u64) {
        let rule = self.rule(rule);
        (
            field!(rule, TriggerRule, fired, AtomicU64).load(Relaxed),
            field!(rule, TriggerRule, missed, AtomicU64).load(Relaxed),
        )
    }
}

/// Writes what the rules of a set say of frames by id. `threshold` converts a rule's threshold to
/// ticks.
pub(crate) fn put_frames(triggers: &Triggers, set: &SiteSet<'_>, threshold: impl Fn(u64) -> u64) {
    let rules = || (0..RULES).map(|index| set.rule(index));
    let pattern = |rule: SetRule| set.text(rule.pattern_offset, rule.pattern_length);
    let patterns = rules().map(|rule| rule.map_or(&[][..], pattern));
    for (index, (rule, (at, length))) in (0..RULES).zip(rules().zip(places_of_texts(patterns))) {
        let place = triggers.rule(index);
        let text = rule.map_or(&[][..], pattern);
        for (to, byte) in (0..).zip(text.get(..length.into()).unwrap_or(&[])) {
            let to = triggers.at(FRAME_TEXTS_OFFSET + u64::from(at) + to);
            // SAFETY: within the area, whose rules aren't read yet.
            unsafe { to.write(*byte) };
        }
        let (ticks, flags) = rule.map_or((NEVER, 0), |rule| {
            let ticks = if rule.threshold_ns == NEVER { NEVER } else { threshold(rule.threshold_ns) };
            (ticks, if rule.throws == 0 { 0 } else { site_flags::THREW })
        });
        field!(place, TriggerRule, frames_threshold, AtomicU64).store(ticks, Relaxed);
        field!(place, TriggerRule, frames_flags, AtomicU32).store(flags, Relaxed);
        field!(place, TriggerRule, frames_at, AtomicU16).store(at, Relaxed);
        field!(place, TriggerRule, frames_length, AtomicU16).store(length, Release);
    }
}

/// Writes how many rules a set has, and for which exceptions they wait.
pub(crate) fn put_rules(triggers: &Triggers, set: &SiteSet<'_>) {
    field!(triggers.base, TriggerHeader, rules, AtomicU32).store(set.rule_count(), Relaxed);
    let rules_with = |throw: u32| {
        let rules = (0..set.rule_count().min(RULES)).filter_map(|rule| Some((rule, set.rule(rule)?)));
        rules.filter(|(_, set)| set.throws & throw != 0).fold(0, |all, (rule, _)| all | 1 << rule)
    };
    let mut count = 0;
    for (index, thrown) in (0..TYPES).zip(set.types()) {
        let place = triggers.at(type_at(index));
        field!(place, ThrownType, hash, AtomicU64).store(thrown.hash, Relaxed);
        field!(place, ThrownType, rules, AtomicU32).store(thrown.rules, Relaxed);
        count += 1;
    }
    for (word, value) in [
        (field!(triggers.base, TriggerHeader, thrown_types, AtomicU32), count),
        (field!(triggers.base, TriggerHeader, thrown_anywhere, AtomicU32), rules_with(throws::ANYWHERE)),
        (field!(triggers.base, TriggerHeader, thrown, AtomicU32), rules_with(throws::ANY)),
    ] {
        word.store(value, Release);
    }
}

/// Frees the entry of a posted call.
fn take_back(call: *mut u8) {
    field!(call, TriggeredCall, state, AtomicU32).store(call_state::FREE, Release);
}

fn read(site: *mut u8) -> TriggerSite {
    TriggerSite {
        first: field!(site, TriggerSite, first, AtomicU32).load(Relaxed),
        end: field!(site, TriggerSite, end, AtomicU32).load(Relaxed),
        rule: field!(site, TriggerSite, rule, AtomicU32).load(Relaxed),
        flags: field!(site, TriggerSite, flags, AtomicU32).load(Relaxed),
        threshold: field!(site, TriggerSite, threshold, AtomicU64).load(Relaxed),
        ..TriggerSite::default()
    }
}
