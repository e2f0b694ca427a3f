//! Keeps calls that met a trigger of the set, where there is no `record` to do
//! it: each becomes a file, written by a [helper] that lives as long as there is something to keep.
//! The slow thread does no more than start it.
//!
//! Which calls stay is decided as in `record` (`crates/triggers`, `Choice`): the slowest, the first
//! or the newest, so many of each trigger, and at most one in a time. The file of one that goes is
//! removed.
#![allow(unsafe_code)] // A thread of ours gets a pointer to the process, and has a cell.

use crate::features::snapshot::{self, Moment};
use crate::state::arena::Arena;
use crate::state::kept_calls::{Choices, HELPERS, Kept};
use crate::state::process::Process;
use crate::state::thresholds::{self, Bound};
use crate::state::trigger_table::Triggers;
use crate::sys::file::File;
use crate::sys::folder::Folder;
use crate::sys::helper::{self, Stack, Started};
use crate::sys::name::Name;
use crate::sys::{processes, system};
use core::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::ect::{self, TriggerRecord};
use everycall_format::trigger::{RULES, TriggeredCall};

/// Files of one process.
const NUMBER_MAX: u32 = 10_000_000;

static FOLDER: Folder = Folder::new();
static STACKS: [Stack; HELPERS] = [Stack::new(), Stack::new()];

/// Kept calls go to `folder`. False where there is no such folder. For the start alone.
pub(crate) fn arm(folder: &[u8]) -> bool {
    FOLDER.set(folder) && File::open_folder_or_link(FOLDER.path()).is_ok() && STACKS.iter().all(Stack::map)
}

/// Writes what belongs to all triggers into a fresh arena of the process's own. Nothing where it
/// has no room for any.
pub(crate) fn begin(arena: &Arena) {
    if let Some(triggers) = Triggers::of(arena) {
        triggers.begin(arena, thresholds::set().map_or(0, |set| set.header().memory));
    }
}

/// Starts a helper where a call was posted for which there is none. All but a signal that ends
/// programs is blocked.
pub(crate) fn start_if_due(process: &Process) {
    if let Some(call) = process.kept_calls.take_due()
        && let Some(triggers) = Triggers::of(process.arena())
    {
        start(process, &triggers, call);
    }
}

#[cold]
fn start(process: &Process, triggers: &Triggers, call: u32) {
    let state = &process.kept_calls;
    let argument = core::ptr::from_ref(process) as u64;
    // The thread must not get any signal, as a handler would run there without thread-local storage
    // of its own.
    let mask = system::set_signal_mask(u64::MAX);
    // A child that shares our memory: a thread of its own would be gone with it, and what it holds
    // would stay.
    let is_own = process.pid.load(Relaxed) == system::process_id();
    let mut places = STACKS.iter().zip(&state.running);
    let is_started = is_own
        && places.any(|(stack, running)| {
            matches!(helper::start(stack, running, keep_calls, argument), Started::Yes)
        });
    system::set_signal_mask(mask);
    if !is_started {
        triggers.miss(call);
        state.wanted.store(0, Release);
    }
}

/// The helper.
unsafe extern "C" fn keep_calls(process: u64) {
    helper::begin();
    // SAFETY: the process that has posted; it stays.
    let process: &'static Process = unsafe { &*(process as *const Process) };
    let wanted = &process.kept_calls.wanted;
    loop {
        let seen = wanted.load(Acquire);
        if let Some(triggers) = Triggers::of(process.arena()) {
            // SAFETY: there is one helper at a time: another is started when `wanted` was 0.
            let choices = unsafe { &mut *process.kept_calls.choices.get() };
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
    let rule = thresholds::set().and_then(|set| set.rule(call.rule));
    let (Some(rule), Some(choice)) = (rule, choices.of.get(call.rule as usize)) else { return };
    let took = call.end_ticks.saturating_sub(call.start_ticks);
    if !choice.wants(&rule, call.end_ticks, took) {
        return;
    }
    let gone = choice.goes(&rule, call.end_ticks);
    let written = write(process, triggers, choices, call, gone.is_some());
    let every = thresholds::ticks(rule.every_ns, Bound::Nearest);
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

/// Takes the moment of a call and writes it: NAME-PID-kept-NUMBER.ect. `in_place`: another one goes
/// for it.
fn write(
    process: &'static Process,
    triggers: &Triggers,
    choices: &mut Choices,
    call: &TriggeredCall,
    in_place: bool,
) -> Option<()> {
    let set = thresholds::set()?;
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
            unwatched: triggers.unwatched(index).saturating_add(rule.left_out),
            ..TriggerRecord::default()
        };
        texts = texts.max(rule.text_offset.saturating_add(rule.text_length));
    }
    let moment = Moment { call, triggers: records.get(..count).unwrap_or(&[]), texts: set.text(0, texts) };
    if choices.name.is_empty() {
        choices.name = processes::file_name();
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
