//! The traces of a database, and what is known of them so far.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use everycall_analysis::TraceView;
use everycall_export::{Filter, Rows, Source as _};

use crate::calls::Calls;

/// A trace that can be queried. It lives as long as the process.
#[derive(Clone, Copy)]
pub struct OpenTrace {
    /// What the column `trace` has: the file, as it was named.
    pub name: &'static str,
    /// Its timeline.
    pub view: &'static TraceView<'static>,
    /// What is taken of it.
    pub filter: &'static Filter,
}

impl OpenTrace {
    /// Its rows, from the first thread on.
    pub(crate) fn rows(&self) -> TraceRows {
        Rows::new(self.view, self.view.names(), self.filter)
    }
}

/// The rows of a trace.
pub(crate) type TraceRows = Rows<'static, TraceView<'static>>;

/// A thread of a trace.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    /// Index of the trace.
    pub(crate) trace: usize,
    /// Index of the thread in it.
    pub(crate) thread: usize,
    pub(crate) pid: i64,
    pub(crate) tid: i64,
}

/// What the tables of a database share.
pub(crate) struct Shared {
    pub(crate) traces: Vec<OpenTrace>,
    pub(crate) lanes: Vec<Lane>,
    /// Entries of all of them: a guess of the number of calls.
    pub(crate) entries: u64,
    /// By lane: its calls, once they were counted.
    pub(crate) counts: RefCell<Vec<Option<i64>>>,
    calls: OnceCell<Rc<Calls>>,
    /// How many times a query has begun to read whole traces.
    pub(crate) scans: Cell<u64>,
}

impl Shared {
    pub(crate) fn new(traces: Vec<OpenTrace>) -> Shared {
        let mut lanes = Vec::new();
        for (index, trace) in traces.iter().enumerate() {
            for (thread, facts) in trace.view.threads().iter().enumerate() {
                if trace.filter.admits_thread(facts) {
                    let (pid, tid) = (facts.pid.into(), facts.tid.into());
                    lanes.push(Lane { trace: index, thread, pid, tid });
                }
            }
        }
        let threads = traces.iter().flat_map(|trace| trace.view.trace().threads());
        let entries = threads.map(|thread| thread.entries).sum();
        let counts = RefCell::new(vec![None; lanes.len()]);
        Shared { traces, lanes, entries, counts, calls: OnceCell::new(), scans: Cell::new(0) }
    }

    /// The name of the process of a lane, and of its thread.
    pub(crate) fn names(&self, lane: usize) -> Option<(&str, &str)> {
        let Lane { trace, thread, .. } = *self.lanes.get(lane)?;
        let view = self.traces.get(trace)?.view;
        let thread = view.threads().get(thread)?;
        let process = view.processes().get(thread.process).map_or("", |process| &process.name);
        Some((process, &thread.name))
    }

    /// All calls by their numbers: they are read when they are needed first.
    ///
    /// # Errors
    ///
    /// The temporary file can't be written.
    pub(crate) fn calls(&self) -> std::io::Result<Rc<Calls>> {
        if let Some(calls) = self.calls.get() {
            return Ok(calls.clone());
        }
        let calls = Rc::new(Calls::read(self)?);
        Ok(self.calls.get_or_init(|| calls).clone())
    }
}
