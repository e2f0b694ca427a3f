//! Receives the calls that threads post, and keeps those that are wanted: takes a snapshot of the
//! process as soon as the call is posted.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use everycall_format::Wire as _;
use everycall_format::ect::{KeptCall, TriggerRecord, chunk, reason};
use everycall_format::trigger::{NEVER, NO_CODE, TriggerSite, TriggeredCall, call_flags};
use everycall_live::LiveArena;
use everycall_recorder::{Fired, KeepCalls, TriggeredProcess};
use everycall_tracefile::{WriteChunk, array};

use crate::frames::{NamedFrames, frame_pattern};
use crate::kept::Kept;
use crate::policy::{Choice, KeepBy, Limit, Met, Policy};
use crate::rate::Rate;
use crate::scan::{ScannedProcess, frames_key, is_scanned};
use crate::tails;
use crate::trigger::{Condition, Trigger};

/// Kept snapshots are numbered from here; snapshots of whole processes have small numbers.
const FIRST_SNAPSHOT: u32 = 1 << 31;
/// Time between two looks when the doorbell doesn't ring.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks when the events that threads write have to be scanned.
const SCAN_PAUSE: Duration = Duration::from_millis(1);
/// Time between two updates of percentile thresholds.
const THRESHOLDS_PAUSE: Duration = Duration::from_millis(100);
/// After this time, one look keeps at most `keep` calls of a trigger. A process that overwrites its
/// posts with slower and slower calls must not delay the end of the recording.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Percentiles are taken over the calls of this many nanoseconds.
const PERCENTILE_OF_NS: u64 = 10_000_000_000;

/// The result of one trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The trigger as the user wrote it.
    pub text: String,
    /// Functions that it names, in all modules.
    pub functions: u64,
    /// Of these, functions that were armed late: their first calls weren't compared.
    pub late: u64,
    /// Further functions that it names and that couldn't be armed, because there was no room.
    pub not_armed: u64,
    /// Calls that met its condition, or may have.
    pub fired: u64,
    /// Of these, those that may have met it: they ended in a jump to code that isn't traced.
    pub perhaps: u64,
    /// Calls of `fired` that were kept.
    pub kept: u64,
    /// Bytes of their snapshots.
    pub kept_bytes: u64,
    /// Triggers that share the disk space.
    pub triggers: u64,
    /// The limits that left out others.
    pub limits: Vec<Limit>,
    /// Of these, calls that should have been kept and couldn't be.
    pub missed: u64,
}

/// The results of all triggers, for the report at the end.
#[derive(Debug, Default)]
pub struct Outcome(Mutex<Results>);

#[derive(Debug, Default)]
struct Results {
    tallies: Vec<Tally>,
    /// By trigger, the frames by id that it names.
    frames: Vec<u64>,
    /// Why a call could not be kept.
    error: Option<String>,
    /// Segments that were overwritten before they were scanned.
    missed_segments: u64,
}

impl Outcome {
    /// No results so far.
    #[must_use]
    pub fn new(triggers: &[Trigger]) -> Outcome {
        let tally = |trigger: &Trigger| Tally { text: trigger.to_string(), ..Tally::default() };
        Outcome(Mutex::new(Results { tallies: triggers.iter().map(tally).collect(), ..Results::default() }))
    }

    fn known(&self) -> MutexGuard<'_, Results> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of each trigger.
    #[must_use]
    pub fn tallies(&self) -> Vec<Tally> {
        let known = self.known();
        let mut tallies = known.tallies.clone();
        tallies.iter_mut().zip(&known.frames).for_each(|(tally, frames)| tally.functions += frames);
        tallies
    }

    /// The error that kept calls from being saved, if there was one.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.known().error.clone()
    }

    /// Segments that were overwritten before they were scanned for entries and percentiles.
    #[must_use]
    pub fn missed_segments(&self) -> u64 {
        self.known().missed_segments
    }

    /// Counts functions that were armed in a process, by trigger. `left_out` more had no room.
    pub fn armed(&self, counts: &[usize], left_out: u32) {
        let mut known = self.known();
        for (tally, count) in known.tallies.iter_mut().zip(counts) {
            tally.functions = *count as u64;
        }
        // The runtime doesn't say which trigger they belong to.
        if let Some(tally) = known.tallies.iter_mut().max_by_key(|tally| tally.functions) {
            tally.not_armed = u64::from(left_out);
            tally.functions = tally.functions.saturating_sub(u64::from(left_out));
        }
    }

    /// Whether triggers name more functions than were counted so far, by these counts.
    #[must_use]
    pub fn names_more(&self, counts: &[usize]) -> bool {
        let known = self.known();
        known
            .tallies
            .iter()
            .zip(counts)
            .any(|(tally, count)| *count as u64 > tally.functions + tally.not_armed)
    }

    /// Counts functions that were armed in modules that a process loaded later: earlier calls in
    /// them weren't compared.
    pub fn armed_late(&self, counts: &[usize], left_out: u32) {
        let before: Vec<u64> =
            self.known().tallies.iter().map(|tally| tally.functions + tally.not_armed).collect();
        self.armed(counts, left_out);
        for ((tally, count), before) in self.known().tallies.iter_mut().zip(counts).zip(before) {
            tally.late += (*count as u64).saturating_sub(before);
        }
    }

    /// Counts a frame by id that a trigger names.
    pub(crate) fn found_frame(&self, rule: usize) {
        let mut known = self.known();
        let count = known.tallies.len();
        known.frames.resize(count, 0);
        if let Some(frames) = known.frames.get_mut(rule) {
            *frames += 1;
        }
    }

    pub(crate) fn found(&self, sites: &[TriggerSite]) {
        self.count(sites, |tally| tally.functions += 1);
    }

    pub(crate) fn late(&self, sites: &[TriggerSite]) {
        self.count(sites, |tally| tally.late += 1);
    }

    /// Counts functions that were found, but had no room.
    pub(crate) fn not_armed(&self, sites: &[TriggerSite]) {
        self.count(sites, |tally| {
            tally.functions = tally.functions.saturating_sub(1);
            tally.not_armed += 1;
        });
    }

    fn count(&self, sites: &[TriggerSite], one_more: impl Fn(&mut Tally)) {
        let mut known = self.known();
        for site in sites {
            if let Some(tally) = known.tallies.get_mut(site.rule as usize) {
                one_more(tally);
            }
        }
    }
}

/// Trigger, name and file of frames by id.
type Named = HashSet<(usize, Vec<u8>, Vec<u8>)>;

/// Keeps calls. See the file's head.
#[derive(Debug)]
pub struct Keeper {
    triggers: Arc<[Trigger]>,
    rate: Arc<Rate>,
    outcome: Arc<Outcome>,
    /// Folder for the snapshots that wait for the recording's end.
    folder: PathBuf,
    choices: Vec<Choice>,
    /// Trigger, number in its choice, and snapshot, in the order in which they were taken.
    kept: Vec<(usize, u64, Kept)>,
    /// How often each trigger fired, by process and trigger.
    fired: HashMap<(u32, u32), Fired>,
    /// The arenas of the processes that exist.
    arenas: HashMap<u32, Arc<LiveArena>>,
    doorbells: HashMap<u32, u32>,
    /// Results of scans, by process.
    scans: HashMap<u32, ScannedProcess>,
    /// By trigger, the pattern for names of frames by id.
    frame_patterns: Vec<String>,
    /// By process, the frames that they name.
    frames: HashMap<u32, NamedFrames>,
    /// The named frames of all processes: trigger, name and file.
    named: Named,
    /// Signals that were received and entries that were found, by trigger.
    noticed: Vec<u64>,
    /// Calls of these that perhaps met the condition.
    noticed_perhaps: Vec<u64>,
    /// Segments of ended threads that were overwritten before they were scanned.
    missed_segments: u64,
    thresholds_due: Instant,
    /// Calls that were wanted and could not be kept, by trigger.
    failed: Vec<u64>,
    next_snapshot: u32,
    rate_due: Instant,
    /// After this instant, the current look keeps at most `keep` calls of a trigger.
    busy_until: Option<Instant>,
    /// Calls that the current look has kept, by trigger.
    taken: Vec<usize>,
    /// Largest number of calls to keep, of all triggers together.
    limit: Option<usize>,
    /// Posts of calls that ended before this time belong to other triggers.
    since: u64,
}

/// Snapshots on request are neither slow nor fast, and none is refused.
fn policy_of(trigger: &Trigger, policy: Policy) -> Policy {
    match (&trigger.condition, policy.by) {
        (Condition::Entered(_) | Condition::Threw(..), KeepBy::Slowest) => {
            Policy { by: KeepBy::First, ..policy }
        }
        (Condition::Signal(_), KeepBy::Slowest) => Policy { by: KeepBy::Newest, every_ns: 0, ..policy },
        (Condition::Signal(_), _) => Policy { every_ns: 0, ..policy },
        _ => policy,
    }
}

impl Keeper {
    /// Keeps calls by `policy`. Snapshots wait in unnamed files in `folder`.
    #[must_use]
    pub fn new(
        triggers: Arc<[Trigger]>,
        rate: Arc<Rate>,
        outcome: Arc<Outcome>,
        policy: Policy,
        folder: PathBuf,
    ) -> Keeper {
        let choice_count = triggers.len();
        let policy = Policy { bytes: policy.bytes / choice_count.max(1) as u64, ..policy };
        Keeper {
            choices: triggers.iter().map(|trigger| Choice::new(policy_of(trigger, policy))).collect(),
            failed: vec![0; triggers.len()],
            noticed: vec![0; triggers.len()],
            noticed_perhaps: vec![0; triggers.len()],
            triggers: Arc::clone(&triggers),
            rate,
            outcome,
            folder,
            kept: Vec::new(),
            fired: HashMap::new(),
            scans: HashMap::new(),
            frame_patterns: triggers.iter().map(frame_pattern).collect(),
            frames: HashMap::new(),
            named: HashSet::new(),
            missed_segments: 0,
            thresholds_due: Instant::now(),
            arenas: HashMap::new(),
            doorbells: HashMap::new(),
            next_snapshot: FIRST_SNAPSHOT,
            rate_due: Instant::now() + PAUSE,
            busy_until: None,
            taken: vec![0; choice_count],
            limit: None,
            since: 0,
        }
    }

    /// Adds process `number` with its mapped arena. It has had our triggers since `since`, in
    /// ticks.
    pub fn know(&mut self, number: u32, arena: Arc<LiveArena>, since: u64) {
        self.arenas.insert(number, arena);
        self.since = since;
    }

    /// Limits how many calls of all triggers together are kept.
    pub fn limit(&mut self, calls: usize) {
        self.limit = Some(calls);
    }

    /// How many calls are kept now.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.iter().map(|(rule, id, _)| (*rule, *id)).collect::<HashSet<_>>().len()
    }

    /// The calls that were posted since the last look, ordered by their ends.
    fn posted<'w>(
        &mut self,
        processes: &'w [TriggeredProcess],
    ) -> Vec<(TriggeredCall, &'w TriggeredProcess)> {
        let mut posted: Vec<(TriggeredCall, _)> = Vec::new();
        for process in processes {
            let doorbell = process.triggers.doorbell();
            if self.doorbells.insert(process.number, doorbell) != Some(doorbell) {
                posted.extend(process.triggers.take_posted().into_iter().map(|call| (call, process)));
            }
        }
        posted.retain(|(call, _)| call.end_ticks >= self.since);
        posted.sort_by_key(|(call, _)| call.end_ticks);
        posted
    }

    /// Takes a snapshot of these processes if the call is wanted.
    fn consider(&mut self, call: &TriggeredCall, processes: &[&TriggeredProcess]) {
        let rule = call.rule as usize;
        let met = Met { end: call.end_ticks, took: call.took_at_least(), is_certain: call.is_certain() };
        if !self.choices.get(rule).is_some_and(|choice| choice.wants(met)) {
            return;
        }
        if self.limit.is_some_and(|limit| self.kept() >= limit) {
            return;
        }
        let is_possible =
            call.start_ticks <= call.end_ticks && call.end_ticks <= everycall_machine::clock::ticks();
        let is_too_much = self.busy_until.is_some_and(|until| until <= Instant::now())
            && self
                .taken
                .get(rule)
                .zip(self.choices.get(rule))
                .is_some_and(|(taken, choice)| *taken >= choice.most());
        if !is_possible || is_too_much {
            return self.fail(rule);
        }
        if let Some(taken) = self.taken.get_mut(rule) {
            *taken += 1;
        }
        let mut kept = Vec::new();
        for process in processes {
            match self.take(call, process) {
                Ok(one) => kept.push(one),
                Err(error) => {
                    self.outcome.known().error.get_or_insert(error.to_string());
                }
            }
        }
        if kept.is_empty() {
            return self.fail(rule);
        }
        let Some(choice) = self.choices.get_mut(rule) else { return };
        let every = self.rate.ticks(choice.every_ns());
        let bytes = kept.iter().map(|kept| kept.bytes).fold(0, u64::saturating_add);
        let (id, gone) = choice.keep(met, bytes, every);
        self.kept.retain(|(of, id, _)| *of != rule || !gone.contains(id));
        self.kept.extend(kept.into_iter().map(|kept| (rule, id, kept)));
    }

    /// Counts a call that was wanted and can't be kept.
    fn fail(&mut self, rule: usize) {
        if let Some(failed) = self.failed.get_mut(rule) {
            *failed = failed.saturating_add(1);
        }
    }

    fn take(&mut self, call: &TriggeredCall, process: &TriggeredProcess) -> io::Result<Kept> {
        let arena = match self.arenas.entry(process.number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let (file, layout) = process.arena.file().ok_or(io::ErrorKind::NotFound)?;
                let arena = LiveArena::of_file(file, layout, process.pid).map_err(io::Error::other)?;
                place.insert(Arc::new(arena))
            }
        };
        let mut snapshot = everycall_live::take(arena, None).map_err(io::Error::other)?;
        snapshot.leave_rings(call.end_ticks, call.slot, call.generation, call.start_ticks);
        let number = self.next_snapshot;
        self.next_snapshot = number.wrapping_add(1).max(FIRST_SNAPSHOT);
        let thread = snapshot.thread(call.slot, call.generation);
        let record = KeptCall::of(call, number, thread);
        Kept::new(&self.folder, process.number, |chunks| {
            snapshot.write_into(chunks, number, reason::TRIGGER)?;
            chunks.chunk(chunk::KEPT, &[&record.to_bytes()])
        })
    }

    /// Considers and counts a call that the recorder found itself.
    fn notice(&mut self, call: &TriggeredCall, processes: &[&TriggeredProcess]) {
        if let Some(noticed) = self.noticed.get_mut(call.rule as usize) {
            *noticed += 1;
        }
        if let Some(perhaps) = self.noticed_perhaps.get_mut(call.rule as usize) {
            *perhaps += u64::from(!call.is_certain());
        }
        self.consider(call, processes);
    }

    /// Takes a snapshot of all processes, for each trigger that waits for `signal`.
    fn signal(&mut self, signal: i32, processes: &[TriggeredProcess]) {
        let now = everycall_machine::clock::ticks();
        let triggers = Arc::clone(&self.triggers);
        let waits =
            |trigger: &Trigger| matches!(trigger.condition, Condition::Signal(for_it) if for_it == signal);
        let living: Vec<&TriggeredProcess> = processes
            .iter()
            .filter(|process| Path::new(&format!("/proc/{}", process.pid)).exists())
            .collect();
        for (rule, _) in (0..).zip(triggers.iter()).filter(|(_, trigger)| waits(trigger)) {
            let call = TriggeredCall {
                rule,
                code: NO_CODE,
                slot: u32::MAX,
                flags: call_flags::NO_CALL,
                start_ticks: now,
                end_ticks: now,
                ..TriggeredCall::default()
            };
            self.notice(&call, &living);
        }
    }

    /// Scans for entries, and updates the thresholds of percentile triggers.
    fn scan(&mut self, processes: &[TriggeredProcess]) {
        if !self.triggers.iter().any(is_scanned) {
            return;
        }
        let triggers = Arc::clone(&self.triggers);
        let is_due = self.thresholds_due <= Instant::now();
        if is_due {
            self.thresholds_due = Instant::now() + THRESHOLDS_PAUSE;
        }
        let since = everycall_machine::clock::ticks().saturating_sub(self.rate.ticks(PERCENTILE_OF_NS));
        for process in processes {
            let scan = self.scans.entry(process.number).or_default();
            let frames = self.frames.entry(process.number).or_default();
            let (patterns, named, outcome) = (&self.frame_patterns, &mut self.named, &self.outcome);
            let renew = |frames: &mut NamedFrames| look_at_names(frames, process, patterns, named, outcome);
            let entered = scan.look(process, &triggers, frames, renew);
            if is_due {
                process.triggers.arm(|site| match triggers.get(site.rule as usize)?.condition {
                    Condition::Percentile(_, percent) => Some(
                        scan.threshold(site.first, percent, since)
                            .map_or(NEVER, |ticks| ticks.min(NEVER - 1)),
                    ),
                    _ => None,
                });
                for (rule, trigger) in (0..).zip(triggers.iter()) {
                    if let Condition::Percentile(_, percent) = trigger.condition
                        && let Some(ticks) = scan.threshold(frames_key(rule), percent, since)
                    {
                        process.triggers.arm_frames(rule, ticks.min(NEVER - 1));
                    }
                }
            }
            for call in entered {
                self.notice(&call, &[process]);
            }
        }
        let is_there = |number: &u32| processes.iter().any(|process| process.number == *number);
        let gone = self.scans.extract_if(|number, _| !is_there(number));
        let missed = gone.map(|(_, scan)| scan.missed());
        self.missed_segments = missed.fold(self.missed_segments, u64::saturating_add);
    }

    fn count(&mut self, processes: &[TriggeredProcess]) {
        for process in processes {
            for rule in 0..self.triggers.len() as u32 {
                self.fired.insert((process.number, rule), process.triggers.fired(rule));
            }
        }
    }

    fn improve_rate(&mut self, processes: &[TriggeredProcess]) {
        if self.rate_due > Instant::now() {
            return;
        }
        self.rate_due = Instant::now() + PAUSE;
        self.rate.improve();
        for process in processes {
            process.triggers.arm(|site| match self.triggers.get(site.rule as usize)?.condition {
                Condition::Longer(_, ns) => Some(self.rate.ticks(ns).min(NEVER - 1)),
                _ => None,
            });
            for (rule, trigger) in (0..).zip(self.triggers.iter()) {
                if let Condition::Longer(_, ns) = trigger.condition {
                    process.triggers.arm_frames(rule, self.rate.ticks(ns).min(NEVER - 1));
                }
            }
        }
    }

    fn tallies(&self) -> Vec<Tally> {
        let mut tallies = self.outcome.tallies();
        let own = self.noticed.iter().zip(&self.failed).zip(&self.noticed_perhaps);
        for ((rule, tally), ((noticed, failed), perhaps)) in tallies.iter_mut().enumerate().zip(own) {
            let counts = self.fired.iter().filter(|((_, of), _)| *of as usize == rule);
            let sum = |count: fn(&Fired) -> u64| {
                counts.clone().map(|(_, fired)| count(fired)).fold(0, u64::saturating_add)
            };
            tally.fired = sum(|fired| fired.calls).saturating_add(*noticed);
            tally.missed = sum(|fired| fired.missed).saturating_add(*failed);
            tally.perhaps = sum(|fired| fired.perhaps).saturating_add(*perhaps);
            if let Some(choice) = self.choices.get(rule) {
                (tally.kept_bytes, tally.limits) = (choice.bytes(), choice.limits());
                tally.triggers = self.triggers.len() as u64;
            }
            let ids: HashSet<u64> =
                self.kept.iter().filter(|(of, ..)| *of == rule).map(|(_, id, _)| *id).collect();
            tally.kept = ids.len() as u64;
        }
        tallies
    }
}

/// Compares the names that a process has added since the last look.
fn look_at_names(
    frames: &mut NamedFrames,
    process: &TriggeredProcess,
    patterns: &[String],
    named: &mut Named,
    outcome: &Outcome,
) {
    frames.look(process, patterns, |rule, name, file| {
        if named.insert((rule, name.to_vec(), file.to_vec())) {
            outcome.found_frame(rule);
        }
    });
}

impl KeepCalls for Keeper {
    fn look(&mut self, processes: &[TriggeredProcess], signals: &[i32]) -> Duration {
        self.busy_until = Instant::now().checked_add(LOOK_MAX);
        self.taken.fill(0);
        self.improve_rate(processes);
        signals.iter().for_each(|signal| self.signal(*signal, processes));
        for (call, process) in self.posted(processes) {
            self.consider(&call, &[process]);
        }
        for process in processes {
            // The state before the look: what was posted since then waits for the next one.
            if let Some(doorbell) = self.doorbells.get(&process.number) {
                process.triggers.hear(*doorbell);
            }
        }
        for process in processes {
            for call in process.over.map_or_else(Vec::new, |over| tails::open_at_end(process, over)) {
                self.notice(&call, &[process]);
            }
        }
        for process in processes {
            let frames = self.frames.entry(process.number).or_default();
            look_at_names(frames, process, &self.frame_patterns, &mut self.named, &self.outcome);
        }
        self.scan(processes);
        for process in processes {
            for (rule, choice) in (0..).zip(&self.choices) {
                process.triggers.set_quiet(rule, choice.quiet());
            }
        }
        self.count(processes);
        self.frames.retain(|number, _| processes.iter().any(|process| process.number == *number));
        self.arenas.retain(|number, _| processes.iter().any(|process| process.number == *number));
        self.doorbells.retain(|number, _| processes.iter().any(|process| process.number == *number));
        if self.triggers.iter().any(is_scanned) { SCAN_PAUSE } else { PAUSE }
    }

    fn write(&mut self, write: &mut WriteChunk<'_>) -> io::Result<()> {
        for (rule, choice) in self.choices.iter_mut().enumerate() {
            let gone = choice.outnumbering();
            self.kept.retain(|(of, id, _)| *of != rule || !gone.contains(id));
        }
        for (_, _, kept) in &mut self.kept {
            kept.copy(write)?;
        }
        let tallies = self.tallies();
        let mut texts = Vec::new();
        let mut records = Vec::new();
        for tally in &tallies {
            records.push(TriggerRecord {
                text_offset: texts.len() as u32,
                text_length: tally.text.len() as u32,
                fired: tally.fired,
                perhaps: tally.perhaps,
                kept: tally.kept,
                missed: tally.missed,
                functions: tally.functions,
                late: tally.late,
                not_armed: tally.not_armed,
            });
            texts.extend_from_slice(tally.text.as_bytes());
        }
        let missed =
            self.scans.values().map(ScannedProcess::missed).fold(self.missed_segments, u64::saturating_add);
        let mut known = self.outcome.known();
        known.frames.clear();
        (known.tallies, known.missed_segments) = (tallies, missed);
        drop(known);
        let mut payload = array(&records);
        payload.extend(texts);
        write(0, chunk::TRIGGERS, &payload)
    }
}
