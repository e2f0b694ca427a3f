//! Triggers in the arena: which calls are to be kept.
//!
//! ```text
//! ArenaHeader::triggers_at
//!   TriggerHeader, one page with
//!     TriggerRule[RULES]       from 128 on: rule_at
//!   TriggeredCall[CALLS]       from the second page on: call_at
//!   ThrownType[TYPES]          from the fourth page on: type_at
//!   TriggerSite[trigger_sites] from the eighth page on: Sites::at
//! the same LIVE_AREAS times, each with room for LIVE_SITES sites: ArenaHeader::live_triggers_at
//! ```
//!
//! The first of these areas belongs to the process that made the arena, the others to clients of
//! the [control socket](crate::control) that arm functions while the process runs: the process
//! gives each client an area, and takes it back when the client has disconnected.
//!
//! The process that made the arena writes rules and sites: the recorder, or the process itself from
//! a [set](crate::site_set). The sites are in order of their code offsets. There is room for them
//! twice: if sites are added, all of them are written into the other half, which becomes valid when
//! [`TriggerHeader::sites`] says so. The traced process counts and posts calls: it takes a free
//! [`TriggeredCall`], fills it and marks it as posted in its state.

use crate::event::{kind, record_word};
use crate::wire::{PAGE, wire_struct};

/// Triggers in one arena.
pub const RULES: u32 = 24;
/// Calls that may wait for the process that keeps them.
pub const CALLS: u32 = 64;
/// Default room for sites, for both halves: functions that triggers name, once for each trigger. It
/// is address space; only used parts take memory.
pub const SITES: u32 = 1 << 21;
/// Where the rules begin, from the header.
const RULES_OFFSET: u64 = 128;
/// Where the calls begin, from the header.
const CALLS_OFFSET: u64 = PAGE;
/// Types of exceptions that triggers wait for, in one area.
pub const TYPES: u32 = 1024;
/// Areas for triggers that others arm while the process runs.
pub const LIVE_AREAS: u32 = 4;
/// Room for sites in each of them, for both halves.
pub const LIVE_SITES: u32 = 1 << 16;
/// Where the types of exceptions begin, from the header.
const TYPES_OFFSET: u64 = 3 * PAGE;
/// Where the sites begin, from the header.
const SITES_OFFSET: u64 = 7 * PAGE;
/// Bit of [`TriggerHeader::sites`].
const SITES_HALF: u32 = 31;
/// The code offset of an entry that is not a call.
pub const NO_CODE: u32 = u32::MAX >> 1;
/// A threshold that no call exceeds.
pub const NEVER: u64 = u64::MAX;
/// [`TriggerHeader::grow_ticks`]: some 100 ms, because the process that keeps calls may have to
/// wait for a CPU.
pub const GROW_TICKS: u64 = 1 << 28;
/// How long a posted call's segments wait for the process that keeps calls, which may have died:
/// some 10 s.
pub const WAIT_TICKS: u64 = 1 << 35;

wire_struct! {
    /// What belongs to all triggers.
    pub struct TriggerHeader [128] {
        /// The lowest threshold of all sites, in ticks; [`NEVER`] if none is armed. Exits of calls
        /// that didn't take longer aren't checked.
        pub floor: u64,
        /// Number of sites; the highest bit is set if they are in the upper half of the room for
        /// them. See [`Sites`].
        pub sites: u32,
        /// Rules that are there.
        pub rules: u32,
        /// Changes when a call was posted.
        pub bell: u32,
        /// Segments that threads may take beyond their rings while matching calls are open, all
        /// together.
        pub segments_allowed: u32,
        /// Segments that they have taken so.
        pub segments_used: u32,
        /// The value of [`TriggerHeader::bell`] when the process that keeps calls last read it,
        /// once all calls posted by then are pinned or not wanted. While the two differ, and
        /// [`TriggerHeader::posted`] is not longer ago than [`WAIT_TICKS`], threads keep their
        /// segments.
        pub heard: u32,
        /// Ticks for which all threads keep their oldest segments after a call was posted.
        pub grow_ticks: u64,
        /// When the process last continued although the recorder hadn't named a new module's
        /// functions yet, in ticks; 0 once the recorder has noticed it.
        pub given_up: u64,
        /// Since when the calls that have not been pinned wait: when the first of them was posted,
        /// or when the process that keeps calls last checked, in ticks.
        pub posted: u64,
        /// Counts how often the recorder has replaced all sites. A forked child takes it over with
        /// the sites.
        pub generation: u32,
        /// Of an area that clients get: not 0 while one has it. Else nothing in it counts.
        pub in_use: u32,
        /// Rules that wait for exceptions of any type, a bit for each.
        pub thrown: u32,
        /// Rules that wait for exceptions wherever they are thrown; the others wait for those in
        /// calls of their functions.
        pub thrown_anywhere: u32,
        /// [`ThrownType`]s that are there.
        pub thrown_types: u32,
        /// Zero.
        pub reserved: u32,
        /// Zero.
        pub reserved_too: [u64; 6],
    }
}

wire_struct! {
    /// What belongs to one trigger.
    pub struct TriggerRule [64] {
        /// Until then (ticks) calls are only counted ...
        pub quiet_until: u64,
        /// ... unless they took longer than this, in ticks.
        pub bar: u64,
        /// Calls that took no longer than this, in ticks, are only counted, whenever they come.
        pub least: u64,
        /// Calls that met the condition.
        pub fired: u64,
        /// Calls of these that met the condition and found no free entry.
        pub missed: u64,
        /// Functions that match but for which there was no room among the sites: their calls aren't
        /// checked.
        pub not_armed: u64,
        /// Zero.
        pub reserved: [u64; 2],
    }
}

wire_struct! {
    /// A call that met a condition.
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
        /// When it was entered.
        pub start_ticks: u64,
        /// When it was left.
        pub end_ticks: u64,
        /// What it had to exceed, in ticks.
        pub threshold: u64,
        /// Events that its thread wrote before its entry.
        pub events_before: u64,
        /// The same up to its exit, that included.
        pub events_after: u64,
        /// With [`call_flags::TAIL`]: when it, or the last function that it reached by tail calls,
        /// jumped away, in ticks; otherwise 0.
        pub jump_ticks: u64,
        /// With [`call_flags::TAIL`]: the address to which that jump led; 0 where that isn't known.
        pub target: u64,
        /// With [`call_flags::TAIL`]: the code offset in front of that jump, from its exit; 0 if it
        /// isn't known.
        pub jump_code: u32,
        /// Zero.
        pub reserved_too: u32,
    }
}

/// [`TriggeredCall::state`].
pub mod call_state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A thread fills it.
    pub const FILLING: u32 = 1;
    /// It is there.
    pub const POSTED: u32 = 2;
}

/// [`TriggeredCall::flags`].
pub mod call_flags {
    /// It was left by an exception or a jump; `end_ticks` is when that was noticed.
    pub const UNWOUND: u32 = 1;
    /// It is not a call: a snapshot of this moment was requested.
    pub const NO_CALL: u32 = 2;
    /// It was kept at its entry: its end isn't known.
    pub const ENTERED: u32 = 4;
    /// It ended by a jump into another function (a tail call), and the time behind that jump
    /// counts.
    pub const TAIL: u32 = 8;
    /// It took no longer than that: where the jump led to isn't traced, so all that is known is
    /// that it had ended at `end_ticks`.
    pub const AT_MOST: u32 = 16;
    /// With both: no event shows yet that it has ended. The thread, the process or the recording
    /// ended first.
    pub const NO_NEXT: u32 = 32;
    /// It was kept when an exception was thrown in it: its end isn't known.
    pub const THREW: u32 = 64;
}

wire_struct! {
    /// A function that a trigger names.
    pub struct TriggerSite [32] {
        /// Its first code offset.
        pub first: u32,
        /// The code offset behind it.
        pub end: u32,
        /// Index of the rule.
        pub rule: u32,
        /// A set of [`site_flags`].
        pub flags: u32,
        /// Calls that take longer are kept, in ticks; [`NEVER`] while it isn't armed.
        pub threshold: u64,
        /// Zero.
        pub reserved_too: u64,
    }
}

/// [`TriggerSite::flags`].
pub mod site_flags {
    /// A call ends, for this trigger, where it jumps into another function.
    pub const NO_TAIL: u32 = 1;
    /// A call is kept when an exception is thrown in it. Such a site has no threshold.
    pub const THREW: u32 = 2;
}

wire_struct! {
    /// A type of exceptions that triggers wait for.
    pub struct ThrownType [16] {
        /// [`type_hash`] of its name, as the C++ ABI has it in `std::type_info`.
        pub hash: u64,
        /// The rules that wait for it, a bit for each.
        pub rules: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// What a type is known by: the hash (FNV-1a) of its name.
#[must_use]
pub fn type_hash(name: &[u8]) -> u64 {
    name.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A call that has jumped away and may continue behind that jump takes two entries in a stack of
/// open calls: its own, and one whose word is [`jump_word`] of the time of the jump. Neither is an
/// open call: the trace has the call's exit. The second one's stamp is a set of these, with the
/// lowest bits of the call's return address above them.
pub mod jumped {
    /// The call above may be the one that it jumped to, or a later one.
    pub const UNSURE: u32 = 1;
    /// The call above is the one that it jumped to.
    pub const PASSED: u32 = 2;
    /// Triggers have had it.
    pub const JUDGED: u32 = 4;
    /// The return address begins here.
    pub const RETURN_SHIFT: u32 = 3;
}

/// The low half of the word of an entry that describes a jump.
pub const JUMPED: u32 = record_word(0, kind::TAIL_EXIT, 0, 0) as u32;

/// See [`jumped`].
#[must_use]
pub const fn jump_word(ticks: u64) -> u64 {
    ticks << 32 | JUMPED as u64
}

/// Whether an entry of a stack of open calls is that of a jump; the one below it is the call that
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

/// Where a type of exceptions is, from the header.
#[must_use]
pub const fn type_at(index: u32) -> u64 {
    TYPES_OFFSET + index as u64 * size_of::<ThrownType>() as u64
}

/// Where a call's entry is, from the header.
#[must_use]
pub const fn call_at(index: u32) -> u64 {
    CALLS_OFFSET + index as u64 * size_of::<TriggeredCall>() as u64
}

/// The sites that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sites {
    /// Which half of the room they lie in: 0 or 1.
    half: u32,
    /// How many there are.
    pub count: u32,
    /// How many fit.
    pub room: u32,
}

impl Sites {
    /// What [`TriggerHeader::sites`] says, where there is room for `capacity` of them in both
    /// halves.
    #[must_use]
    pub const fn of(word: u32, capacity: u32) -> Sites {
        let most = 1 << (SITES_HALF - 1);
        let room = if capacity / 2 < most { capacity / 2 } else { most };
        let count = word & !(1 << SITES_HALF);
        Sites { half: word >> SITES_HALF, count: if count < room { count } else { room }, room }
    }

    /// As many of `count` as fit into the other half, which is not in use.
    #[must_use]
    pub const fn other(self, count: u32) -> Sites {
        Sites { half: self.half ^ 1, count: if count < self.room { count } else { self.room }, ..self }
    }

    /// Where one of them is, from the header.
    #[must_use]
    pub const fn at(self, index: u32) -> u64 {
        let before = self.half as u64 * self.room as u64 + index as u64;
        SITES_OFFSET + before * size_of::<TriggerSite>() as u64
    }

    /// For [`TriggerHeader::sites`].
    #[must_use]
    pub const fn word(self) -> u32 {
        self.half << SITES_HALF | self.count
    }
}

/// Bytes for the triggers of an arena with `sites` sites.
#[must_use]
pub const fn area_size(sites: u32) -> u64 {
    if sites == 0 {
        return 0;
    }
    (SITES_OFFSET + sites as u64 * size_of::<TriggerSite>() as u64).next_multiple_of(PAGE)
}

const _: () = assert!(RULES_OFFSET + RULES as u64 * size_of::<TriggerRule>() as u64 <= CALLS_OFFSET);
const _: () = assert!(CALLS_OFFSET + CALLS as u64 * size_of::<TriggeredCall>() as u64 <= TYPES_OFFSET);
const _: () = assert!(TYPES_OFFSET + TYPES as u64 * size_of::<ThrownType>() as u64 <= SITES_OFFSET);

#[cfg(test)]
mod tests {
    use super::*;

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
