//! Keeps calls that met a trigger of the [set](crate::site_set), where there is no `record` to do it: each becomes a file, written by a
//! [helper] that lives as long as there is something to keep. The slow thread does no more than start it.
//!
//! Which calls stay is decided as in `record` (`crates/triggers`, `Choice`): the slowest, the first or the newest, so many of each trigger, and
//! at most one in a time. The file of one that goes is removed.

use crate::arena::Arena;
use crate::file::File;
use crate::folder::{Folder, Name};
use crate::helper::{self, Stack, Started};
use crate::process::Process;
use crate::site_set::{self, Bound};
use crate::snapshot::{self, Moment};
use crate::system;
use crate::triggers::{self, Triggers};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use everycall_format::ect::{self, TriggerRecord};
use everycall_format::site_set::{KEEP_MAX, SetRule, keep_by};
use everycall_format::trigger::{RULES, TriggeredCall};

/// Helpers that there may be: one works, and another may just be ending.
const HELPERS: usize = 2;
/// Files of one process.
const NUMBER_MAX: u32 = 10_000_000;

static FOLDER: Folder = Folder::new();
static STACKS: [Stack; HELPERS] = [Stack::new(), Stack::new()];

/// A process's part of it: wiped in a forked child, which keeps calls of its own.
pub(crate) struct State {
    /// Calls that were posted since a helper saw that there are no more; whoever posts the first one starts a helper.
    wanted: AtomicU32,
    running: [AtomicU32; HELPERS],
    /// The helper's.
    choices: UnsafeCell<Choices>,
}

struct Choices {
    /// What the files' names begin with; empty before there is one.
    name: Name,
    /// Number of the last file.
    number: u32,
    of: [Choice; RULES as usize],
}

/// A call that is kept.
#[derive(Clone, Copy)]
struct Kept {
    took: u64,
    /// Its file's number, which grows.
    number: u32,
}

/// The calls of one trigger.
struct Choice {
    /// Until then, in ticks, there is one already: the one that came last.
    until: u64,
    count: u32,
    kept: [Kept; KEEP_MAX as usize],
}

impl Choice {
    fn kept(&self) -> &[Kept] {
        self.kept.get(..self.count as usize).unwrap_or(&[])
    }

    fn least(&self) -> u64 {
        self.kept().iter().map(|kept| kept.took).min().unwrap_or(0)
    }

    /// The one that the time until `until` belongs to.
    fn current(&self) -> u64 {
        self.kept().iter().max_by_key(|kept| kept.number).map_or(0, |kept| kept.took)
    }

    fn is_full(&self, rule: &SetRule) -> bool {
        self.count >= rule.keep.min(KEEP_MAX)
    }

    /// Whether a call is wanted that ended at `end`.
    fn wants(&self, rule: &SetRule, end: u64, took: u64) -> bool {
        let is_late = end >= self.until;
        match rule.by {
            keep_by::FIRST => is_late && !self.is_full(rule),
            keep_by::NEWEST => is_late,
            _ if is_late => !self.is_full(rule) || took > self.least(),
            _ => took > self.current(),
        }
    }

    /// Which one goes for a call that is wanted.
    fn goes(&self, rule: &SetRule, end: u64) -> Option<Kept> {
        let kept = self.kept().iter();
        match rule.by {
            keep_by::SLOWEST if end < self.until => kept.max_by_key(|kept| kept.number),
            _ if !self.is_full(rule) => None,
            keep_by::SLOWEST => kept.min_by_key(|kept| (kept.took, kept.number)),
            _ => kept.min_by_key(|kept| kept.number),
        }
        .copied()
    }

    /// Puts a call that is wanted in the place of the one that goes.
    fn keep(&mut self, end: u64, every: u64, new: Kept, gone: Option<Kept>) {
        self.wait(end, every);
        let place = gone.and_then(|gone| self.kept().iter().position(|kept| kept.number == gone.number));
        if place.is_none() {
            self.count += 1;
        }
        if let Some(place) = self.kept.get_mut(place.unwrap_or(self.count.saturating_sub(1) as usize)) {
            *place = new;
        }
    }

    fn wait(&mut self, end: u64, every: u64) {
        if end >= self.until {
            self.until = if every == 0 { 0 } else { end.saturating_add(every) };
        }
    }

    /// Which calls needn't be posted: until when, up to which time then, and up to which time always.
    fn quiet(&self, rule: &SetRule) -> (u64, u64, u64) {
        let full = self.is_full(rule);
        let least = match rule.by {
            keep_by::FIRST if full => u64::MAX,
            keep_by::SLOWEST if full => self.least(),
            _ => 0,
        };
        (self.until, if rule.by == keep_by::SLOWEST { self.current() } else { u64::MAX }, least)
    }
}

/// Kept calls go to `folder`. False where there is no such folder. For the start alone.
pub(crate) fn arm(folder: &[u8]) -> bool {
    FOLDER.set(folder) && File::open_folder_or_link(FOLDER.path()).is_ok() && STACKS.iter().all(Stack::map)
}

/// Writes what belongs to all triggers into a fresh arena of the process's own. Nothing where it has no room for any.
pub(crate) fn begin(arena: &Arena) {
    if let Some(triggers) = Triggers::of(arena) {
        triggers.begin(arena, site_set::set().map_or(0, |set| set.header().memory));
    }
}

/// A call was posted, in the entry `call`: starts a helper unless there is one. All but a signal that ends programs is blocked.
pub(crate) fn wake(process: &Process, triggers: &Triggers, rule: u32, call: *mut u8) {
    let state = &process.keeper;
    if site_set::set().is_none() || state.wanted.fetch_add(1, AcqRel) > 0 {
        return;
    }
    let argument = core::ptr::from_ref(process) as u64;
    // The thread must not get any signal, as a handler would run there without thread-local storage of its own.
    let mask = system::set_signal_mask(u64::MAX);
    // A child that shares our memory: a thread of its own would be gone with it, and what it holds would stay.
    let is_own = process.pid.load(Relaxed) == system::process_id();
    let mut places = STACKS.iter().zip(&state.running);
    let is_started = is_own
        && places.any(|(stack, running)| {
            matches!(helper::start(stack, running, keep_calls, argument), Started::Yes)
        });
    system::set_signal_mask(mask);
    if !is_started {
        triggers::take_back(call);
        triggers.count_missed(rule);
        state.wanted.store(0, Release);
    }
}

/// The helper.
unsafe extern "C" fn keep_calls(process: u64) {
    helper::begin();
    // SAFETY: the process that has posted; it stays.
    let process: &'static Process = unsafe { &*(process as *const Process) };
    let wanted = &process.keeper.wanted;
    loop {
        let seen = wanted.load(Acquire);
        if let Some(triggers) = Triggers::of(process.arena()) {
            // SAFETY: there is one helper at a time: another is started when `wanted` was 0.
            let choices = unsafe { &mut *process.keeper.choices.get() };
            // Before the look: what is posted from now on is heard of in the next round.
            let bell = triggers.bell();
            while let Some(call) = triggers.take_posted() {
                consider(process, &triggers, choices, &call);
            }
            triggers.hear(bell);
        }
        if wanted.compare_exchange(seen, 0, AcqRel, Relaxed).is_ok() {
            return;
        }
    }
}

/// Keeps a call, if it is wanted.
fn consider(process: &'static Process, triggers: &Triggers, choices: &mut Choices, call: &TriggeredCall) {
    let rule = site_set::set().and_then(|set| set.rule(call.rule));
    let (Some(rule), Some(choice)) = (rule, choices.of.get(call.rule as usize)) else { return };
    let took = call.end_ticks.saturating_sub(call.start_ticks);
    if !choice.wants(&rule, call.end_ticks, took) {
        return;
    }
    let gone = choice.goes(&rule, call.end_ticks);
    let written = write(process, triggers, choices, call, gone.is_some());
    let every = site_set::ticks(rule.every_ns, Bound::Nearest);
    let number = choices.number;
    let Some(choice) = choices.of.get_mut(call.rule as usize) else { return };
    if written.is_none() {
        // A full disk isn't asked more often than a disk with room.
        triggers.count_missed(call.rule);
        choice.wait(call.end_ticks, every);
    } else {
        choice.keep(call.end_ticks, every, Kept { took, number }, gone);
    }
    let (until, bar, least) = choice.quiet(&rule);
    triggers.set_quiet(call.rule, until, bar, least);
    if let (Some(gone), Some(_)) = (gone, written)
        && let Ok(folder) = File::open_folder_or_link(FOLDER.path())
    {
        folder.remove_in(file_name(&choices.name, gone.number).text());
    }
}

/// Takes the moment of a call and writes it: NAME-PID-kept-NUMBER.ect. `in_place`: another one goes for it.
fn write(
    process: &'static Process,
    triggers: &Triggers,
    choices: &mut Choices,
    call: &TriggeredCall,
    in_place: bool,
) -> Option<()> {
    let set = site_set::set()?;
    let taken = snapshot::take(process, 0).ok()?;
    let _ = snapshot::leave_rings(process, taken, call);
    let mut records = [TriggerRecord::default(); RULES as usize];
    let count = set.rule_count().min(RULES) as usize;
    let mut texts = 0;
    for ((record, choice), index) in records.iter_mut().zip(&choices.of).zip(0..).take(count) {
        let Some(rule) = set.rule(index) else { continue };
        let (fired, missed) = triggers.counts(index);
        let more = u32::from(index == call.rule && !in_place);
        *record = TriggerRecord {
            text_offset: rule.text_offset,
            text_length: rule.text_length,
            fired,
            kept: u64::from(choice.count + more),
            missed,
            functions: rule.functions,
            unwatched: triggers.unwatched(index),
            ..TriggerRecord::default()
        };
        texts = texts.max(rule.text_offset.saturating_add(rule.text_length));
    }
    let moment = Moment { call, triggers: records.get(..count).unwrap_or(&[]), texts: set.text(0, texts) };
    if choices.name.is_empty() {
        choices.name = Name::of_process();
    }
    let Choices { name, number, .. } = choices;
    let next = || {
        *number += 1;
        (*number < NUMBER_MAX).then(|| file_name(name, *number))
    };
    let written =
        snapshot::write_new(&FOLDER, next, |sink| snapshot::write_moment(process, taken, sink, &moment));
    // It is ours, and nobody else knows of it.
    let _ = snapshot::free(process, taken);
    written.map(|_| ())
}

fn file_name(of: &Name, number: u32) -> Name {
    let mut name = of.clone();
    name.put(b"-kept-");
    name.put_number(number);
    name.put(ect::ENDING.as_bytes());
    name
}
