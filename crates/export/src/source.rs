//! What the outputs ask of a trace.

use everycall_timeline::{MarkName, SameFunction, TimelineEvent, Trace};

/// A thread as the outputs show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's number of the process.
    pub pid: u32,
    /// The kernel's number of the thread.
    pub tid: u32,
    /// Its name; empty if unknown.
    pub name: String,
}

/// A finished timeline.
pub trait Source {
    /// Name of the traced program, for people.
    fn process_name(&self) -> &str;

    /// Its threads, in the order in which they are shown.
    fn threads(&self) -> &[Thread];

    /// The latest time in the trace, in nanoseconds since its origin.
    fn end_ns(&self) -> u64;

    /// Real time of the origin, in nanoseconds since 1970, where it is known.
    fn origin_realtime_ns(&self) -> Option<u64>;

    /// The text of a mark's name.
    fn mark_name(&self, name: MarkName) -> &str;

    /// The timeline of the thread with this index in [`Source::threads`]: balanced, and in the order of time.
    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent>;
}

/// A [`Trace`] as the outputs take it: main threads first, then in the order of their starts.
pub struct TraceSource<'t> {
    trace: &'t Trace<'t>,
    same_function: Option<SameFunction<'t>>,
    process_name: String,
    threads: Vec<Thread>,
    /// By index of a thread here: its index in the trace.
    indices: Vec<usize>,
    end_ns: u64,
}

impl<'t> TraceSource<'t> {
    /// `same_function` is asked whether an entry and an exit belong together.
    #[must_use]
    pub fn new(trace: &'t Trace<'t>, same_function: Option<SameFunction<'t>>) -> Self {
        let mut infos: Vec<_> = trace.threads().iter().collect();
        infos.sort_by_key(|info| (info.key.snapshot, info.pid != info.tid, info.start_ns, info.index));
        let end_ns =
            infos.iter().filter_map(|info| info.reach).map(|(_, last_ns)| last_ns).max().unwrap_or(0);
        let threads = infos
            .iter()
            .map(|info| Thread { pid: info.pid, tid: info.tid, name: info.name.clone() })
            .collect();
        let indices = infos.iter().map(|info| info.index).collect();
        TraceSource { trace, same_function, process_name: process_name(trace), threads, indices, end_ns }
    }
}

impl Source for TraceSource<'_> {
    fn process_name(&self) -> &str {
        &self.process_name
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn end_ns(&self) -> u64 {
        self.end_ns
    }

    fn origin_realtime_ns(&self) -> Option<u64> {
        self.trace.clock().origin_realtime_ns()
    }

    fn mark_name(&self, name: MarkName) -> &str {
        self.trace.mark_names().text(name)
    }

    fn events(&self, thread: usize) -> impl Iterator<Item = TimelineEvent> {
        let index = self.indices.get(thread).copied().unwrap_or(usize::MAX);
        self.trace.thread_events_checked(index, self.same_function)
    }
}

/// The program's file name: of its module, else as it was called.
fn process_name(trace: &Trace<'_>) -> String {
    let program = trace.modules().iter().find(|module| module.is_executable).map(|module| &module.path);
    let path = program.filter(|path| !path.is_empty()).or(trace.meta().arguments.first());
    let name = path.and_then(|path| path.rsplit(|byte| *byte == b'/').next()).unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
