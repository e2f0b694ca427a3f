//! Keeps calls that met a trigger of the set, if there is no `record` to do it. Each call becomes a
//! file, written by a [helper] that lives as long as there are calls to keep. The thread that made
//! the slow call only starts the helper.
//!
//! The rules are those of `record` (`crates/recording/triggers`, `Choice`): the slowest, the first
//! or the newest calls are kept, a limited number and size for each trigger, and at most one per
//! interval. The file of a call that is replaced is deleted.
#![allow(unsafe_code)] // A thread of ours gets a pointer to the process, and has a cell.

use crate::features::snapshot::{self, Moment, Sink};
use crate::state::arena::Arena;
use crate::state::kept_calls::{Choices, HELPERS, Kept};
use crate::state::own_triggers;
use crate::state::process::Process;
use crate::state::thresholds::{self, Bound};
use crate::state::trigger_table::Triggers;
use crate::sys::file::File;
use crate::sys::folder::Folder;
use crate::sys::helper::{self, Stack, Started};
use crate::sys::name::Name;
use crate::sys::{disk, processes, system};
use core::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use everycall_format::ect::{self, TriggerRecord};
use everycall_format::trigger::{RULES, TriggeredCall};

/// The highest file number of a process.
const NUMBER_MAX: u32 = 10_000_000;

static FOLDER: Folder = Folder::new();
static STACKS: [Stack; HELPERS] = [Stack::new(), Stack::new()];

/// Sets the folder for kept calls. Returns false if there is no such folder. Call it only at the
/// start.
pub(crate) fn arm(folder: &[u8]) -> bool {
    FOLDER.set(folder) && File::open_folder_or_link(FOLDER.path()).is_ok() && STACKS.iter().all(Stack::map)
}

/// Writes the header of all triggers into a fresh private arena. Does nothing if the arena has no
/// space for triggers.
pub(crate) fn begin(arena: &Arena) {
    if let Some(triggers) = Triggers::of(arena) {
        triggers.begin(arena, thresholds::set().map_or(0, |set| set.header().memory));
        if let Some(set) = thresholds::set() {
            own_triggers::put_rules(&triggers, set);
            own_triggers::put_frames(&triggers, set, |ns| thresholds::ticks(ns, Bound::Lower));
        }
    }
}

/// Starts a helper if a call was posted and none is running. All signals are blocked except those
/// that end the program.
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
    // The thread must not get any signal: a handler would run there without thread-local storage of
    // its own.
    let mask = system::set_signal_mask(u64::MAX);
    // In a child that shares our memory, the helper would end with the child, and what it holds
    // would stay locked.
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

/// Runs in the helper thread.
unsafe extern "C" fn keep_calls(process: u64) {
    helper::begin();
    // SAFETY: the process that has posted; it is never unmapped.
    let process: &'static Process = unsafe { &*(process as *const Process) };
    let wanted = &process.kept_calls.wanted;
    loop {
        let seen = wanted.load(Acquire);
        if let Some(triggers) = Triggers::of(process.arena()) {
            // SAFETY: there is only one helper at a time: another is started only when `wanted` was
            // 0.
            let choices = unsafe { &mut *process.kept_calls.choices.get() };
            // Read before looking: what is posted from now on is found in the next round.
            let doorbell = triggers.doorbell();
            while let Some(call) = triggers.take_posted() {
                consider(process, &triggers, choices, &call);
            }
            triggers.hear(doorbell);
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
    let met = (call.is_certain(), call.took_at_least());
    if !choice.wants(&rule, call.end_ticks, met) {
        return;
    }
    let in_place = choice.has_no_place(&rule, call.end_ticks, met.0);
    let written = write(process, triggers, choices, call, in_place);
    let every = thresholds::ticks(rule.every_ns, Bound::Nearest);
    let Choices { name, number, of } = choices;
    let Some(choice) = of.get_mut(call.rule as usize) else { return };
    match written {
        Some(kib) => {
            choice.newest_kib = kib;
            let (is_certain, took) = met;
            let new = Kept { is_certain, took, number: *number, kib };
            let folder = File::open_folder_or_link(FOLDER.path());
            let mut is_of_interval = call.end_ticks < choice.until;
            while let Some(gone) = choice.replaced(&rule, is_of_interval, &new) {
                is_of_interval = false;
                if let Ok(folder) = &folder {
                    folder.remove_in(file_name(name, gone.number).text());
                }
            }
            choice.keep(new);
        }
        // A full disk isn't tried more often than a disk with space.
        None => triggers.count_missed(call.rule),
    }
    choice.wait(call.end_ticks, every);
    let (until, bar, least) = choice.quiet(&rule);
    triggers.set_quiet(call.rule, until, bar, least);
}

/// Saves the surroundings of a call as NAME-PID-kept-NUMBER.ect. Returns the file's size, in units
/// of 1024 bytes. `in_place`: another kept call is removed for it.
fn write(
    process: &'static Process,
    triggers: &Triggers,
    choices: &mut Choices,
    call: &TriggeredCall,
    in_place: bool,
) -> Option<u32> {
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
            perhaps: triggers.perhaps(index).load(Relaxed),
            functions: rule.functions,
            not_armed: triggers.not_armed(index).saturating_add(rule.left_out),
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
    let mut size = 0;
    let written = snapshot::write_new(&FOLDER, next, |sink| {
        let written = snapshot::write_moment(process, taken, sink, &moment);
        if let Sink::File(descriptor) = sink {
            size = disk::size_behind(descriptor);
        }
        written
    });
    // The snapshot is ours, and no other thread knows of it.
    let _ = snapshot::free(process, taken);
    written.map(|_| u32::try_from(size.div_ceil(1024)).unwrap_or(u32::MAX))
}

fn file_name(of: &Name, number: u32) -> Name {
    let mut name = of.clone();
    name.put(b"-kept-");
    name.put_number(number);
    name.put(ect::ENDING.as_bytes());
    name
}
