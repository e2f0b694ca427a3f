//! The interface between traces and outputs.

use everycall_calls::Thread;
use everycall_timeline::{
    Bars, Clock, Code, MarkName, Origin, ThreadStates, TimelineEvent, Trace, ValuesNumber, WallClock,
};
use everycall_values::Value;
use rustc_hash::FxHashMap;

use crate::calendar::Calendar;
use crate::layouts::Layouts;

/// The kind of time that is shown.
#[derive(Clone, Copy, Debug, Default)]
pub enum Times<'a> {
    /// Nanoseconds since the trace's origin.
    #[default]
    Trace,
    /// Calendar time.
    Wall(&'a Calendar),
    /// Ticks as recorded: the source's times are ticks. This clock converts them to nanoseconds.
    Raw(&'a Clock),
}

/// A process as the outputs show it: one program's run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The kernel's number.
    pub pid: u32,
    /// The kernel's number of its parent; 0 if unknown.
    pub parent_pid: u32,
    /// The displayed name of the program.
    pub name: String,
    /// Words of its command line; empty if unknown.
    pub command: Vec<String>,
}

/// Follows a thread's timeline, and computes the durations of calls without the cost of tracing.
pub trait Correcting {
    /// Takes the next event. Of a call that ends, returns its duration.
    fn event(&mut self, event: &TimelineEvent) -> Option<Bars>;
}

/// A finished timeline.
pub trait Source {
    /// Its processes.
    fn processes(&self) -> &[Process];

    /// Their threads, in the order in which they are shown.
    fn threads(&self) -> &[Thread];

    /// The latest time in the trace, in nanoseconds since its origin.
    fn end_ns(&self) -> u64;

    /// The time of the last event, in nanoseconds since the origin: the trace may continue without
    /// events.
    fn last_event_ns(&self) -> u64;

    /// Real time of the origin, in nanoseconds since 1970, if known.
    fn origin_realtime_ns(&self) -> Option<u64>;

    /// In which time its moments are to be shown.
    fn times(&self) -> Times<'_> {
        Times::Trace
    }

    /// The conversion to real time, where it is known.
    fn wall(&self) -> Option<&WallClock> {
        None
    }

    /// Real time at a moment, in nanoseconds since 1970, where it is known.
    fn realtime_ns(&self, at_ns: u64) -> Option<u64> {
        self.origin_realtime_ns().map(|origin| origin.saturating_add(at_ns))
    }

    /// The first moment at which it was this real time, or later; `None` where real time isn't known.
    fn ns_at_realtime(&self, realtime_ns: u64) -> Option<u64> {
        self.origin_realtime_ns().map(|origin| realtime_ns.saturating_sub(origin))
    }

    /// The moment that is so many nanoseconds after the origin, in the unit of the source's times.
    fn moment(&self, ns: u64) -> u64 {
        ns
    }

    /// So many nanoseconds in the unit of the source's times.
    fn duration(&self, ns: u64) -> u64 {
        ns
    }

    /// The text of a mark's name.
    fn mark_name(&self, name: MarkName) -> &str;

    /// The text of a log line.
    fn log_line(&self, line: MarkName) -> String {
        let _ = line;
        String::new()
    }

    /// Whether calls have arguments or results, or threw something.
    fn has_values(&self) -> bool {
        false
    }

    /// The values in the bytes of a capture with this id, with their names; none if they can't be
    /// read.
    fn captured(&self, id: u32, bytes: &[u8]) -> Vec<(String, Value)> {
        let _ = (id, bytes);
        Vec::new()
    }

    /// Arguments or a result of a call, with their names; none if they can't be read.
    fn values(&self, number: ValuesNumber) -> Vec<(String, Value)> {
        let _ = number;
        Vec::new()
    }

    /// Whether events may have no times of their own, so that durations have bounds.
    fn has_bounds(&self) -> bool {
        false
    }

    /// Whether durations are shown without what tracing cost in them.
    fn is_corrected(&self) -> bool {
        false
    }

    /// Corrects durations for the cost of tracing, if [`Source::is_corrected`].
    fn correcting(&self) -> Option<Box<dyn Correcting + '_>> {
        None
    }

    /// The time before the oldest event of the thread with this index in [`Source::threads`], if
    /// older ones were overwritten.
    fn overwritten(&self, thread: usize) -> Option<(u64, u64)> {
        let _ = thread;
        None
    }

    /// When the kernel ran the thread with this index in [`Source::threads`]; `None` if nothing is known.
    fn states(&self, thread: usize) -> Option<&ThreadStates> {
        let _ = thread;
        None
    }

    /// The timeline of the thread with this index in [`Source::threads`]: balanced and ordered by
    /// time.
    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent>;
}

/// A [`Trace`] as outputs need it: processes in the order of the process tree; in each, the main
/// thread first, then by start time.
pub struct TraceSource<'t> {
    trace: &'t Trace<'t>,
    code: Option<&'t dyn Code>,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    /// By index of a thread here: its index in the trace.
    indices: Vec<usize>,
    layouts: Layouts,
    end_ns: u64,
}

impl<'t> TraceSource<'t> {
    /// `code` decides whether an entry and an exit belong together, and finds jumps into other
    /// functions.
    #[must_use]
    pub fn new(trace: &'t Trace<'t>, code: Option<&'t dyn Code>) -> Self {
        let mut infos: Vec<_> = trace.threads().iter().collect();
        let mut place = vec![0; trace.processes().len()];
        for (index, relative) in trace.process_tree().iter().enumerate() {
            place[relative.process] = index;
        }
        let place = |process: usize| place.get(process).copied();
        infos.sort_by_key(|info| {
            (place(info.process), info.key.snapshot, info.pid != info.id(), info.start_ns, info.index)
        });
        let threads = infos
            .iter()
            .map(|info| Thread {
                process: info.process,
                pid: info.pid,
                tid: info.id(),
                name: info.title(),
                dropped: info.dropped_within.unwrap_or(0),
                is_sampled: info.is_sampled,
            })
            .collect();
        let indices = infos.iter().map(|info| info.index).collect();
        let (processes, layouts) = (processes(trace), Layouts::of(trace));
        TraceSource { trace, code, processes, threads, indices, layouts, end_ns: end_ns(trace) }
    }

    /// The index in the trace of the thread with index `thread` here.
    #[must_use]
    pub fn index(&self, thread: usize) -> Option<usize> {
        self.indices.get(thread).copied()
    }
}

/// The name of a recorded address; `None` if that isn't known, or isn't the same in all
/// processes in which something is there.
#[must_use]
pub fn name_of(trace: &Trace<'_>, code: Option<&dyn Code>, value: &Value) -> Option<String> {
    let code = code?;
    let (Value::Pointer(address) | Value::Function(address) | Value::CallSite(address)) = *value else {
        return None;
    };
    let mut places = (0..trace.processes().len()).filter_map(|process| trace.place_of(process, address));
    let place = places.next()?;
    if places.any(|other| other != place) {
        return None;
    }
    match value {
        Value::CallSite(_) => code.call_site(place),
        Value::Function(_) => code.function_named(place),
        _ => code.variable_named(place),
    }
}

impl Source for TraceSource<'_> {
    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn end_ns(&self) -> u64 {
        self.end_ns
    }

    fn last_event_ns(&self) -> u64 {
        last_event_ns(self.trace)
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.trace.clock().origin_realtime_ns()
    }

    fn wall(&self) -> Option<&WallClock> {
        self.trace.clock_in_ns().wall()
    }

    fn realtime_ns(&self, at_ns: u64) -> Option<u64> {
        let clock = self.trace.clock_in_ns();
        let at_ns = if self.trace.is_in_ticks() { clock.ns(at_ns) } else { at_ns };
        Some(clock.wall()?.realtime_ns(at_ns))
    }

    fn ns_at_realtime(&self, realtime_ns: u64) -> Option<u64> {
        Some(self.trace.clock_in_ns().wall()?.ns(realtime_ns))
    }

    fn moment(&self, ns: u64) -> u64 {
        if self.trace.is_in_ticks() { self.trace.clock_in_ns().ticks(ns) } else { ns }
    }

    fn duration(&self, ns: u64) -> u64 {
        if !self.trace.is_in_ticks() {
            return ns;
        }
        let clock = self.trace.clock_in_ns();
        clock.ticks(ns) - clock.origin_ticks()
    }

    fn has_values(&self) -> bool {
        self.trace.values().are_any()
    }

    fn captured(&self, id: u32, bytes: &[u8]) -> Vec<(String, Value)> {
        self.layouts.decode(id, bytes)
    }

    fn values(&self, number: ValuesNumber) -> Vec<(String, Value)> {
        self.layouts.values(self.trace, number)
    }

    fn has_bounds(&self) -> bool {
        self.trace.has_bounds()
    }

    fn mark_name(&self, name: MarkName) -> &str {
        self.trace.mark_names().text(name)
    }

    fn log_line(&self, line: MarkName) -> String {
        self.trace.log_lines().text(line, |_| None)
    }

    fn overwritten(&self, thread: usize) -> Option<(u64, u64)> {
        self.trace.threads().get(self.index(thread)?)?.overwritten_ns()
    }

    fn states(&self, thread: usize) -> Option<&ThreadStates> {
        self.trace.states_of(*self.indices.get(thread)?)
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent> {
        let index = self.indices.get(thread).copied().unwrap_or(usize::MAX);
        self.trace.thread_events_checked(index, self.code)
    }
}

/// The latest time in a trace, in nanoseconds since its origin.
#[must_use]
pub fn end_ns(trace: &Trace<'_>) -> u64 {
    let clock = trace.clock();
    let taken = trace.snapshots().iter().filter_map(|snapshot| snapshot.ticks).map(|ticks| clock.ns(ticks));
    taken.max().unwrap_or(0).max(last_event_ns(trace))
}

fn last_event_ns(trace: &Trace<'_>) -> u64 {
    trace.threads().iter().filter_map(|thread| thread.reach).map(|(_, last)| last).max().unwrap_or(0)
}

fn processes(trace: &Trace<'_>) -> Vec<Process> {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = |process: &everycall_timeline::Process| Process {
        pid: process.pid,
        parent_pid: process.parent_pid,
        name: process_name(trace, process),
        command: process.command.iter().map(|word| lossy(word)).collect(),
    };
    trace.processes().iter().map(shown).collect()
}

/// The title that a forked process has given itself in place of its parent's command line.
#[must_use]
pub fn process_title(trace: &Trace<'_>, process: &everycall_timeline::Process) -> Option<String> {
    let parent = trace.processes().get(process.parent?)?;
    let is_other = process.origin == Origin::Fork && command_before(trace, parent) != process.command;
    let title = process.command.join(&b' ');
    let title = title.trim_ascii();
    (is_other && !title.is_empty()).then(|| String::from_utf8_lossy(title).into_owned())
}

/// The command line of a process, which may be inherited from its ancestors.
fn command_before<'t>(trace: &'t Trace<'_>, process: &'t everycall_timeline::Process) -> &'t [Vec<u8>] {
    let mut oldest = process;
    // A file may say that processes are each other's parents.
    for _ in 0..trace.processes().len() {
        let parent = oldest.parent.and_then(|parent| trace.processes().get(parent));
        match parent.filter(|_| oldest.origin == Origin::Fork) {
            Some(parent) => oldest = parent,
            None => break,
        }
    }
    &oldest.command
}

/// The name of a process: its title, if it has given itself one after a fork, else the program's:
/// the file name of its module, else of its command, else the kernel's name.
#[must_use]
pub fn process_name(trace: &Trace<'_>, process: &everycall_timeline::Process) -> String {
    if let Some(title) = process_title(trace, process) {
        return title;
    }
    let modules = trace.modules().get(process.modules.clone()).unwrap_or_default();
    let program = modules.iter().find(|module| module.is_executable).map(|module| &module.path);
    let path = program.filter(|path| !path.is_empty()).or(process.command.first());
    let name = path.and_then(|path| path.rsplit(|byte| *byte == b'/').next()).unwrap_or(&process.name);
    String::from_utf8_lossy(name).into_owned()
}

/// The titles of processes in viewers, by process id. If several programs ran in a process, its
/// title has all of their names.
pub(crate) fn process_titles(source: &impl Source) -> FxHashMap<u32, String> {
    let mut titles: FxHashMap<u32, Vec<&str>> = FxHashMap::default();
    for process in source.processes() {
        let names = titles.entry(process.pid).or_default();
        if names.last() != Some(&process.name.as_str()) && names.len() < TITLE_NAMES {
            names.push(&process.name);
        }
    }
    titles.into_iter().map(|(pid, names)| (pid, names.join(", "))).collect()
}

/// Largest number of names in a title.
const TITLE_NAMES: usize = 4;
