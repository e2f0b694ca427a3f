//! The traces of a database, and what is known of them so far.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use everycall_export::Source as _;

use crate::aggregation::Group;
use crate::calls::Calls;
use crate::lanes::{Lane, OpenTrace};

/// State that the tables of a database share.
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
    /// The rows of the table of groups.
    pub(crate) groups: RefCell<Rc<Vec<Group>>>,
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
        Shared {
            traces,
            lanes,
            entries,
            counts,
            calls: OnceCell::new(),
            scans: Cell::new(0),
            groups: RefCell::default(),
        }
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
        let (calls, counts) = Calls::read(&self.traces, &self.lanes)?;
        *self.counts.borrow_mut() = counts.into_iter().map(Some).collect();
        let calls = Rc::new(calls);
        Ok(self.calls.get_or_init(|| calls).clone())
    }
}
