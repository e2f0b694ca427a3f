//! Triggers: calls of certain functions that took long are told to whoever keeps them, and while such a call is open, its
//! thread's ring keeps what it has.
//!
//! Exit hooks compare how long a call took with the lowest threshold of all (`Control::floor`); what took longer comes to the slow
//! path, which asks here. They compare 32 bits of ticks. That is exact for calls that were open through no change of
//! the upper half; the others are marked at the first event after a change, so that their exits come here as well.
//!
//! A post is a few stores and a wake, of `record` or of the [keeper]: nothing is copied, nobody is waited for.

use crate::arena::Arena;
use crate::open_calls::OpenCalls;
use crate::process::Process;
use crate::slow::Thread;
use crate::{hub, keeper, site_set};
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, fence,
};
use everycall_format::event::{ESCAPE_FIRST, EXIT, Word};
use everycall_format::trigger::{
    CALLS, NEVER, RULES, Sites, TriggerHeader, TriggerRule, TriggerSite, TriggeredCall, WAIT_TICKS, call_at,
    call_flags, call_state, rule_at,
};
use everycall_ring::{Control, Keep};

/// The triggers of an arena that has room for them.
#[derive(Clone, Copy)]
pub(crate) struct Triggers {
    base: *mut u8,
    capacity: u32,
}

/// A field of a structure at `$address`.
macro_rules! field {
    ($address:expr, $structure:ty, $field:ident, $atomic:ty) => {
        // SAFETY: the address is that of a whole, aligned structure within the arena's triggers, which stay mapped; atomics may
        // be shared.
        unsafe { &*($address.wrapping_add(offset_of!($structure, $field)).cast::<$atomic>()) }
    };
}

mod own;

pub(crate) use own::take_back;

/// A function that a trigger names.
#[derive(Clone, Copy)]
struct Site {
    rule: u32,
    threshold: u64,
}

impl Triggers {
    /// The triggers of `arena`; `None` where it has no room for any.
    pub(crate) fn of(arena: &Arena) -> Option<Triggers> {
        let layout = arena.layout();
        let at = layout.triggers_at()?;
        Some(Triggers { base: arena.base().wrapping_add(at as usize), capacity: layout.trigger_sites })
    }

    fn floor(&self) -> u64 {
        field!(self.base, TriggerHeader, floor, AtomicU64).load(SeqCst)
    }

    fn sites(&self) -> Sites {
        Sites::of(field!(self.base, TriggerHeader, sites, AtomicU32).load(Acquire), self.capacity)
    }

    /// What lies so far behind the header.
    fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    fn has_sites(&self) -> bool {
        self.sites().count > 0
    }

    /// The sites that hold `code`. Sites are in order; those of one function lie side by side.
    fn holding(&self, code: u32) -> impl Iterator<Item = Site> + use<> {
        let (triggers, sites) = (*self, self.sites());
        let count = if code >= ESCAPE_FIRST { 0 } else { sites.count };
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
        (low..count)
            .map(at)
            .take_while(move |site| field!(site, TriggerSite, first, AtomicU32).load(Relaxed) <= code)
            .map(|site| Site {
                rule: field!(site, TriggerSite, rule, AtomicU32).load(Relaxed).min(RULES - 1),
                threshold: field!(site, TriggerSite, threshold, AtomicU64).load(Relaxed),
            })
    }

    fn names(&self, code: u32) -> bool {
        self.holding(code).any(|site| site.threshold != NEVER)
    }

    fn rule(&self, index: u32) -> *mut u8 {
        self.at(rule_at(index))
    }

    fn call(&self, index: u32) -> *mut u8 {
        self.at(call_at(index))
    }

    /// Takes a free entry for a call.
    fn take_call(&self) -> Option<*mut u8> {
        (0..CALLS).map(|index| self.call(index)).find(|call| {
            let state = field!(call, TriggeredCall, state, AtomicU32);
            state.load(Relaxed) == call_state::FREE
                && state.compare_exchange(call_state::FREE, call_state::FILLING, AcqRel, Relaxed).is_ok()
        })
    }

    /// Whether a call was posted that nobody has taken hold of yet, and somebody may still come.
    fn is_awaited(&self) -> bool {
        let bell = field!(self.base, TriggerHeader, bell, AtomicU32).load(Acquire);
        bell != field!(self.base, TriggerHeader, heard, AtomicU32).load(Acquire) && {
            let posted = field!(self.base, TriggerHeader, posted, AtomicU64).load(Relaxed);
            everycall_hooks::ticks().saturating_sub(posted) < WAIT_TICKS
        }
    }

    /// Whether a call of the thread in slot `slot` with this generation was posted lately.
    fn has_call_of(&self, slot: u32, generation: u32) -> bool {
        (0..CALLS).map(|index| self.call(index)).any(|call| {
            field!(call, TriggeredCall, slot, AtomicU32).load(Relaxed) == slot
                && field!(call, TriggeredCall, generation, AtomicU32).load(Relaxed) == generation
                && field!(call, TriggeredCall, threshold, AtomicU64).load(Relaxed) != 0
        })
    }

    /// The process goes on, though the recorder hasn't named a module's functions.
    pub(crate) fn give_up(&self) {
        field!(self.base, TriggerHeader, given_up, AtomicU64).store(everycall_hooks::ticks(), SeqCst);
    }

    fn generation(&self) -> u32 {
        field!(self.base, TriggerHeader, generation, AtomicU32).load(Acquire)
    }

    /// What a forked child takes over of its parent's triggers.
    pub(crate) fn inheritance(&self, arena: &Arena) -> Inheritance {
        // The recorder publishes sites before their generation.
        let generation = self.generation();
        let word = field!(self.base, TriggerHeader, sites, AtomicU32).load(Acquire);
        let given_up = field!(self.base, TriggerHeader, given_up, AtomicU64).load(SeqCst);
        let mut floor_and_sites = [0; FLOOR_AND_SITES];
        let (floor, count) = floor_and_sites.split_at_mut(size_of::<u64>());
        floor.copy_from_slice(&self.floor().to_le_bytes());
        count.copy_from_slice(&word.to_le_bytes());
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
            // SAFETY: within the triggers, which stay mapped. The recorder writes new sites into the other half.
            sites: (arena.offset_of(address as u64), unsafe {
                core::slice::from_raw_parts(address.cast_const(), size as usize)
            }),
        }
    }
}

/// A parent's triggers, as its forked child takes them over: parts of the arena with their places.
pub(crate) struct Inheritance {
    triggers: Triggers,
    word: u32,
    /// Where the header lies.
    at: u64,
    floor_and_sites: [u8; FLOOR_AND_SITES],
    given_up: [u8; size_of::<u64>()],
    generation: [u8; size_of::<u32>()],
    sites: (u64, &'static [u8]),
}

/// Bytes of the lowest threshold and the number of sites, with which the header begins.
const FLOOR_AND_SITES: usize = offset_of!(TriggerHeader, sites) + size_of::<u32>();

impl Inheritance {
    /// The parts, which `put` stores. Whether it stored all of them.
    pub(crate) fn put(&self, mut put: impl FnMut(u64, &[u8]) -> bool) -> bool {
        let at = |field: usize| self.at + field as u64;
        put(self.sites.0, self.sites.1)
            && put(self.at, &self.floor_and_sites)
            && put(at(offset_of!(TriggerHeader, given_up)), &self.given_up)
            && put(at(offset_of!(TriggerHeader, generation)), &self.generation)
    }

    /// The same without sites: the recorder, to which that is generation 0, puts all of them there.
    pub(crate) fn without_sites(mut self) -> Inheritance {
        self.sites.1 = &[];
        let (floor, count) = self.floor_and_sites.split_at_mut(size_of::<u64>());
        floor.copy_from_slice(&NEVER.to_le_bytes());
        count.fill(0);
        self.generation = [0; size_of::<u32>()];
        self
    }

    /// Whether the recorder has left the parent's sites alone since: it may have begun to write others into the same half.
    pub(crate) fn is_current(&self) -> bool {
        fence(Acquire);
        let word = field!(self.triggers.base, TriggerHeader, sites, AtomicU32).load(Acquire);
        word == self.word
    }
}

/// Whether threads are to keep what they have, and what ended ones have left: a call was posted, and whoever keeps it hasn't come yet.
/// It may have to wait for a CPU for long, and finds what was there all the same.
pub(crate) fn are_awaited(arena: &Arena) -> bool {
    Triggers::of(arena).is_some_and(|triggers| triggers.is_awaited())
}

/// The same of the thread in slot `slot` with this generation: whether one of its own calls waits.
pub(crate) fn is_awaited(arena: &Arena, slot: u32, generation: u32) -> bool {
    Triggers::of(arena)
        .is_some_and(|triggers| triggers.is_awaited() && triggers.has_call_of(slot, generation))
}

/// What hooks compare with where `floor` is the lowest threshold.
fn low_floor(floor: u64) -> u32 {
    u32::try_from(floor.saturating_add(1)).unwrap_or(u32::MAX)
}

/// Brings the thread's floor up to date.
pub(crate) fn look_at_floor(process: &Process, control: &Control) {
    let Some(triggers) = Triggers::of(process.arena()) else {
        return control.floor.store(u32::MAX, Relaxed);
    };
    loop {
        let floor = triggers.floor();
        control.floor.store(low_floor(floor), SeqCst);
        // Somebody who lowered it meanwhile has lowered ours before we wrote it.
        if triggers.floor() == floor {
            return;
        }
    }
}

/// Brings the floors of all threads up to date, after sites were added.
pub(crate) fn lower_floors(process: &'static Process) {
    let arena = process.arena();
    let Some(triggers) = Triggers::of(arena) else { return };
    let floor = low_floor(triggers.floor());
    for control in process.controls() {
        control.floor.fetch_min(floor, SeqCst);
    }
}

/// The innermost open call of `thread` is being left at `ticks`: posts it where a trigger wants it.
pub(crate) fn judge(process: &Process, thread: &Thread<'_>, ticks: u64) {
    // Calls deeper than the stack have no entry.
    if thread.control.deep.load(Relaxed) == 0
        && let Some(call) = thread.open.innermost_call()
    {
        judge_call(process, thread, Left { call, ticks, flags: 0 });
    }
}

fn judge_call(process: &Process, thread: &Thread<'_>, left: Left) {
    let Some(triggers) = Triggers::of(process.arena()) else { return };
    // Those that had taken long enough when the thread's end was told were posted then.
    let before = thread.control.ending.load(Relaxed).saturating_sub(left.call.ticks);
    let is_new = |site: &Site| left.took() > site.threshold && before <= site.threshold;
    for site in triggers.holding(left.call.code).filter(is_new) {
        match site_set::exact_threshold(site.rule) {
            // Sites of a set have what the clock's rate can't be less than.
            Some(exact) if left.took() <= exact => {}
            exact => {
                let threshold = exact.unwrap_or(site.threshold);
                post(process, &triggers, thread, Site { threshold, ..site }, &left);
            }
        }
    }
}

/// The program says that the thread ends, as `pthread_exit` does: nobody tells of the end of the calls that are open, but for those in which
/// something is cleaned up. So they are judged now, and whenever it is said again, of a frame that is entered for that. The outermost ones count.
pub(crate) fn thread_ends(process: &Process, thread: &Thread<'_>, ticks: u64) {
    let mut count = 0;
    thread.open.each_from(0, |_, call| {
        let left = Left { call, ticks, flags: call_flags::UNWOUND };
        if count < FALLEN_MAX && is_wanted(process, &left) {
            count += 1;
            judge_call(process, thread, left);
        }
    });
    thread.control.ending.store(ticks, Relaxed);
}

/// Whether a trigger wants a call.
fn is_wanted(process: &Process, left: &Left) -> bool {
    Triggers::of(process.arena())
        .is_some_and(|triggers| triggers.holding(left.call.code).any(|site| left.took() > site.threshold))
}

/// An open call.
#[derive(Clone, Copy)]
pub(crate) struct OpenCallFacts {
    /// Code offset of its entry.
    pub(crate) code: u32,
    /// When it was entered.
    pub(crate) ticks: u64,
    /// [`everycall_format::arena::OpenCall::stamp`].
    pub(crate) stamp: u32,
}

/// How a call ended.
#[derive(Clone, Copy)]
struct Left {
    call: OpenCallFacts,
    ticks: u64,
    flags: u32,
}

impl Left {
    fn took(&self) -> u64 {
        self.ticks.saturating_sub(self.call.ticks)
    }
}

/// Frames that are found to have been left without an exit, as far as triggers want them: they are posted when the record that
/// says so is written.
#[derive(Default)]
pub(crate) struct Fallen([Option<Left>; FALLEN_MAX]);

/// More at one time are hardly recursions that anybody wants one by one.
const FALLEN_MAX: usize = 8;

impl Fallen {
    /// Notes a frame that was found at `ticks`. The outermost ones come last, and count.
    pub(crate) fn add(&mut self, process: &Process, call: OpenCallFacts, ticks: u64) {
        let left = Left { call, ticks, flags: call_flags::UNWOUND };
        if is_wanted(process, &left) {
            self.0.rotate_right(1);
            if let Some(place) = self.0.first_mut() {
                *place = Some(left);
            }
        }
    }

    /// Posts them.
    pub(crate) fn post(self, process: &Process, thread: &Thread<'_>) {
        for left in self.0.into_iter().flatten() {
            judge_call(process, thread, left);
        }
    }
}

/// Events before the entry of a call that began in the thread's current segment.
fn events_before_entry(thread: &Thread<'_>, call: &OpenCallFacts) -> u64 {
    let (before, words) = thread.ring.current();
    let entry = call.ticks << 32 | u64::from(call.code);
    let mut events = before;
    for word in words.iter().map(|word| word.load(Relaxed)) {
        if word & !u64::from(EXIT) == entry {
            return events;
        }
        events += u64::from(is_counted(word));
    }
    before
}

/// Whether a word counts as an event: what was never written is a lost one.
fn is_counted(word: u64) -> bool {
    let word = Word::decode(word);
    word.is_event() || matches!(word, Word::Empty)
}

#[cold]
fn post(process: &Process, triggers: &Triggers, thread: &Thread<'_>, site: Site, left: &Left) {
    let rule = triggers.rule(site.rule);
    field!(rule, TriggerRule, fired, AtomicU64).fetch_add(1, Relaxed);
    let is_quiet = left.ticks < field!(rule, TriggerRule, quiet_until, AtomicU64).load(Relaxed)
        && left.took() <= field!(rule, TriggerRule, bar, AtomicU64).load(Relaxed);
    if is_quiet || left.took() <= field!(rule, TriggerRule, least, AtomicU64).load(Relaxed) {
        return;
    }
    // Who keeps the call may find the thread gone.
    thread.look_at_name();
    // First, so that nothing is overwritten until somebody comes.
    let keep_ticks = field!(triggers.base, TriggerHeader, keep_ticks, AtomicU64).load(Relaxed);
    let pool = process.arena().pool();
    // Time ends it: whoever comes doesn't know of it.
    core::mem::forget(Keep::begin(&pool, everycall_hooks::ticks, keep_ticks));
    let Some(call) = triggers.take_call() else {
        field!(rule, TriggerRule, missed, AtomicU64).fetch_add(1, Relaxed);
        return;
    };
    let events = thread.ring.events();
    let events_before = match left.call.stamp {
        0 => events_before_entry(thread, &left.call),
        stamp => events_of_stamp(events, stamp),
    };
    field!(call, TriggeredCall, rule, AtomicU32).store(site.rule, Relaxed);
    field!(call, TriggeredCall, code, AtomicU32).store(left.call.code, Relaxed);
    field!(call, TriggeredCall, slot, AtomicU32).store(thread.control.slot.load(Relaxed), Relaxed);
    field!(call, TriggeredCall, generation, AtomicU32).store(thread.slot.generation().load(Relaxed), Relaxed);
    field!(call, TriggeredCall, tid, AtomicU32).store(thread.slot.tid().load(Relaxed), Relaxed);
    field!(call, TriggeredCall, flags, AtomicU32).store(left.flags, Relaxed);
    field!(call, TriggeredCall, start_ticks, AtomicU64).store(left.call.ticks, Relaxed);
    field!(call, TriggeredCall, end_ticks, AtomicU64).store(left.ticks, Relaxed);
    field!(call, TriggeredCall, threshold, AtomicU64).store(site.threshold, Relaxed);
    field!(call, TriggeredCall, events_before, AtomicU64).store(events_before, Relaxed);
    field!(call, TriggeredCall, events_after, AtomicU64).store(events, Relaxed);
    // Before the bell: as soon as that has changed, this says for how long. The first call that waits counts: nobody may ever
    // come for it, and threads must not wait longer because others follow.
    let bell = field!(triggers.base, TriggerHeader, bell, AtomicU32).load(Relaxed);
    if bell == field!(triggers.base, TriggerHeader, heard, AtomicU32).load(Acquire) {
        field!(triggers.base, TriggerHeader, posted, AtomicU64).store(everycall_hooks::ticks(), Relaxed);
    }
    field!(call, TriggeredCall, state, AtomicU32).store(call_state::POSTED, Release);
    field!(triggers.base, TriggerHeader, bell, AtomicU32).fetch_add(1, Release);
    match hub::hub() {
        Some(hub) => {
            hub.ring();
        }
        None => keeper::wake(process, triggers, site.rule, call),
    }
}

/// The clock's upper half has changed: exits of open calls that a trigger names come to the slow path from now on, as 32 bits don't
/// tell any more how long they take.
pub(crate) fn watch_open_calls(process: &Process, open: &OpenCalls<'_>) {
    if let Some(triggers) = Triggers::of(process.arena()).filter(|triggers| triggers.has_sites()) {
        open.watch(|code| triggers.names(code));
    }
}

/// The thread's segment ends: where a call is open that a trigger names, the number of the thread's events before the outermost one,
/// so that the ring is to keep what came since. Calls that were entered in this segment are stamped with the number of events before them.
pub(crate) fn look_at_open_calls(process: &Process, thread: &Thread<'_>) -> Option<u64> {
    let control = thread.control;
    let arena = process.arena();
    let triggers = Triggers::of(arena).filter(|triggers| triggers.has_sites())?;
    let events = thread.ring.events();
    let before = control.looked_depth.load(Relaxed);
    // Each of them may have ended a call: those below are the same as then.
    let since = events.saturating_sub(control.looked_events.load(Relaxed));
    let same = before.saturating_sub(u32::try_from(since).unwrap_or(u32::MAX));
    let depth = thread.open.entries();
    let mut outermost = control.matching.load(Relaxed);
    if outermost > same {
        outermost = 0;
    }
    let mut new = 0;
    thread.open.each_from(same, |place, call| {
        if triggers.names(call.code) {
            if outermost == 0 {
                outermost = place + 1;
            }
            new += u32::from(call.stamp == 0);
        }
    });
    if new > 0 {
        stamp(&triggers, thread, same);
    }
    control.matching.store(outermost, Relaxed);
    control.looked_depth.store(depth, Relaxed);
    control.looked_events.store(events, Relaxed);
    let call = thread.open.call_at(outermost.checked_sub(1)?)?;
    Some(match call.stamp {
        // Not known, or the first ones.
        0 | 1 => 0,
        stamp => events_of_stamp(events, stamp).saturating_sub(EVENTS_AROUND),
    })
}

/// Events that may stand before the entry of a call though they came after it: signal handlers' between a hook's two writes.
const EVENTS_AROUND: u64 = 16;

/// The number of events that a call's stamp means, where there are `events` by now: the highest one with this low half that isn't beyond.
fn events_of_stamp(events: u64, stamp: u32) -> u64 {
    events.saturating_sub((events as u32).wrapping_sub(stamp).into())
}

/// Stamps the calls from place `from` on that triggers name and that have no stamp. Their entries stand in the current segment, in
/// the same order, but for those of signal handlers that came between a hook's two writes.
fn stamp(triggers: &Triggers, thread: &Thread<'_>, from: u32) {
    let (mut events, words) = thread.ring.current();
    let mut words = words.iter();
    let mut next = || {
        let word = words.next()?.load(Relaxed);
        events += u64::from(is_counted(word));
        Some((word, events))
    };
    let mut last = None;
    thread.open.stamp_from(from, |word| {
        let code = word as u32 & !EXIT;
        if !triggers.names(code) {
            return None;
        }
        let is_it = |found: u64| found & !u64::from(EXIT) == word & !u64::from(EXIT);
        loop {
            match next() {
                Some((found, events)) if is_it(found) => {
                    last = Some(events);
                    break;
                }
                Some(_) => {}
                // Not there: it came before the one above it, or is older than the segment.
                None => break,
            }
        }
        Some(last.map_or(1, |events| (events.saturating_sub(1) as u32).max(1)))
    });
}

/// Whether the ring of a thread with a matching call may take one more segment beyond its limit.
pub(crate) fn may_grow(process: &Process) -> bool {
    let Some(triggers) = Triggers::of(process.arena()) else { return false };
    let allowed = field!(triggers.base, TriggerHeader, segments_allowed, AtomicU32).load(Relaxed);
    field!(triggers.base, TriggerHeader, segments_used, AtomicU32).load(Relaxed) < allowed
}

/// Counts the segments that the thread's ring has beyond its limit.
pub(crate) fn count_beyond(process: &Process, control: &Control) {
    let beyond = control.ring_count.load(Relaxed).saturating_sub(control.ring_limit.load(Relaxed));
    let before = control.beyond.swap(beyond, Relaxed);
    if before == beyond {
        return;
    }
    if let Some(triggers) = Triggers::of(process.arena()) {
        let used = field!(triggers.base, TriggerHeader, segments_used, AtomicU32);
        if beyond > before {
            used.fetch_add(beyond - before, Relaxed);
        } else {
            used.fetch_sub(before - beyond, Relaxed);
        }
    }
}
