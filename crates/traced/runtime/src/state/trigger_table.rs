//! The triggers of an arena: which functions are armed, and the posted calls.
#![allow(unsafe_code)] // Shared memory: fields of structures in the arena, by their addresses.

use crate::state::arena::Arena;
use crate::state::process::Process;
use crate::state::{live_areas, named_frames};
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, Ordering::SeqCst, fence,
};
use everycall_format::event::ESCAPE_FIRST;
use everycall_format::trigger::{
    CALLS, FRAME_TEXTS_OFFSET, FRAME_TEXTS_SIZE, LIVE_AREAS, LIVE_SITES, NEVER, RULES, Sites, TYPES,
    ThrownType, TriggerHeader, TriggerRule, TriggerSite, TriggeredCall, WAIT_TICKS, area_size, call_at,
    call_state, calls_for, perhaps_at, rule_at, site_flags, type_at,
};
use everycall_ring::Control;

/// The triggers of an arena that has space for them.
#[derive(Clone, Copy)]
pub(crate) struct Triggers {
    pub(crate) base: *mut u8,
    pub(crate) capacity: u32,
    /// Which area this is: 0, or that of a client plus 1.
    pub(crate) area: usize,
    /// Whether they are a client's, armed while the process runs.
    pub(crate) is_live: bool,
}

/// A function that a trigger names.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) rule: u32,
    pub(crate) threshold: u64,
    /// Whether tail calls count as part of the call.
    pub(crate) counts_tails: bool,
    /// Whether calls are kept when an exception is thrown in them.
    pub(crate) is_for_throws: bool,
    /// Whether calls are kept when they are entered, or when they return, as their values decide.
    pub(crate) when: When,
    /// The conditions that calls have to meet at the entry, a bit for each.
    pub(crate) conditions: u32,
    /// Those that they have to meet at the return.
    pub(crate) results: u32,
}

/// When a trigger decides about a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Its duration or an exception does.
    Else,
    /// When it is entered.
    Entered,
    /// When it returns.
    Returned,
}

impl Site {
    fn new(rule: u32, threshold: u64, flags: u32) -> Site {
        Site {
            rule,
            threshold,
            counts_tails: flags & site_flags::NO_TAIL == 0,
            is_for_throws: flags & site_flags::THREW != 0,
            when: match flags & (site_flags::ENTERED | site_flags::RETURNED) {
                0 => When::Else,
                site_flags::ENTERED => When::Entered,
                _ => When::Returned,
            },
            conditions: site_flags::at_entry(flags),
            results: site_flags::at_return(flags),
        }
    }

    /// That of a rule for exceptions.
    pub(crate) fn of_throws(rule: u32) -> Site {
        Site::new(rule, 1, site_flags::THREW)
    }

    /// Whether a call that met these conditions when it was entered meets those of the site.
    pub(crate) fn is_met(&self, met: u32) -> bool {
        self.conditions & !met == 0
    }

    /// Whether open calls may be kept later.
    pub(crate) fn needs_events(&self) -> bool {
        self.threshold != NEVER || self.is_for_throws || self.when == When::Returned
    }
}

impl Triggers {
    /// The triggers of `record` or of the process itself in `arena`. `None` if it has no space for
    /// any.
    pub(crate) fn of(arena: &Arena) -> Option<Triggers> {
        let layout = arena.layout();
        let base = arena.base().wrapping_add(layout.triggers_at()? as usize);
        Some(Triggers { base, capacity: layout.trigger_sites, area: 0, is_live: false })
    }

    /// Area `index` for clients' triggers. `None` if there is no such area.
    pub(crate) fn live(arena: &Arena, index: u32) -> Option<Triggers> {
        let at = arena.layout().live_triggers_at(index)?;
        let base = arena.base().wrapping_add(at as usize);
        Some(Triggers { base, capacity: LIVE_SITES, area: 1 + index as usize, is_live: true })
    }

    /// All triggers of `arena`: those of `record` or of the process itself, and those of clients.
    pub(crate) fn all(arena: &Arena) -> impl Iterator<Item = Triggers> + Clone + use<> {
        let in_use = live_areas::in_use();
        let first_live = if in_use == 0 { None } else { Triggers::live(arena, 0) };
        let areas = (0..LIVE_AREAS).filter(move |index| in_use & 1 << index != 0);
        let live = first_live.into_iter().flat_map(move |first| {
            areas.clone().map(move |index| {
                let before = u64::from(index) * area_size(LIVE_SITES);
                let area = 1 + index as usize;
                Triggers { base: first.base.wrapping_add(before as usize), area, ..first }
            })
        });
        Triggers::of(arena).into_iter().chain(live)
    }

    /// The lowest threshold.
    pub(crate) fn floor(&self) -> u64 {
        let of_sites = self.floor_of_sites();
        if !named_frames::are_any(self.area) {
            return of_sites;
        }
        let of_frames = self.frame_rules().map(|(rule, _)| self.frame_site(rule).threshold);
        of_frames.fold(of_sites, u64::min)
    }

    fn floor_of_sites(&self) -> u64 {
        field!(self.base, TriggerHeader, floor, AtomicU64).load(SeqCst)
    }

    /// The rules that are about frames by id, with the patterns of their names.
    pub(crate) fn frame_rules(&self) -> impl Iterator<Item = (u32, &'static [u8])> + use<> {
        let triggers = *self;
        (0..RULES).filter_map(move |index| {
            let rule = triggers.rule(index);
            let length = u64::from(field!(rule, TriggerRule, frames_length, AtomicU16).load(Relaxed));
            let at = u64::from(field!(rule, TriggerRule, frames_at, AtomicU16).load(Relaxed));
            if length == 0 || at + length > FRAME_TEXTS_SIZE {
                return None;
            }
            let text = triggers.at(FRAME_TEXTS_OFFSET + at).cast_const();
            // SAFETY: within the area. Texts are written before the rules are looked at.
            Some((index, unsafe { core::slice::from_raw_parts(text, length as usize) }))
        })
    }

    /// The trigger site of a rule for the frames by id that it names.
    fn frame_site(&self, index: u32) -> Site {
        let rule = self.rule(index);
        let flags = field!(rule, TriggerRule, frames_flags, AtomicU32).load(Relaxed);
        Site::new(index, field!(rule, TriggerRule, frames_threshold, AtomicU64).load(SeqCst), flags)
    }

    pub(crate) fn sites(&self) -> Sites {
        Sites::of(field!(self.base, TriggerHeader, sites, AtomicU32).load(Acquire), self.capacity)
    }

    /// The address `offset` bytes after the start of the header.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    pub(crate) fn has_sites(&self) -> bool {
        self.sites().count > 0 || named_frames::are_any(self.area)
    }

    /// The sites that contain `code`. Sites are ordered, so those of one function are adjacent.
    pub(crate) fn sites_at(&self, code: u32) -> impl Iterator<Item = Site> + use<> {
        let (triggers, sites) = (*self, self.sites());
        let count = if code >= ESCAPE_FIRST { 0 } else { sites.count };
        let rules = named_frames::rules_of(self.area, code);
        let frames = (0..RULES).filter(move |rule| rules & 1 << rule != 0);
        let at = move |index: u32| triggers.at(sites.at(index));
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if field!(at(middle), TriggerSite, end, AtomicU32).load(Relaxed) <= code {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let of_code = (low..count)
            .map(at)
            .take_while(move |site| field!(site, TriggerSite, first, AtomicU32).load(Relaxed) <= code)
            .map(|site| {
                let rule = field!(site, TriggerSite, rule, AtomicU32).load(Relaxed).min(RULES - 1);
                Site::new(rule, field!(site, TriggerSite, threshold, AtomicU64).load(Relaxed), flags_of(site))
            });
        frames.map(move |rule| triggers.frame_site(rule)).chain(of_code)
    }

    /// Whether a trigger follows the tail calls of the function with this code.
    pub(crate) fn follows_tails_of(&self, code: u32) -> bool {
        self.sites_at(code).any(|site| site.counts_tails)
    }

    /// The ranges of code whose tail calls are followed.
    pub(crate) fn ranges_with_tails(self) -> impl Iterator<Item = (u32, u32)> + Clone {
        self.ranges(|flags| flags & site_flags::NO_TAIL == 0)
    }

    /// The ranges of code of the functions whose sites have flags that `are_meant` accepts.
    pub(crate) fn ranges(
        self,
        are_meant: impl Fn(u32) -> bool + Clone,
    ) -> impl Iterator<Item = (u32, u32)> + Clone {
        let sites = self.sites();
        (0..sites.count).map(move |index| self.at(sites.at(index))).filter_map(move |site| {
            let first = field!(site, TriggerSite, first, AtomicU32).load(Relaxed);
            let end = field!(site, TriggerSite, end, AtomicU32).load(Relaxed);
            (are_meant(flags_of(site)) && first < end).then_some((first, end))
        })
    }

    pub(crate) fn names(&self, code: u32) -> bool {
        self.sites_at(code).any(|site| site.needs_events())
    }

    /// Whether a trigger waits for exceptions.
    pub(crate) fn waits_for_throws(&self) -> bool {
        field!(self.base, TriggerHeader, thrown, AtomicU32).load(Relaxed) != 0
            || field!(self.base, TriggerHeader, thrown_types, AtomicU32).load(Relaxed) != 0
    }

    /// The rules that wait for exceptions of the type with this hash, a bit for each.
    pub(crate) fn rules_for_throw(&self, hash: Option<u64>) -> u32 {
        let any = field!(self.base, TriggerHeader, thrown, AtomicU32).load(Acquire);
        let count = field!(self.base, TriggerHeader, thrown_types, AtomicU32).load(Acquire).min(TYPES);
        let types = (0..count).map(|index| self.at(type_at(index)));
        let rules = types
            .filter(|place| Some(field!(*place, ThrownType, hash, AtomicU64).load(Relaxed)) == hash)
            .map(|place| field!(place, ThrownType, rules, AtomicU32).load(Relaxed));
        rules.fold(any, |all, rules| all | rules)
    }

    /// The rules that wait for exceptions wherever they are thrown.
    pub(crate) fn rules_for_throws_anywhere(&self) -> u32 {
        field!(self.base, TriggerHeader, thrown_anywhere, AtomicU32).load(Relaxed)
    }

    pub(crate) fn rule(&self, index: u32) -> *mut u8 {
        self.at(rule_at(index))
    }

    pub(crate) fn call(&self, index: u32) -> *mut u8 {
        self.at(call_at(index))
    }

    /// Takes a free entry for a call of a rule. Returns its index.
    pub(crate) fn take_call(&self, rule: u32) -> Option<u32> {
        let rules = field!(self.base, TriggerHeader, rules, AtomicU32).load(Relaxed);
        calls_for(rule, rules).find(|index| {
            let state = field!(self.call(*index), TriggeredCall, state, AtomicU32);
            state.load(Relaxed) == call_state::FREE
                && state.compare_exchange(call_state::FREE, call_state::FILLING, AcqRel, Relaxed).is_ok()
        })
    }

    /// The number of calls of a rule that perhaps met its condition.
    pub(crate) fn perhaps(&self, rule: u32) -> &AtomicU64 {
        // SAFETY: within the area, which is never unmapped, and aligned.
        unsafe { &*self.at(perhaps_at(rule)).cast::<AtomicU64>() }
    }

    /// Counts a call that met a trigger's condition, perhaps if not `is_certain`, and ended at
    /// `end` after at least `took` ticks. Returns whether it should be posted.
    pub(crate) fn fire(&self, rule: u32, end: u64, took: u64, is_certain: bool) -> bool {
        if !is_certain {
            self.perhaps(rule).fetch_add(1, Relaxed);
        }
        let rule = self.rule(rule);
        field!(rule, TriggerRule, fired, AtomicU64).fetch_add(1, Relaxed);
        let is_quiet = end < field!(rule, TriggerRule, quiet_until, AtomicU64).load(Relaxed)
            && took <= field!(rule, TriggerRule, bar, AtomicU64).load(Relaxed);
        !is_quiet && took > field!(rule, TriggerRule, least, AtomicU64).load(Relaxed)
    }

    /// Counts a call that should have been kept and couldn't be.
    pub(crate) fn count_missed(&self, rule: u32) {
        field!(self.rule(rule), TriggerRule, missed, AtomicU64).fetch_add(1, Relaxed);
    }

    /// How long threads have to keep their events when a call is posted.
    pub(crate) fn grow_ticks(&self) -> u64 {
        field!(self.base, TriggerHeader, grow_ticks, AtomicU64).load(Relaxed)
    }

    /// Posts a call in an entry from [`Triggers::take_call`].
    pub(crate) fn post(&self, index: u32, new: &TriggeredCall) {
        let call = self.call(index);
        field!(call, TriggeredCall, rule, AtomicU32).store(new.rule, Relaxed);
        field!(call, TriggeredCall, code, AtomicU32).store(new.code, Relaxed);
        field!(call, TriggeredCall, slot, AtomicU32).store(new.slot, Relaxed);
        field!(call, TriggeredCall, generation, AtomicU32).store(new.generation, Relaxed);
        field!(call, TriggeredCall, tid, AtomicU32).store(new.tid, Relaxed);
        field!(call, TriggeredCall, flags, AtomicU32).store(new.flags, Relaxed);
        field!(call, TriggeredCall, start_ticks, AtomicU64).store(new.start_ticks, Relaxed);
        field!(call, TriggeredCall, end_ticks, AtomicU64).store(new.end_ticks, Relaxed);
        field!(call, TriggeredCall, threshold, AtomicU64).store(new.threshold, Relaxed);
        field!(call, TriggeredCall, events_before, AtomicU64).store(new.events_before, Relaxed);
        field!(call, TriggeredCall, events_after, AtomicU64).store(new.events_after, Relaxed);
        field!(call, TriggeredCall, jump_ticks, AtomicU64).store(new.jump_ticks, Relaxed);
        field!(call, TriggeredCall, target, AtomicU64).store(new.target, Relaxed);
        field!(call, TriggeredCall, jump_code, AtomicU32).store(new.jump_code, Relaxed);
        // The time since which calls wait is stored before the doorbell changes, so that a reader
        // of the doorbell finds it valid. It is that of the first waiting call: the process that
        // keeps calls may be dead, and further calls must not prolong the wait.
        let doorbell = field!(self.base, TriggerHeader, doorbell, AtomicU32).load(Relaxed);
        if doorbell == field!(self.base, TriggerHeader, heard, AtomicU32).load(Acquire) {
            field!(self.base, TriggerHeader, posted, AtomicU64).store(everycall_hooks::ticks(), Relaxed);
        }
        field!(call, TriggeredCall, state, AtomicU32).store(call_state::POSTED, Release);
        field!(self.base, TriggerHeader, doorbell, AtomicU32).fetch_add(1, Release);
    }

    /// Whether a posted call waits for the process that keeps calls to pin its segments, and not
    /// for too long.
    pub(crate) fn is_awaited(&self) -> bool {
        let doorbell = field!(self.base, TriggerHeader, doorbell, AtomicU32).load(Acquire);
        doorbell != field!(self.base, TriggerHeader, heard, AtomicU32).load(Acquire) && {
            let posted = field!(self.base, TriggerHeader, posted, AtomicU64).load(Relaxed);
            everycall_hooks::ticks().saturating_sub(posted) < WAIT_TICKS
        }
    }

    /// Whether a call of the thread in slot `slot` with this generation was posted recently.
    pub(crate) fn has_call_of(&self, slot: u32, generation: u32) -> bool {
        (0..CALLS).map(|index| self.call(index)).any(|call| {
            field!(call, TriggeredCall, slot, AtomicU32).load(Relaxed) == slot
                && field!(call, TriggeredCall, generation, AtomicU32).load(Relaxed) == generation
                && field!(call, TriggeredCall, threshold, AtomicU64).load(Relaxed) != 0
        })
    }

    /// Records that the process continues before the recorder has matched a module's functions.
    pub(crate) fn give_up(&self) {
        field!(self.base, TriggerHeader, given_up, AtomicU64).store(everycall_hooks::ticks(), SeqCst);
    }

    /// A number that changes when the recorder has replaced the sites.
    pub(crate) fn generation(&self) -> u32 {
        field!(self.base, TriggerHeader, generation, AtomicU32).load(Acquire)
    }

    /// The data that a forked child copies from its parent's triggers.
    pub(crate) fn inheritance(&self, arena: &Arena) -> Inheritance {
        // The recorder publishes sites before their generation.
        let generation = self.generation();
        let word = field!(self.base, TriggerHeader, sites, AtomicU32).load(Acquire);
        let given_up = field!(self.base, TriggerHeader, given_up, AtomicU64).load(SeqCst);
        let mut floor_and_sites = [0; FLOOR_AND_SITES];
        let (floor, count) = floor_and_sites.split_at_mut(size_of::<u64>());
        floor.copy_from_slice(&self.floor_of_sites().to_le_bytes());
        count.copy_from_slice(&word.to_le_bytes());
        let mut throws = [0; THROWS];
        for (bytes, value) in throws.as_chunks_mut().0.iter_mut().zip([
            field!(self.base, TriggerHeader, thrown, AtomicU32).load(Acquire),
            field!(self.base, TriggerHeader, thrown_anywhere, AtomicU32).load(Acquire),
            field!(self.base, TriggerHeader, thrown_types, AtomicU32).load(Acquire),
        ]) {
            *bytes = value.to_le_bytes();
        }
        let types = field!(self.base, TriggerHeader, thrown_types, AtomicU32).load(Acquire).min(TYPES);
        let (types_at, types_size) = (self.at(type_at(0)), types as usize * size_of::<ThrownType>());
        let sites = Sites::of(word, self.capacity);
        let address = self.at(sites.at(0));
        let size = u64::from(sites.count) * size_of::<TriggerSite>() as u64;
        Inheritance {
            triggers: *self,
            word,
            at: arena.offset_of(self.base as u64),
            floor_and_sites,
            given_up: given_up.to_le_bytes(),
            generation: generation.to_le_bytes(),
            throws,
            // SAFETY: as below. The recorder only adds to them.
            types: (arena.offset_of(types_at as u64), unsafe {
                core::slice::from_raw_parts(types_at.cast_const(), types_size)
            }),
            // SAFETY: within the triggers, which are never unmapped. The recorder writes new sites
            // into the other half.
            sites: (arena.offset_of(address as u64), unsafe {
                core::slice::from_raw_parts(address.cast_const(), size as usize)
            }),
        }
    }
}

fn flags_of(site: *mut u8) -> u32 {
    field!(site, TriggerSite, flags, AtomicU32).load(Relaxed)
}

/// Whether a trigger follows the tail calls of the function with this code.
pub(crate) fn follows_tails_of(arena: &Arena, code: u32) -> bool {
    Triggers::all(arena).any(|triggers| triggers.follows_tails_of(code))
}

/// A parent's triggers, as its forked child copies them: parts of the arena with their offsets.
pub(crate) struct Inheritance {
    triggers: Triggers,
    word: u32,
    /// The header's offset.
    at: u64,
    floor_and_sites: [u8; FLOOR_AND_SITES],
    given_up: [u8; size_of::<u64>()],
    generation: [u8; size_of::<u32>()],
    throws: [u8; THROWS],
    types: (u64, &'static [u8]),
    sites: (u64, &'static [u8]),
}

/// Bytes of the fields about exceptions, from [`TriggerHeader::thrown`] on.
const THROWS: usize = 3 * size_of::<u32>();
const _: () = assert!(
    offset_of!(TriggerHeader, thrown_types) + size_of::<u32>() == offset_of!(TriggerHeader, thrown) + THROWS
);

/// Bytes of the lowest threshold and the number of sites, which begin the header.
const FLOOR_AND_SITES: usize = offset_of!(TriggerHeader, sites) + size_of::<u32>();

impl Inheritance {
    /// Passes the parts to `put`, which stores them. Returns whether it stored all.
    pub(crate) fn put(&self, mut put: impl FnMut(u64, &[u8]) -> bool) -> bool {
        let at = |field: usize| self.at + field as u64;
        put(self.sites.0, self.sites.1)
            && put(self.types.0, self.types.1)
            && put(at(offset_of!(TriggerHeader, thrown)), &self.throws)
            && put(self.at, &self.floor_and_sites)
            && put(at(offset_of!(TriggerHeader, given_up)), &self.given_up)
            && put(at(offset_of!(TriggerHeader, generation)), &self.generation)
    }

    /// Removes the sites. Generation 0 makes the recorder write all of them.
    pub(crate) fn without_sites(mut self) -> Inheritance {
        self.sites.1 = &[];
        let (floor, count) = self.floor_and_sites.split_at_mut(size_of::<u64>());
        floor.copy_from_slice(&NEVER.to_le_bytes());
        count.fill(0);
        self.generation = [0; size_of::<u32>()];
        self
    }

    /// Whether the recorder hasn't changed the parent's sites since. If it has, it may have begun
    /// to write other sites into the same half.
    pub(crate) fn is_current(&self) -> bool {
        fence(Acquire);
        let word = field!(self.triggers.base, TriggerHeader, sites, AtomicU32).load(Acquire);
        word == self.word
    }
}

/// Whether threads have to keep their events, and those of ended threads, because a posted call
/// waits for the process that keeps calls. That process may get no CPU for a while, and must still
/// find the events.
pub(crate) fn are_awaited(arena: &Arena) -> bool {
    Triggers::all(arena).any(|triggers| triggers.is_awaited())
}

/// Whether a posted call of the thread in slot `slot` with this generation waits for the process
/// that keeps calls.
pub(crate) fn is_awaited(arena: &Arena, slot: u32, generation: u32) -> bool {
    Triggers::all(arena).any(|triggers| triggers.is_awaited() && triggers.has_call_of(slot, generation))
}

/// The value of [`Control::trigger_floor`] if `floor` is the lowest threshold.
fn low_floor(floor: u64) -> u32 {
    u32::try_from(floor.saturating_add(1)).unwrap_or(u32::MAX)
}

/// The lowest threshold of all triggers.
fn lowest(arena: &Arena) -> u64 {
    Triggers::all(arena).map(|triggers| triggers.floor()).min().unwrap_or(NEVER)
}

/// Updates the calling thread's floor. While short calls are dropped, it is 0.
pub(crate) fn look_at_floor(process: &Process, control: &Control) {
    let set = |floor: u32| {
        control.trigger_floor.store(floor, SeqCst);
        control.floor.store(if control.short.load(Relaxed) == 0 { floor } else { 0 }, SeqCst);
    };
    let arena = process.arena();
    loop {
        let floor = lowest(arena);
        set(low_floor(floor));
        // Another thread may have lowered all floors before this store: then it has to be repeated.
        if lowest(arena) == floor {
            return;
        }
    }
}

/// Updates the floors of all threads after sites were added.
pub(crate) fn lower_floors(process: &'static Process) {
    let floor = low_floor(lowest(process.arena()));
    for control in process.controls() {
        control.trigger_floor.fetch_min(floor, SeqCst);
        control.floor.fetch_min(floor, SeqCst);
    }
}

/// Updates the floors of all threads after sites were removed. A thread that updates its own floor
/// at the same time may keep one that is too low until its next update. The caller holds the module
/// lock.
pub(crate) fn raise_floors(process: &'static Process) {
    let floor = low_floor(lowest(process.arena()));
    for control in process.controls() {
        let before = control.trigger_floor.load(SeqCst);
        // While short calls are dropped, `floor` is 0, and the exchange fails.
        if before < floor && control.trigger_floor.compare_exchange(before, floor, SeqCst, Relaxed).is_ok() {
            let _ = control.floor.compare_exchange(before, floor, SeqCst, Relaxed);
        }
    }
    // `record` may have lowered one meanwhile.
    lower_floors(process);
}

/// Whether the ring of a thread with an open call of an armed function may grow by one more segment
/// beyond its limit.
pub(crate) fn may_grow(process: &Process) -> bool {
    let arena = process.arena();
    let allowed = Triggers::all(arena)
        .map(|triggers| field!(triggers.base, TriggerHeader, segments_allowed, AtomicU32).load(Relaxed))
        .max();
    allowed.is_some_and(|allowed| process.segments_beyond.load(Relaxed) < allowed)
}

/// Counts the segments that the thread's ring has beyond its limit.
pub(crate) fn count_beyond(process: &Process, control: &Control) {
    let beyond = control.ring_count.load(Relaxed).saturating_sub(control.ring_limit.load(Relaxed));
    let before = control.beyond.swap(beyond, Relaxed);
    if before == beyond {
        return;
    }
    let used = &process.segments_beyond;
    if beyond > before {
        used.fetch_add(beyond - before, Relaxed);
    } else {
        used.fetch_sub(before - beyond, Relaxed);
    }
    // For other processes that read the arena.
    if let Some(triggers) = Triggers::of(process.arena()) {
        field!(triggers.base, TriggerHeader, segments_used, AtomicU32).store(used.load(Relaxed), Relaxed);
    }
}
