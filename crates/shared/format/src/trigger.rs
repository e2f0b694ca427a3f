//! Triggers in the arena: armed functions, and the posted calls that met a condition.
//!
//! ```text
//! ArenaHeader::triggers_at
//!   TriggerHeader, one page with
//!     TriggerRule[RULES]       from 128 on: rule_at
//!     texts                    from 1664 on: FRAME_TEXTS_OFFSET, patterns for frames by id
//!   TriggeredCall[CALLS]       from the second page on: call_at
//!   ThrownType[TYPES]          from the fourth page on: type_at
//!   TriggerSite[trigger_sites] from the eighth page on: Sites::at
//! the same LIVE_AREAS times, each with room for LIVE_SITES sites: ArenaHeader::live_triggers_at
//! ```
//!
//! The first area belongs to the process that made the arena: the recorder, or the traced process
//! itself, which has its triggers from a [set](crate::site_set). That process writes the area's
//! rules and sites. The other areas are for clients of the
//! [control socket](crate::control_socket) that arm functions while the process runs. The traced
//! process gives each client an area, writes its sites, and takes the area back when the client has
//! disconnected.
//!
//! The sites are in the order of their code offsets. There is room for two copies: new sites are
//! written, with all others, into the half that isn't in use, and become valid when
//! [`TriggerHeader::sites`] says so.
//!
//! Frames by id have no sites: a rule has the pattern of their names
//! ([`frame_pattern`](crate::frame_pattern)) and a threshold. The traced process compares each name
//! when it is given, or when the rule is set, and remembers the result by id.
//!
//! The traced process counts calls that meet a condition, and posts them: it takes a free
//! [`TriggeredCall`], fills it and marks it as posted in its state.

use crate::event::{kind, record_word};
use crate::wire::{PAGE, wire_struct};

/// Triggers in one arena.
pub const RULES: u32 = 24;
/// Posted calls that may wait for the process that keeps them.
pub const CALLS: u32 = 64;
/// Default room for sites, in both halves. A function has one site for each trigger that names it.
/// Only used parts take memory.
pub const SITES: u32 = 1 << 21;
/// Where the rules begin, from the header.
const RULES_OFFSET: u64 = 128;
/// Where the patterns for frames by id begin, from the header: UTF-8, one after the other.
pub const FRAME_TEXTS_OFFSET: u64 = RULES_OFFSET + RULES as u64 * size_of::<TriggerRule>() as u64;
/// Bytes for them.
pub const FRAME_TEXTS_SIZE: u64 = CALLS_OFFSET - FRAME_TEXTS_OFFSET;
/// Where the calls begin, from the header.
pub const CALLS_OFFSET: u64 = PAGE;
/// Limit on the exception types that an area's triggers wait for.
pub const TYPES: u32 = 1024;
/// Areas for clients' triggers.
pub const LIVE_AREAS: u32 = 4;
/// Room for sites in each of these areas, in both halves.
pub const LIVE_SITES: u32 = 1 << 16;
/// Where the rules' numbers of uncertain calls begin, from the header: behind the calls.
const PERHAPS_OFFSET: u64 = CALLS_OFFSET + CALLS as u64 * size_of::<TriggeredCall>() as u64;
/// Where the exception types begin, from the header.
const TYPES_OFFSET: u64 = 3 * PAGE;
/// Where the sites begin, from the header.
const SITES_OFFSET: u64 = 7 * PAGE;
/// Bit of [`TriggerHeader::sites`] that says which half is valid.
const SITES_HALF: u32 = 31;
/// The code offset of an entry of [`CALLS`] that is not a call.
pub const NO_CODE: u32 = u32::MAX >> 1;
/// A threshold that no call exceeds.
pub const NEVER: u64 = u64::MAX;
/// [`TriggerHeader::grow_ticks`]: about 100 ms, because the process that keeps calls may have to
/// wait for a CPU.
pub const GROW_TICKS: u64 = 1 << 28;
/// How long a posted call's segments wait for the process that keeps calls: about 10 s. That
/// process may be dead.
pub const WAIT_TICKS: u64 = 1 << 35;

wire_struct! {
    /// The part that concerns all triggers of an area.
    pub struct TriggerHeader [128] {
        /// The lowest threshold of all sites, in ticks; [`NEVER`] if there is none. Calls that took
        /// no longer aren't checked.
        pub floor: u64,
        /// Number of sites; the highest bit is set if they are in the upper half of the room for
        /// them. See [`Sites`].
        pub sites: u32,
        /// Number of rules.
        pub rules: u32,
        /// Changes when a call was posted.
        pub doorbell: u32,
        /// Segments that all threads together may take beyond their rings while calls of armed
        /// functions are open.
        pub segments_allowed: u32,
        /// Segments that they have taken beyond their rings.
        pub segments_used: u32,
        /// The value of [`TriggerHeader::doorbell`] up to which the process that keeps calls has
        /// pinned or rejected all posted calls. While the two differ, and
        /// [`TriggerHeader::posted`] is no longer ago than [`WAIT_TICKS`], threads keep their
        /// segments.
        pub heard: u32,
        /// Ticks for which rings keep their contents after a call was posted.
        pub grow_ticks: u64,
        /// When the process last continued before the recorder had matched a new module's
        /// functions, in ticks; set to 0 when the recorder has read it.
        pub given_up: u64,
        /// Since when posted calls wait, in ticks: when the first of them was posted, or when the
        /// process that keeps calls last checked.
        pub posted: u64,
        /// Times that the recorder has replaced all sites. A forked child copies it with the sites.
        pub generation: u32,
        /// In an area for clients: not 0 while a client has it. Otherwise the area is not in use.
        pub in_use: u32,
        /// Rules that wait for exceptions of any type, a bit for each.
        pub thrown: u32,
        /// Rules that wait for exceptions wherever they are thrown, a bit for each. The others wait
        /// for exceptions thrown in calls of their functions.
        pub thrown_anywhere: u32,
        /// Number of [`ThrownType`]s.
        pub thrown_types: u32,
        /// Zero.
        pub reserved: u32,
        /// Zero.
        pub reserved_too: [u64; 6],
    }
}

wire_struct! {
    /// A trigger.
    pub struct TriggerRule [64] {
        /// Ticks until which calls are only counted, unless they exceed [`TriggerRule::bar`].
        pub quiet_until: u64,
        /// Duration in ticks: see [`TriggerRule::quiet_until`].
        pub bar: u64,
        /// Calls that took no longer than this, in ticks, are only counted, at any time.
        pub least: u64,
        /// Calls that met the condition.
        pub fired: u64,
        /// Calls of these that were to be kept and found no free entry.
        pub missed: u64,
        /// Functions that it names, but that were not armed for lack of room; if the process itself
        /// counts them.
        pub not_armed: u64,
        /// Calls of frames by id that take longer meet the condition, in ticks; [`NEVER`]: none do.
        pub frames_threshold: u64,
        /// A set of [`site_flags`], for frames by id.
        pub frames_flags: u32,
        /// Where the pattern of their names begins among the texts.
        pub frames_at: u16,
        /// Bytes of it; 0 if the rule isn't about frames by id.
        pub frames_length: u16,
    }
}

/// A rule for frames by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRule<'a> {
    /// Which names it means: see [`crate::frame_pattern`]. Empty: none.
    pub pattern: &'a [u8],
    /// In ticks, or [`NEVER`].
    pub threshold: u64,
    /// A set of [`site_flags`].
    pub flags: u32,
}

/// Where the patterns of rules are among the texts: of each, its offset and its length, which is 0
/// for those that have no room.
pub fn places_of_texts<'a>(patterns: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = (u16, u16)> {
    patterns.scan(0, |used, pattern| {
        let end = *used + pattern.len() as u64;
        let place = if end <= FRAME_TEXTS_SIZE { (*used as u16, pattern.len() as u16) } else { (0, 0) };
        *used += u64::from(place.1);
        Some(place)
    })
}

wire_struct! {
    /// A call that met a trigger's condition.
    pub struct TriggeredCall [96] {
        /// One of [`call_state`].
        pub state: u32,
        /// Index of the rule.
        pub rule: u32,
        /// Code offset of its entry.
        pub code: u32,
        /// Its thread's slot.
        pub slot: u32,
        /// The slot's generation.
        pub generation: u32,
        /// Kernel thread id.
        pub tid: u32,
        /// A set of [`call_flags`].
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
        /// When it was entered, ticks.
        pub start_ticks: u64,
        /// When it ended, or was found to have ended, ticks.
        pub end_ticks: u64,
        /// The threshold that it exceeded, in ticks.
        pub threshold: u64,
        /// Events that its thread wrote before its entry.
        pub events_before: u64,
        /// Events that its thread wrote up to its exit, the exit included.
        pub events_after: u64,
        /// With [`call_flags::TAIL`]: when it, or the last function that it reached by tail calls,
        /// jumped, in ticks; otherwise 0.
        pub jump_ticks: u64,
        /// With [`call_flags::TAIL`]: the address to which that jump led; 0 if it isn't known.
        pub target: u64,
        /// With [`call_flags::TAIL`]: the code offset of the exit at that jump; 0 if it isn't
        /// known.
        pub jump_code: u32,
        /// Zero.
        pub reserved_too: u32,
    }
}

impl TriggeredCall {
    /// How long it took, in ticks; at least that, if it is only known how long it took at most.
    #[must_use]
    pub const fn took_at_least(&self) -> u64 {
        let is_at_most = self.flags & call_flags::AT_MOST != 0;
        let until = if is_at_most { self.jump_ticks } else { self.end_ticks };
        until.saturating_sub(self.start_ticks)
    }

    /// Whether it is certain that it exceeded the threshold.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.flags & call_flags::PERHAPS == 0
    }
}

/// [`TriggeredCall::state`].
pub mod call_state {
    /// The entry is free.
    pub const FREE: u32 = 0;
    /// A thread is filling it.
    pub const FILLING: u32 = 1;
    /// It is complete.
    pub const POSTED: u32 = 2;
}

/// [`TriggeredCall::flags`].
pub mod call_flags {
    /// It was unwound; `end_ticks` is when that was detected.
    pub const UNWOUND: u32 = 1;
    /// It is not a call: either a snapshot of this moment was requested, or (with [`THREW`]) no
    /// call was open.
    pub const NO_CALL: u32 = 2;
    /// It was kept when it was entered: its end isn't known.
    pub const ENTERED: u32 = 4;
    /// It ended by a tail call, and the time after that counts.
    pub const TAIL: u32 = 8;
    /// With [`TAIL`]: it took no longer than that. The jump's target isn't traced, so all that is
    /// known is that it had ended by `end_ticks`.
    pub const AT_MOST: u32 = 16;
    /// With [`TAIL`] and [`AT_MOST`]: no event of its thread followed before the thread, the
    /// process or the recording was over.
    pub const NO_NEXT: u32 = 32;
    /// It was kept when an exception was thrown in it: its end isn't known.
    pub const THREW: u32 = 64;
    /// With [`TAIL`] and [`AT_MOST`]: it had not exceeded the threshold when it jumped, so it is
    /// uncertain whether it took that long. Since 2.14.
    pub const PERHAPS: u32 = 128;
}

wire_struct! {
    /// A function that a trigger names.
    pub struct TriggerSite [32] {
        /// Its first code offset.
        pub first: u32,
        /// The code offset after it.
        pub end: u32,
        /// Index of the rule.
        pub rule: u32,
        /// A set of [`site_flags`].
        pub flags: u32,
        /// Calls that take longer meet the condition, in ticks; [`NEVER`]: none do.
        pub threshold: u64,
        /// Zero.
        pub reserved_too: u64,
    }
}

/// [`TriggerSite::flags`].
pub mod site_flags {
    /// For this trigger, a call ends at a tail call.
    pub const NO_TAIL: u32 = 1;
    /// Calls are kept when an exception is thrown in them. Such a site has no threshold.
    pub const THREW: u32 = 2;
    /// Calls are kept when they are entered, if they meet the condition. Such a site has no
    /// threshold.
    pub const ENTERED: u32 = 4;
    /// Calls are kept when they return, if their result meets the condition. Such a site has no
    /// threshold.
    pub const RETURNED: u32 = 8;
    /// First of six bits: the number of the [condition](crate::capture::operation::MEET) at the
    /// entry that calls have to meet, plus 1; 0 if there is none.
    const CONDITION_SHIFT: u32 = 8;
    /// First of six bits: the number of the condition at the return, plus 1.
    const RESULT_SHIFT: u32 = 16;
    const NUMBER: u32 = 63;

    /// The flags for conditions with these numbers at the entry and at the return.
    #[must_use]
    pub const fn with_conditions(entry: Option<u32>, result: Option<u32>) -> u32 {
        const fn bits(number: Option<u32>, shift: u32) -> u32 {
            match number {
                Some(number) => ((number + 1) & NUMBER) << shift,
                None => 0,
            }
        }
        bits(entry, CONDITION_SHIFT) | bits(result, RESULT_SHIFT)
    }

    /// The conditions that a call has to meet at its entry, a bit for each.
    #[must_use]
    pub const fn at_entry(flags: u32) -> u32 {
        condition(flags >> CONDITION_SHIFT & NUMBER)
    }

    /// Those at its return.
    #[must_use]
    pub const fn at_return(flags: u32) -> u32 {
        condition(flags >> RESULT_SHIFT & NUMBER)
    }

    const fn condition(number: u32) -> u32 {
        match number {
            1..=32 => 1 << (number - 1),
            _ => 0,
        }
    }
}

wire_struct! {
    /// An exception type that triggers wait for.
    pub struct ThrownType [16] {
        /// [`type_hash`] of its name in `std::type_info`, without a leading `*`.
        pub hash: u64,
        /// The rules that wait for it, a bit for each.
        pub rules: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// The hash by which a type is identified: FNV-1a of its name.
#[must_use]
pub fn type_hash(name: &[u8]) -> u64 {
    name.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Flags of an entry that stands for a jump.
///
/// A call that ended by a tail call which a trigger follows takes two entries of the open-call
/// stack: its own, and one whose word is [`jump_word`] of the time of the jump. Neither is an open
/// call: the trace has the call's exit. The stamp of the second entry is a set of these flags, with
/// the lowest bits of the call's return address above them.
pub mod jumped {
    /// It is uncertain whether the call above is the one that the jump led to, or a later one.
    pub const UNSURE: u32 = 1;
    /// The call above is the one that the jump led to, or may be.
    pub const PASSED: u32 = 2;
    /// Triggers have judged the call.
    pub const JUDGED: u32 = 4;
    /// First bit of the return address.
    pub const RETURN_SHIFT: u32 = 3;
}

/// The low half of the word of an entry that stands for a jump.
pub const JUMPED: u32 = record_word(0, kind::TAIL_EXIT, 0, 0) as u32;

/// The word of an entry that stands for a jump at `ticks`: see [`jumped`].
#[must_use]
pub const fn jump_word(ticks: u64) -> u64 {
    ticks << 32 | JUMPED as u64
}

/// Whether an entry of the open-call stack stands for a jump. The entry below it is the call that
/// jumped.
#[must_use]
pub const fn is_jump(word: u64) -> bool {
    word as u32 == JUMPED
}

/// Where a rule is, from the header.
#[must_use]
pub const fn rule_at(index: u32) -> u64 {
    RULES_OFFSET + index as u64 * size_of::<TriggerRule>() as u64
}

/// Where the number of calls of a rule is, from the header, that perhaps met its condition: those
/// of [`TriggerRule::fired`] that have [`call_flags::PERHAPS`]. A `u64`.
#[must_use]
pub const fn perhaps_at(index: u32) -> u64 {
    PERHAPS_OFFSET + index as u64 * size_of::<u64>() as u64
}

/// Where an exception type is, from the header.
#[must_use]
pub const fn type_at(index: u32) -> u64 {
    TYPES_OFFSET + index as u64 * size_of::<ThrownType>() as u64
}

/// Where a call's entry is, from the header.
#[must_use]
pub const fn call_at(index: u32) -> u64 {
    CALLS_OFFSET + index as u64 * size_of::<TriggeredCall>() as u64
}

/// The valid sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sites {
    /// The half of the room in which they are: 0 or 1.
    half: u32,
    /// Number of sites.
    pub count: u32,
    /// Number of sites that fit into a half.
    pub room: u32,
}

impl Sites {
    /// Decodes [`TriggerHeader::sites`], if there is room for `capacity` sites in both halves.
    #[must_use]
    pub const fn of(word: u32, capacity: u32) -> Sites {
        let most = 1 << (SITES_HALF - 1);
        let room = if capacity / 2 < most { capacity / 2 } else { most };
        let count = word & !(1 << SITES_HALF);
        Sites { half: word >> SITES_HALF, count: if count < room { count } else { room }, room }
    }

    /// The other half, which is not in use, with `count` sites, or as many of them as fit.
    #[must_use]
    pub const fn other(self, count: u32) -> Sites {
        Sites { half: self.half ^ 1, count: if count < self.room { count } else { self.room }, ..self }
    }

    /// Where site `index` is, from the header.
    #[must_use]
    pub const fn at(self, index: u32) -> u64 {
        let before = self.half as u64 * self.room as u64 + index as u64;
        SITES_OFFSET + before * size_of::<TriggerSite>() as u64
    }

    /// The value for [`TriggerHeader::sites`].
    #[must_use]
    pub const fn word(self) -> u32 {
        self.half << SITES_HALF | self.count
    }
}

/// Bytes of an area with room for `sites` sites, in both halves.
#[must_use]
pub const fn area_size(sites: u32) -> u64 {
    if sites == 0 {
        return 0;
    }
    (SITES_OFFSET + sites as u64 * size_of::<TriggerSite>() as u64).next_multiple_of(PAGE)
}

const _: () = assert!(FRAME_TEXTS_OFFSET == 1664 && FRAME_TEXTS_SIZE > 2000);
const _: () = assert!(perhaps_at(RULES) <= TYPES_OFFSET);
const _: () = assert!(TYPES_OFFSET + TYPES as u64 * size_of::<ThrownType>() as u64 <= SITES_OFFSET);

/// The entries for posted calls of a rule, of `rules` that there are (0: unknown), in the order in
/// which they are taken. Half of all entries are shared. Of the others, each rule has an equal
/// part, so that one that fires often can't take every entry from one that fires rarely.
pub fn calls_for(rule: u32, rules: u32) -> impl Iterator<Item = u32> {
    let own = if rule < rules && rules <= RULES { CALLS / 2 / rules } else { 0 };
    let first = rule.wrapping_mul(own);
    (own * rules.min(RULES)..CALLS).chain(first..first + own)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn every_rule_has_entries_of_its_own() {
        for rules in 1..=RULES {
            let all: Vec<Vec<u32>> = (0..rules).map(|rule| calls_for(rule, rules).collect()).collect();
            for (rule, entries) in all.iter().enumerate() {
                let others = || all.iter().enumerate().filter(|(other, _)| *other != rule);
                let own = entries.iter().filter(|entry| others().all(|(_, other)| !other.contains(entry)));
                assert!(own.count() as u32 >= CALLS / 2 / rules, "{rule} of {rules}");
                assert!(entries.iter().all(|entry| *entry < CALLS) && entries.len() as u32 >= CALLS / 2);
            }
        }
        assert_eq!(calls_for(0, 1).count(), CALLS as usize);
        // Shared memory may have any numbers.
        for (rule, rules) in [(0, 0), (7, 3), (u32::MAX, u32::MAX), (3, RULES + 1), (u32::MAX, 0)] {
            assert!(calls_for(rule, rules).all(|entry| entry < CALLS), "{rule} {rules}");
        }
    }

    #[test]
    fn sites_are_where_their_word_says() {
        for (word, capacity, expected) in [
            (0, 10, Sites { half: 0, count: 0, room: 5 }),
            (1 << 31 | 3, 10, Sites { half: 1, count: 3, room: 5 }),
            (9, 10, Sites { half: 0, count: 5, room: 5 }),
            (u32::MAX, u32::MAX, Sites { half: 1, count: 1 << 30, room: 1 << 30 }),
            (1 << 31 | 1, 1, Sites { half: 1, count: 0, room: 0 }),
        ] {
            let sites = Sites::of(word, capacity);
            assert_eq!(sites, expected, "{word:#x}");
            assert_eq!(Sites::of(sites.word(), capacity), sites, "{word:#x}");
            let other = sites.other(2);
            assert_eq!((other.half, other.count), (sites.half ^ 1, 2.min(sites.room)), "{word:#x}");
        }
        assert_eq!(Sites::of(3, 10).at(2), SITES_OFFSET + 64);
        assert_eq!(Sites::of(1 << 31 | 3, 10).at(2), SITES_OFFSET + 7 * 32);
    }
}
