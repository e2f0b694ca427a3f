//! A trace of a database, and its threads.

use everycall_analysis::TraceView;
use everycall_export::{Filter, Rows};

/// A trace that can be queried. It lives as long as the process.
#[derive(Clone, Copy)]
pub struct OpenTrace {
    /// The value of the column `trace`: the file, as it was named.
    pub name: &'static str,
    /// Its timeline.
    pub view: &'static TraceView<'static>,
    /// Selects the rows to read.
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
