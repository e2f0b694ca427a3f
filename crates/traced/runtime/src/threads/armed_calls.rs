//! Triggers: calls of armed functions that took long are posted to the process that keeps calls.
//! While a call of an armed function is open, its thread's ring keeps its events.
//!
//! Exit hooks compare the duration of a call with the lowest threshold of all (`Control::floor`).
//! Longer calls take the slow path, which calls [`judge`]. Hooks compare 32 bits of ticks, which is
//! exact for calls that don't span a change of the upper half. Other open calls are marked at the
//! first event after such a change, so that their exits take the slow path, too.
//!
//! To post a call takes a few stores and wakes `record` or the `features::keeper`: nothing is
//! copied, and no thread waits.

use crate::state::process::Process;
use crate::state::trigger_table::{Site, Triggers, When};
use crate::state::{dropped, hub, thresholds};
use crate::threads::open_calls::{LastJump, OpenCallFacts, OpenCalls};
use crate::threads::thread::Thread;
use core::sync::atomic::Ordering::Relaxed;
use everycall_format::event::{EXIT, Word};
use everycall_format::trigger::{NO_CODE, TriggeredCall, call_flags, jumped};
use everycall_ring::GrowRequest;

/// The innermost open call of `thread` ends at `ticks`: posts it if a trigger wants it.
pub(crate) fn judge(thread: &Thread<'_>, ticks: u64) {
    // Calls beyond the stack's capacity have no entry.
    if thread.control.deep.load(Relaxed) == 0
        && let Some(call) = thread.open.innermost_call()
    {
        judge_call(thread, EndedCall::at(call, ticks), |_| true);
        if thread.met.get() != 0 {
            judge_now(thread, EndedCall::at(call, ticks), When::Returned);
        }
    }
}

/// The innermost call of `thread` was entered now: posts it if a trigger wants it because of its
/// arguments. They are in the thread's `met`.
pub(crate) fn judge_entry(thread: &Thread<'_>) {
    if let Some(call) = thread.open.innermost_call() {
        let left = EndedCall { flags: call_flags::ENTERED, ..EndedCall::at(call, call.ticks) };
        judge_now(thread, left, When::Entered);
    }
}

/// Posts a call for the triggers that decide now, by what the present event meets.
fn judge_now(thread: &Thread<'_>, left: EndedCall, when: When) {
    let met = thread.met.get();
    for triggers in Triggers::all(thread.process.arena()) {
        for site in triggers.sites_at(left.call.code).filter(|site| site.when == when) {
            let is_met = match when {
                When::Returned => site.results != 0 && site.results & !met == 0 && site.is_met(left.call.met),
                _ => site.conditions != 0 && site.is_met(met),
            };
            if is_met {
                post(&triggers, thread, Site { threshold: 0, ..site }, &left);
            }
        }
    }
}

/// A call ends by a tail call: posts it for the triggers that don't follow tail calls, and for
/// those whose threshold it has exceeded already, because the jump's target may never end.
pub(crate) fn judge_jump(thread: &Thread<'_>, call: &OpenCallFacts, jump: LastJump) {
    let left = EndedCall::at(*call, jump.ticks);
    judge_call(thread, left, |site| !site.counts_tails);
    let left = EndedCall { flags: call_flags::TAIL, jump, ..left };
    judge_call(thread, left, |site| site.counts_tails);
}

fn judge_call(thread: &Thread<'_>, left: EndedCall, is_wanted: impl Fn(&Site) -> bool) {
    for triggers in Triggers::all(thread.process.arena()) {
        for site in triggers.sites_at(left.call.code).filter(&is_wanted) {
            if left.took() <= site.threshold || !site.is_met(left.call.met) {
                continue;
            }
            // Sites of a set hold a lower bound of the threshold until the clock's rate is known.
            let exact = if triggers.is_live { None } else { thresholds::exact_threshold(site.rule) };
            let threshold = exact.unwrap_or(site.threshold);
            if left.took() > threshold && left.before(thread, &site) <= threshold {
                let mut left = left;
                if left.took_at_least() <= threshold {
                    left.flags |= call_flags::PERHAPS;
                }
                post(&triggers, thread, Site { threshold, ..site }, &left);
            }
        }
    }
}

/// The program announces that the thread ends, as `pthread_exit` does. Open calls then end without
/// an event, except for calls that clean up. So all are judged now, and again at each further
/// announcement, which comes when a frame is entered to clean up. The outermost calls take
/// precedence.
pub(crate) fn thread_ends(process: &Process, thread: &Thread<'_>, ticks: u64) {
    let mut count = 0;
    thread.open.each_from(0, |_, mut call| {
        if let Some(jump) = &mut call.jump {
            jump.at_most = !jump.is_passed() || jump.stamp & jumped::UNSURE != 0;
        }
        let left = EndedCall::fallen(thread, call, ticks);
        if count < FALLEN_MAX && is_wanted(process, &left) {
            count += 1;
            left.judge(thread);
        }
        // The recorder searches for followed calls without a later event: this one is judged.
        if let Some(jump) = call.jump {
            thread.open.mark_jump(&jump, 0, jumped::JUDGED);
        }
    });
    thread.control.ending.store(ticks, Relaxed);
}

/// Whether a trigger wants a call.
fn is_wanted(process: &Process, left: &EndedCall) -> bool {
    let is_wanted = |site: Site| left.took() > site.threshold && site.is_met(left.call.met);
    let takes_long = |triggers: Triggers| triggers.sites_at(left.call.code).any(is_wanted);
    Triggers::all(process.arena()).any(takes_long)
}

/// How a call ended.
#[derive(Clone, Copy)]
struct EndedCall {
    call: OpenCallFacts,
    ticks: u64,
    /// The call had not ended before that time.
    at_least_until: u64,
    flags: u32,
    jump: LastJump,
}

impl EndedCall {
    fn at(call: OpenCallFacts, ticks: u64) -> EndedCall {
        EndedCall { call, ticks, at_least_until: ticks, flags: 0, jump: LastJump::default() }
    }

    /// A call that was found to have been unwound, or whose tail call has ended.
    fn fallen(thread: &Thread<'_>, call: OpenCallFacts, ticks: u64) -> EndedCall {
        let Some(jump) = call.jump else {
            return EndedCall { flags: call_flags::UNWOUND, ..EndedCall::at(call, ticks) };
        };
        match jump.at_most {
            true => {
                let flags = call_flags::TAIL | call_flags::AT_MOST;
                let at_least_until = jump.at_least_until;
                let jump = LastJump { ticks: at_least_until, ..thread.last_jump(&jump) };
                EndedCall { at_least_until, flags, jump, ..EndedCall::at(call, ticks) }
            }
            false => {
                let jump = LastJump { ticks: jump.ticks, ..LastJump::default() };
                EndedCall { flags: call_flags::TAIL, jump, ..EndedCall::at(call, ticks) }
            }
        }
    }

    fn judge(self, thread: &Thread<'_>) {
        let has_jumped = self.call.jump.is_some();
        judge_call(thread, self, |site| site.counts_tails || !has_jumped);
    }

    fn took(&self) -> u64 {
        self.ticks.saturating_sub(self.call.ticks)
    }

    fn took_at_least(&self) -> u64 {
        self.at_least_until.saturating_sub(self.call.ticks)
    }

    /// How long the call had taken when triggers judged it before: when the thread's end was
    /// announced, or when it ended by a tail call. 0 if they didn't.
    fn before(&self, thread: &Thread<'_>, site: &Site) -> u64 {
        let jumped = self.call.jump.filter(|_| site.counts_tails).map_or(0, |jump| jump.ticks);
        thread.control.ending.load(Relaxed).max(jumped).saturating_sub(self.call.ticks)
    }
}

/// Removed calls that triggers want. They are posted when the record of their removal has been
/// written.
#[derive(Default)]
pub(crate) struct Fallen {
    left: [Option<EndedCall>; FALLEN_MAX],
    /// Flags that are added to those of each call.
    flags: u32,
}

/// Limit on these calls. More at a time are probably a recursion, whose single calls are of no
/// interest.
const FALLEN_MAX: usize = 8;

impl Fallen {
    /// For calls of a thread that has ended.
    pub(crate) fn of_gone() -> Fallen {
        Fallen { flags: call_flags::NO_NEXT, ..Fallen::default() }
    }

    /// Adds a call that was found to have been unwound at `ticks`, or whose tail call has ended.
    /// The outermost calls come last and take precedence.
    pub(crate) fn add(&mut self, thread: &Thread<'_>, call: OpenCallFacts, ticks: u64) {
        if dropped::is_timing() {
            return thread.time_end(ticks);
        }
        let left = EndedCall::fallen(thread, call, ticks);
        if is_wanted(thread.process, &left) {
            self.left.rotate_right(1);
            if let Some(place) = self.left.first_mut() {
                *place = Some(EndedCall { flags: left.flags | self.flags, ..left });
            }
        }
    }

    /// Posts the calls.
    pub(crate) fn post(self, thread: &Thread<'_>) {
        for left in self.left.into_iter().flatten() {
            left.judge(thread);
        }
    }
}

/// An exception was thrown in `call`, or in none, and a trigger waits for that.
pub(crate) fn post_throw(
    triggers: &Triggers,
    thread: &Thread<'_>,
    rule: u32,
    call: Option<OpenCallFacts>,
    ticks: u64,
) {
    let site = Site::of_throws(rule);
    let mut left = match call {
        Some(call @ OpenCallFacts { jump: Some(_), .. }) => EndedCall::fallen(thread, call, ticks),
        Some(call) => EndedCall::at(call, ticks),
        None => {
            let ticks = ticks.saturating_sub(1);
            let none = OpenCallFacts { code: NO_CODE, ticks, stamp: 1, met: 0, jump: None };
            EndedCall { flags: call_flags::NO_CALL, ..EndedCall::at(none, ticks) }
        }
    };
    left.flags |= call_flags::THREW;
    post(triggers, thread, site, &left);
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

/// Whether a word counts as an event. A word that was never written counts as a lost event.
fn is_counted(word: u64) -> bool {
    let word = Word::decode(word);
    word.is_event() || matches!(word, Word::Empty)
}

#[cold]
fn post(triggers: &Triggers, thread: &Thread<'_>, site: Site, left: &EndedCall) {
    let process = thread.process;
    // The certain part of a call's time decides which calls are kept: a call that perhaps didn't
    // exceed the threshold never takes the place of one that did.
    let is_certain = left.flags & call_flags::PERHAPS == 0;
    if !triggers.fire(site.rule, left.ticks, left.took_at_least().max(1), is_certain) {
        return;
    }
    // Read the name now, because the thread may have ended when the call is kept.
    if left.flags & call_flags::NO_NEXT == 0 {
        thread.look_at_name();
    }
    // First make all rings keep their events. The request is never withdrawn, because the process
    // that keeps calls doesn't know of it: it expires.
    let pool = process.arena().pool();
    core::mem::forget(GrowRequest::begin(&pool, everycall_hooks::ticks, triggers.grow_ticks()));
    let Some(entry) = triggers.take_call(site.rule) else { return triggers.count_missed(site.rule) };
    let events = thread.ring.events();
    let events_before = match left.call.stamp {
        0 => events_before_entry(thread, &left.call),
        stamp => events_of_stamp(events, stamp),
    };
    let call = TriggeredCall {
        rule: site.rule,
        code: left.call.code,
        slot: thread.control.slot.load(Relaxed),
        generation: thread.slot.generation().load(Relaxed),
        tid: thread.slot.tid().load(Relaxed),
        flags: left.flags,
        start_ticks: left.call.ticks,
        end_ticks: left.ticks,
        threshold: site.threshold,
        events_before,
        events_after: events,
        jump_ticks: left.jump.ticks,
        target: left.jump.target,
        jump_code: left.jump.code,
        ..TriggeredCall::default()
    };
    triggers.post(entry, &call);
    match hub::hub() {
        // The client polls its area.
        _ if triggers.is_live => {}
        Some(hub) => {
            hub.ring();
        }
        None if thresholds::set().is_some() => process.kept_calls.want(entry),
        None => {}
    }
}

/// Marks the open calls of armed functions after the clock's upper half has changed: their exits
/// take the slow path, because 32 bits no longer hold their duration.
pub(crate) fn divert_armed_calls(process: &Process, open: &OpenCalls<'_>) {
    let armed = with_sites(process);
    if armed.clone().next().is_some() {
        open.divert(|code| armed.clone().any(|triggers| triggers.names(code)));
    }
}

/// The triggers that name functions.
fn with_sites(process: &Process) -> impl Iterator<Item = Triggers> + Clone + use<> {
    Triggers::all(process.arena()).filter(Triggers::has_sites)
}

/// Called when the thread's segment ends. If calls of armed functions are open, returns the number
/// of the thread's events before the outermost of them, so that the ring keeps the events since.
/// Stamps such calls that were entered in this segment with the number of events before them.
pub(crate) fn look_at_open_calls(process: &Process, thread: &Thread<'_>) -> Option<u64> {
    let control = thread.control;
    let armed = with_sites(process);
    armed.clone().next()?;
    let names = |code: u32| armed.clone().any(|triggers| triggers.names(code));
    let events = thread.ring.events();
    let before = control.looked_depth.load(Relaxed);
    // Each event may have ended one call: the calls below are unchanged since then.
    let since = events.saturating_sub(control.looked_events.load(Relaxed));
    let same = before.saturating_sub(u32::try_from(since).unwrap_or(u32::MAX));
    let depth = thread.open.entries();
    let mut outermost = control.matching.load(Relaxed);
    if outermost > same {
        outermost = 0;
    }
    let mut new = 0;
    thread.open.each_from(same, |place, call| {
        if names(call.code) {
            if outermost == 0 {
                outermost = place + 1;
            }
            new += u32::from(call.stamp == 0);
        }
    });
    if new > 0 {
        stamp(names, thread, same);
    }
    control.matching.store(outermost, Relaxed);
    control.looked_depth.store(depth, Relaxed);
    control.looked_events.store(events, Relaxed);
    let call = thread.open.call_at(outermost.checked_sub(1)?)?;
    Some(match call.stamp {
        // Unknown, or the call is the thread's first: all events are needed.
        0 | 1 => 0,
        stamp => events_of_stamp(events, stamp).saturating_sub(EVENTS_AROUND),
    })
}

/// Limit on the events that precede a call's entry in the ring although they came after it: those
/// of signal handlers between a hook's two writes.
const EVENTS_AROUND: u64 = 16;

/// The event count that a call's stamp stands for, if there are `events` by now: the highest count
/// with this low half that doesn't exceed `events`.
fn events_of_stamp(events: u64, stamp: u32) -> u64 {
    events.saturating_sub((events as u32).wrapping_sub(stamp).into())
}

/// Stamps the calls of armed functions from index `from` on that have no stamp. Their entries are
/// in the current segment in the same order, except for those of signal handlers that came between
/// a hook's two writes.
fn stamp(names: impl Fn(u32) -> bool, thread: &Thread<'_>, from: u32) {
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
        if !names(code) {
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
                // Not found: the entry precedes that of an outer call, or is older than the
                // segment.
                None => break,
            }
        }
        Some(last.map_or(1, |events| (events.saturating_sub(1) as u32).max(1)))
    });
}
