//! A whole recording, ready to be shown.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use everycall_format::tasks;
use everycall_reader::{
    Child, CodeRange, Counts, Dropped, Error, Frames, KeptCall, Memory, Meta, Module, Process,
    ProcessCalibration, ProcessEnd, Reason, Recording, SampledStacks, Sched, Session, Snapshot, Source,
    ThreadKey, Trigger, ValueCounts, Warning,
};

use crate::clock::{Clock, ClockQuality};
use crate::code::Code;
use crate::location::ModuleMap;
use crate::log_lines::LogLines;
use crate::marks::{MarkNames, TaskCode};
use crate::narrowing::{Narrowed, Narrowing, OutermostCallers};
use crate::part::Part;
use crate::process_tree::{Relative, process_tree};
use crate::scan::{ThreadScan, scan_ends, scan_thread};
use crate::states::{self, States};
use crate::task_list::TASKS_MAX;
use crate::tasks::Divided;
use crate::thread::{Checkpoint, ThreadEvents, has_unstamped};
use crate::thread_info::ThreadInfo;
use crate::values::CapturedValues;
use everycall_calls::Location;
use everycall_calls::TASKS_FROM;
use everycall_calls::ThreadStates;
use everycall_calls::{GapKind, TimelineEvent};

/// A recording with its clock and its threads.
pub struct Trace<'a> {
    source: Box<dyn Source + 'a>,
    clock: Clock,
    /// The clock in nanoseconds, if `clock` gives ticks.
    in_ns: Option<Clock>,
    /// By process.
    modules: Vec<ModuleMap>,
    threads: Vec<ThreadInfo>,
    names: MarkNames,
    /// Threads that are tasks which are named by their code.
    coded: Vec<(usize, TaskCode)>,
    narrowing: Option<Narrowing>,
    /// Made when they are asked for: that takes as long as reading them.
    states: OnceLock<Option<States>>,
    /// Those of each fiber and task, by the thread's place.
    step_states: Vec<OnceLock<Option<ThreadStates>>>,
    warnings: Vec<Warning>,
}

/// How a trace is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    InNs,
    InTicks,
    Unread,
}

impl<'a> Trace<'a> {
    /// Reads all words of `source` once to learn what it contains, and makes the clock.
    ///
    /// # Errors
    /// None at present: damage is reported in [`Trace::warnings`]. The type allows for later errors.
    pub fn open(source: impl Source + 'a) -> Result<Trace<'a>, Error> {
        Trace::open_with(source, How::InNs)
    }

    /// Like [`Trace::open`], but all times are ticks, as they were recorded, instead of nanoseconds since the origin.
    /// [`Trace::clock_in_ns`] converts them.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn open_in_ticks(source: impl Source + 'a) -> Result<Trace<'a>, Error> {
        Trace::open_with(source, How::InTicks)
    }

    /// Reads the ends of each thread only, so that it takes no longer for long threads: to know a
    /// little of a large file at once. Threads have no counts, marks have no names, and missing
    /// segments aren't noticed. What threads cover is known, and [`Trace::part`] can be read.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn open_unread(source: impl Source + 'a) -> Result<Trace<'a>, Error> {
        Trace::open_with(source, How::Unread)
    }

    fn open_with(source: impl Source + 'a, how: How) -> Result<Trace<'a>, Error> {
        let source: Box<dyn Source + 'a> = Box::new(source);
        let recording = source.recording();
        let mut warnings = recording.warnings.clone();
        let mut names = MarkNames::default();
        names.logs = LogLines::new(recording);
        let mut scans = Vec::new();
        for (snapshot, threads) in recording.snapshots.iter().enumerate() {
            for thread in 0..threads.threads.len() {
                let key = ThreadKey { snapshot, thread };
                let scan = match how {
                    How::Unread if source.parts(key) > 0 => scan_ends(source.as_ref(), key),
                    _ => scan_thread(source.as_ref(), key, &mut names, &mut warnings),
                };
                scans.push((key, scan));
            }
        }
        let mut source = source;
        let mut hosts = Vec::new();
        for (key, scan) in &mut scans {
            let tasks = std::mem::take(&mut scan.tasks);
            if tasks.are_too_many {
                Warning::TooMany { what: "tasks in a thread", kept: TASKS_MAX }.add_to(&mut warnings);
            }
            if !tasks.is_empty() {
                hosts.push((*key, tasks));
            }
        }
        if !hosts.is_empty() {
            source = Box::new(Divided::new(source, hosts, &mut scans));
        }
        let recording = source.recording();
        let earliest = scans.iter().filter_map(|(_, scan)| scan.earliest_ticks).min();
        let mut clock = Clock::new(&recording.clock, earliest);
        let mut in_ns = None;
        if how == How::InTicks {
            let raw = clock.raw();
            in_ns = Some(std::mem::replace(&mut clock, raw));
        }
        let renames = recording.sched.as_ref().map(|sched| states::renames(sched, &clock));
        let mut coded = Vec::new();
        let threads: Vec<ThreadInfo> = scans
            .into_iter()
            .enumerate()
            .map(|(index, (key, scan))| {
                let mut thread = thread_info(index, key, recording, &scan, &clock);
                if let Some(renames) = renames.as_ref().filter(|_| thread.fiber.is_none()) {
                    let (from, _) = thread.reach.unwrap_or((thread.start_ns, 0));
                    thread.renames = renames.of(thread.pid, thread.tid, from.max(thread.start_ns));
                }
                let name = &recording.snapshots[key.snapshot].threads[key.thread].name;
                if let Some(address) = tasks::code_in(name).filter(|_| thread.fiber.is_some()) {
                    let code = TaskCode { process: thread.process, address };
                    thread.name = code.title();
                    coded.push((index, code));
                }
                thread
            })
            .collect();
        let table = |process: &Process| recording.modules.get(process.modules.clone()).unwrap_or_default();
        let codes: HashMap<usize, &[CodeRange]> =
            recording.frames.iter().map(|frames| (frames.process, &*frames.codes)).collect();
        let map = |(index, process): (usize, &Process)| {
            let modules = table(process);
            ModuleMap::new(modules, &recording.trampolines)
                .with_codes(modules, codes.get(&index).copied().unwrap_or_default())
        };
        let modules = recording.processes.iter().enumerate().map(map).collect();
        let narrowing =
            recording.session.as_ref().map(|session| Narrowing::new(session, &recording.modules, &clock));
        let step_states = threads.iter().map(|_| OnceLock::new()).collect();
        Ok(Trace {
            clock,
            in_ns,
            modules,
            threads,
            names,
            coded,
            narrowing,
            states: OnceLock::new(),
            step_states,
            warnings,
            source,
        })
    }

    /// Texts about the recording.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.source.recording().meta
    }

    /// Traced processes.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.source.recording().processes
    }

    /// The processes in the order of their process tree.
    #[must_use]
    pub fn process_tree(&self) -> Vec<Relative> {
        process_tree(self.processes())
    }

    /// Modules of all processes; [`Location::module`] is an index.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.source.recording().modules
    }

    /// Processes that were not followed.
    #[must_use]
    pub fn children(&self) -> &[Child] {
        &self.source.recording().children
    }

    /// How the program that `record` started ended, if that was seen.
    #[must_use]
    pub fn process_end(&self) -> Option<ProcessEnd> {
        self.source.recording().process_end
    }

    /// Snapshots, with the runtime's counts.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.source.recording().snapshots
    }

    /// Triggers, and their results.
    #[must_use]
    pub fn triggers(&self) -> &[Trigger] {
        &self.source.recording().triggers
    }

    /// The session's request, if the file was written by one: other calls are left out of the
    /// threads' timelines.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.source.recording().session.as_ref()
    }

    /// Whether it is of a program's whole run: not a moment that was asked for, kept calls alone, or
    /// a session.
    #[must_use]
    pub fn is_of_run(&self) -> bool {
        let is_end = |snapshot: &Snapshot| matches!(snapshot.reason, Reason::ProcessEnd | Reason::Stream);
        self.session().is_none() && self.source.recording().snapshots.iter().any(is_end)
    }

    /// Kept calls, in the order of their ends.
    #[must_use]
    pub fn kept_calls(&self) -> &[KeptCall] {
        &self.source.recording().kept
    }

    /// Calls that were counted and not recorded.
    #[must_use]
    pub fn counts(&self) -> &[Counts] {
        &self.source.recording().counts
    }

    /// How often calls had the same values, in processes that count this.
    #[must_use]
    pub fn value_counts(&self) -> &[ValueCounts] {
        &self.source.recording().value_counts
    }

    /// All calls of processes that recorded, also those whose events were overwritten.
    #[must_use]
    pub fn all_calls(&self) -> &[Counts] {
        &self.source.recording().all_calls
    }

    /// Whether calls of a process's function at a location are shown: with a session, those that it
    /// requested.
    #[must_use]
    pub fn is_of_session(&self, process: usize, location: Location) -> bool {
        let narrowing = self.narrowing.as_ref().filter(|narrowing| narrowing.is_of(process));
        narrowing.is_none_or(|narrowing| narrowing.has(location))
    }

    /// The cost of hooks, of the processes that have measured it.
    #[must_use]
    pub fn calibrations(&self) -> &[ProcessCalibration] {
        &self.source.recording().calibrations
    }

    /// Memory that counted calls have allocated and freed, by process and snapshot.
    #[must_use]
    pub fn memory(&self) -> &[Memory] {
        &self.source.recording().memory
    }

    /// Thread states; `None` if they weren't recorded.
    #[must_use]
    pub fn states(&self) -> Option<&States> {
        let made = || Some(States::new(self.sched()?, &self.clock));
        self.states.get_or_init(made).as_ref()
    }

    /// The states of the thread at `index`; `None` if nothing is known. Fibers and tasks have those
    /// of the threads that run them, while they do. If only samples of the states are known, they
    /// have none.
    #[must_use]
    pub fn states_of(&self, index: usize) -> Option<&ThreadStates> {
        let thread = self.threads.get(index)?;
        let states = self.states()?;
        if thread.fiber.is_none() {
            return states.thread(thread.pid, thread.tid);
        }
        let made = || states.of_steps(thread.pid, &self.steps(thread));
        self.step_states.get(index)?.get_or_init(made).as_ref()
    }

    /// The steps of a fiber or task: the thread that runs it, begin and end.
    fn steps(&self, thread: &ThreadInfo) -> Vec<(u32, u64, u64)> {
        let Some((mut begin, end)) = thread.reach else { return Vec::new() };
        // The first one of a task is known; of a fiber, the last one.
        let is_task = thread.fiber.is_some_and(|fiber| fiber >= TASKS_FROM);
        let mut by = Some(thread.tid).filter(|_| is_task);
        let mut steps = Vec::new();
        let mut add = |by: Option<u32>, from, to| steps.extend(by.map(|by| (by, from, to)));
        for event in self.thread_events(thread.index) {
            if let TimelineEvent::Gap(gap) = event
                && gap.why == GapKind::Suspended
            {
                add(by, begin, gap.at_ns);
                (by, begin) = (gap.resumed_by, gap.until_ns);
            }
        }
        add(by.or(Some(thread.tid).filter(|_| !is_task)), begin, end);
        steps
    }

    /// The source of thread states, and its limits; `None` if they weren't recorded.
    #[must_use]
    pub fn sched(&self) -> Option<&Sched> {
        self.source.recording().sched.as_ref()
    }

    /// Where threads were at moments that the kernel chose; `None` if that wasn't recorded.
    #[must_use]
    pub fn stacks(&self) -> Option<&SampledStacks> {
        self.source.recording().stacks.as_ref()
    }

    /// Short calls that were dropped.
    #[must_use]
    pub fn dropped(&self) -> &[Dropped] {
        &self.source.recording().dropped
    }

    /// The frames by id that a module stands for; `None` for an object.
    #[must_use]
    pub fn frames_of(&self, module: &Module) -> Option<&Frames> {
        self.source.recording().frames_of(module)
    }

    /// Image addresses of the instructions that a module's hooks stand before, if trampolines call
    /// them.
    pub fn origins_of(&self, module: &Module) -> impl Iterator<Item = u64> {
        let tables = self.source.recording().trampolines.iter();
        let own = tables.filter(|table| table.number == module.trampolines && module.trampolines != 0);
        own.flat_map(|table| table.entries.iter().map(|(_, origin)| *origin))
    }

    /// Whether some events have no times of their own, in which case durations have bounds.
    #[must_use]
    pub fn has_bounds(&self) -> bool {
        self.processes().iter().any(|process| has_unstamped(Some(process)))
    }

    /// The conversion of ticks, the moment of the origin, and how good they are.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The conversion of ticks to nanoseconds since the origin, also of a trace that was opened in ticks.
    #[must_use]
    pub fn clock_in_ns(&self) -> &Clock {
        self.in_ns.as_ref().unwrap_or(&self.clock)
    }

    /// Whether it was opened in ticks.
    #[must_use]
    pub fn is_in_ticks(&self) -> bool {
        self.in_ns.is_some()
    }

    /// How good the conversion of ticks is.
    #[must_use]
    pub fn clock_quality(&self) -> ClockQuality {
        self.clock.quality()
    }

    /// All threads of all snapshots.
    #[must_use]
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.threads
    }

    /// The log lines.
    #[must_use]
    pub fn log_lines(&self) -> &LogLines {
        &self.names.logs
    }

    /// Arguments and results of calls.
    #[must_use]
    pub fn values(&self) -> &CapturedValues {
        &self.names.values
    }

    /// The names of labels, instants, spans and counters, and how often they occur.
    #[must_use]
    pub fn mark_names(&self) -> &MarkNames {
        &self.names
    }

    /// Damaged, missing or unknown parts of the recording.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The recording itself.
    #[must_use]
    pub fn source(&self) -> &(dyn Source + 'a) {
        self.source.as_ref()
    }

    /// The timeline of the thread at `index` in [`Trace::threads`]; empty where there is none.
    #[must_use]
    pub fn thread_events(&self, index: usize) -> ThreadEvents<'_> {
        self.thread_events_checked(index, None)
    }

    /// Like [`Trace::thread_events`], but `code` checks the pairings and finds the jumps.
    #[must_use]
    pub fn thread_events_checked<'t>(&'t self, index: usize, code: Option<&'t dyn Code>) -> ThreadEvents<'t> {
        self.events_of(index, code, None)
    }

    /// The timeline of the thread at `index` from a checkpoint on, which was made by the same
    /// thread's timeline, checked by the same code. `None` if the file can't be read there.
    #[must_use]
    pub fn thread_events_from<'t>(
        &'t self,
        index: usize,
        code: Option<&'t dyn Code>,
        checkpoint: &Checkpoint,
    ) -> Option<ThreadEvents<'t>> {
        let mut events = self.events_of(index, code, Some(checkpoint));
        events.resume(self.source.as_ref(), self.threads.get(index)?.key, checkpoint).then_some(events)
    }

    /// How many parts of the thread at `index` can be read alone; 0 if none can.
    #[must_use]
    pub fn parts(&self, index: usize) -> usize {
        self.threads.get(index).map_or(0, |thread| self.source.parts(thread.key))
    }

    /// When one of these parts begins, in nanoseconds since the origin, as far as that is known
    /// without reading it.
    #[must_use]
    pub fn part_begin(&self, index: usize, part: usize) -> Option<u64> {
        let ticks = self.source.part_begin(self.threads.get(index)?.key, part)?;
        Some(self.clock.ns(ticks))
    }

    /// Some parts of a thread; `None` if they can't be read.
    #[must_use]
    pub fn part<'t>(
        &'t self,
        index: usize,
        code: Option<&'t dyn Code>,
        parts: Range<usize>,
    ) -> Option<Part<'t>> {
        let thread = self.threads.get(index)?;
        let cursors = parts.map_while(|part| self.source.part(thread.key, part));
        let is_unstamped = has_unstamped(self.processes().get(thread.process)) && !thread.is_sampled;
        let process = (thread.process, is_unstamped);
        Part::read(cursors, process, &self.clock, self.modules_of(thread.process), &self.names, code)
    }

    fn events_of<'t>(
        &'t self,
        index: usize,
        code: Option<&'t dyn Code>,
        resumed: Option<&Checkpoint>,
    ) -> ThreadEvents<'t> {
        let thread = self.threads.get(index);
        let modules = thread.and_then(|thread| self.modules.get(thread.process)).unwrap_or(ModuleMap::EMPTY);
        let is_its = |narrowing: &&Narrowing| thread.is_some_and(|thread| narrowing.is_of(thread.process));
        let narrowing = self.narrowing.as_ref().filter(is_its);
        let all = |resumed| {
            ThreadEvents::new(self.source.as_ref(), thread, &self.clock, modules, &self.names, code, resumed)
        };
        let narrowed = narrowing.map(|to| {
            // A checkpoint has them.
            let is_needed = to.needs_callers() && resumed.is_none();
            let orphan_exits = thread.map_or(0, |thread| thread.orphan_exits);
            let find = || OutermostCallers::find(to, orphan_exits, all(None));
            Narrowed::new(to, code, if is_needed { find() } else { OutermostCallers::default() })
        });
        all(resumed).narrowed(narrowed)
    }

    /// Whether there are tasks that are named by their code.
    #[must_use]
    pub fn has_tasks_of_code(&self) -> bool {
        !self.coded.is_empty() || self.names.codes().next().is_some()
    }

    /// Gives the tasks that are named by their code the names that `name` knows for it.
    pub fn name_tasks(&mut self, mut name: impl FnMut(Location) -> Option<String>) {
        let mut known: HashMap<TaskCode, Option<String>> = HashMap::new();
        let locate = |code: TaskCode| self.locate_last(code.process, code.address);
        let threads = self.coded.iter().map(|(_, code)| *code);
        for code in threads.chain(self.names.codes()) {
            known.entry(code).or_insert_with(|| name(locate(code)?));
        }
        self.names.name_tasks(&mut |code| known.get(&code).cloned().flatten());
        for (index, code) in &self.coded {
            if let (Some(thread), Some(Some(name))) = (self.threads.get_mut(*index), known.get(code)) {
                thread.name.clone_from(name);
            }
        }
    }

    /// The location of an address of a process in the traced module that was there last.
    #[must_use]
    pub fn locate_last(&self, process: usize, address: u64) -> Option<Location> {
        let modules = self.processes().get(process)?.modules.clone();
        let there = self.modules().get(modules)?.iter().filter(|module| module.is_complete());
        let there = there.filter(|module| (module.start..module.end).contains(&address));
        let module = there.max_by_key(|module| module.loaded_ticks)?;
        let offset = u32::try_from(address - module.start).ok()?.checked_add(module.code_start)?;
        Some(self.locate(process, offset, module.loaded_ticks))
    }

    /// The place of an address of a process in the file that was loaded last at or below it: code
    /// or data, or nothing if the address is behind the file's end.
    #[must_use]
    pub fn place_of(&self, process: usize, address: u64) -> Option<Location> {
        let modules = self.processes().get(process)?.modules.clone();
        let there = self.modules().get(modules)?.iter();
        let there = there.filter(|module| module.is_complete() && module.base <= address);
        let module = there.max_by_key(|module| (module.base, module.loaded_ticks))?;
        let index = u32::try_from(module.same_file).ok().filter(|index| *index < Location::LOST_MODULE)?;
        Some(Location { module: index, image_address: address - module.base })
    }

    /// The modules of a process.
    pub(crate) fn modules_of(&self, process: usize) -> &ModuleMap {
        self.modules.get(process).unwrap_or(ModuleMap::EMPTY)
    }

    /// The module and address of a code offset of a process at a moment.
    #[must_use]
    pub fn locate(&self, process: usize, offset: u32, ticks: u64) -> Location {
        self.modules.get(process).unwrap_or(ModuleMap::EMPTY).locate(&mut 0, offset, ticks)
    }

    /// The location of an address of a process outside its modules at a time, in ticks.
    #[must_use]
    pub fn locate_outside(&self, process: usize, address: u64, ticks: u64) -> Location {
        self.modules_of(process).locate_outside(address, ticks)
    }

    /// The location of an address of a process at a time, in ticks; `None` if no traced module was
    /// there.
    #[must_use]
    pub fn locate_address(&self, process: usize, address: u64, ticks: u64) -> Option<Location> {
        let modules = self.processes().get(process)?.modules.clone();
        let known = self.modules().get(modules)?.iter().rev().filter(|module| module.is_complete());
        let module = known.clone().find(|module| {
            (module.start..module.end).contains(&address)
                && module.loaded_ticks <= ticks
                && module.unloaded_ticks.is_none_or(|unloaded| unloaded >= ticks)
        })?;
        let offset = u32::try_from(address - module.start).ok()?.checked_add(module.code_start)?;
        Some(self.locate(process, offset, ticks))
    }
}

impl std::fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("clock", &self.clock)
            .field("threads", &self.threads)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// Whether a thread's events reach back to the session that the file is of.
fn reaches_session(recording: &Recording, scan: &ThreadScan) -> bool {
    let reach = recording.session.as_ref().zip(scan.reach_ticks);
    reach.is_some_and(|(session, (first, _))| first <= session.start_ticks)
}

fn thread_info(
    index: usize,
    key: ThreadKey,
    recording: &Recording,
    scan: &ThreadScan,
    clock: &Clock,
) -> ThreadInfo {
    let thread = &recording.snapshots[key.snapshot].threads[key.thread];
    let origin = clock.origin_ticks();
    let length = |ticks: u64| clock.ns(origin.saturating_add(ticks)) - clock.ns(origin);
    ThreadInfo {
        index,
        key,
        process: recording.snapshots[key.snapshot].process,
        pid: thread.pid,
        tid: thread.tid,
        slot: (thread.slot, thread.generation),
        name: thread.name_lossy().into_owned(),
        renames: Vec::new(),
        start_ns: clock.ns(thread.start_ticks),
        reach: scan.reach_ticks.map(|(first, last)| (clock.ns(first), clock.ns(last))),
        events: scan.events,
        entries: scan.entries,
        losses: scan.losses,
        missing: scan.missing,
        gaps: scan.gaps,
        gaps_ns: length(scan.gaps_ticks),
        suspended: scan.suspended,
        suspended_ns: length(scan.suspended_ticks),
        malformed_words: scan.malformed_words,
        is_complete: scan.is_complete,
        segments_overwritten: thread.first_segment,
        is_cut: thread.first_segment > 0 && !reaches_session(recording, scan),
        segments_lost: scan.segments_lost,
        open_calls: scan.open_calls,
        unwound: thread.unwound,
        orphan_exits: thread.orphan_exits,
        lost_busy: thread.lost_busy,
        deep: thread.deep,
        fiber: thread.fiber,
        is_sampled: thread.is_sampled,
        // The count at the end is unknown if another thread had the slot by then.
        dropped_within: scan.dropped.map(|(first, last)| thread.dropped.max(last).saturating_sub(first)),
    }
}
