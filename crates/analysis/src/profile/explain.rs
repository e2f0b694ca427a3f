//! Compares the slow calls of some functions with the median ones.
//!
//! Two passes are needed. The first pass measures the durations of the calls. The second pass sums
//! up, for the slow calls and for those around the median:
//! - the time in each called function,
//! - their own time,
//! - the time in which their stack was suspended.
//!
//! Only outermost calls count: a call within another call of these functions is a part of that
//! call.

use everycall_export::{Filter, Thread};
use rustc_hash::FxHashMap;

use super::focus::Focus;
use super::functions::{FunctionNumber, Functions};
use super::notes::Notes;
use super::sketch::Sketch;
use super::walk::{EndedCall, Visitor, walk};
use crate::view::TraceView;

/// Sums over some calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doings {
    /// How many calls.
    pub calls: u64,
    /// How long they took.
    pub duration_ns: u64,
    /// Their own time: in the functions themselves and in untraced code, including waiting.
    pub own_ns: u64,
    /// The time in which their stacks were suspended, because the thread ran another fiber.
    pub suspended_ns: u64,
    /// Time in nanoseconds and number of calls, by called function.
    pub called: FxHashMap<FunctionNumber, (u64, u64)>,
}

impl Doings {
    fn add(&mut self, call: &EndedCall, called: &FxHashMap<FunctionNumber, (u64, u64)>) {
        self.calls += 1;
        self.duration_ns = self.duration_ns.saturating_add(call.duration_ns());
        self.own_ns = self.own_ns.saturating_add(call.own_ns);
        self.suspended_ns = self.suspended_ns.saturating_add(call.suspended_ns);
        for (function, (ns, calls)) in called {
            let sum = self.called.entry(*function).or_default();
            *sum = (sum.0.saturating_add(*ns), sum.1 + calls);
        }
    }

    /// The average per call.
    #[must_use]
    pub fn per_call(&self, sum: u64) -> f64 {
        sum as f64 / self.calls.max(1) as f64
    }
}

/// One call of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlace {
    /// Process id of its thread.
    pub pid: u32,
    /// Its thread; of fibers see [`everycall_timeline::FIBERS_FROM`].
    pub tid: u32,
    /// Number of enclosing calls.
    pub depth: u32,
    /// When it began, in nanoseconds since the trace's origin.
    pub start_ns: u64,
}

/// The sums of the slow calls, and of those around the median.
pub struct Explanation<'f> {
    focus: Focus<'f>,
    functions: Functions,
    /// What the trace lacks.
    pub notes: Notes,
    /// The durations of all calls.
    pub times: Sketch,
    /// The slowest percent of the calls, at least one.
    pub slow: Doings,
    /// The calls between the 45th and 55th percentile.
    pub median: Doings,
    is_second: bool,
    stack: Vec<bool>,
    /// Depth at which the outermost call of a function in focus is open.
    outermost: Option<usize>,
    called: FxHashMap<FunctionNumber, (u64, u64)>,
    bounds: [u64; 3],
    /// The call that is to be explained in the place of the slow ones.
    only: Option<CallPlace>,
    /// Process and thread of the calls that follow.
    thread: (u32, u32),
}

impl<'f> Explanation<'f> {
    /// Creates it for the functions in focus.
    #[must_use]
    pub fn new(focus: Focus<'f>) -> Explanation<'f> {
        Explanation {
            focus,
            functions: Functions::default(),
            notes: Notes::default(),
            times: Sketch::default(),
            slow: Doings::default(),
            median: Doings::default(),
            is_second: false,
            stack: Vec::new(),
            outermost: None,
            called: FxHashMap::default(),
            bounds: [0; 3],
            only: None,
            thread: (0, 0),
        }
    }

    /// The same where one call takes the place of the slow ones: [`Explanation::slow`] is what that
    /// call did, unless it is within another call of its function, or its duration isn't known.
    #[must_use]
    pub fn of_call(self, call: CallPlace) -> Explanation<'f> {
        Explanation { only: Some(call), ..self }
    }

    /// The first pass over a trace. The first passes over all traces come before
    /// [`Explanation::second`].
    pub fn first(&mut self, view: &TraceView<'_>, filter: &Filter) {
        self.pass(view, filter);
    }

    /// The second pass, over the same traces.
    pub fn second(&mut self, view: &TraceView<'_>, filter: &Filter) {
        if !self.is_second {
            self.is_second = true;
            let times = &self.times;
            let at = |of| times.percentile(of).unwrap_or(0);
            // The middle of a bucket may exceed the values in it by this much.
            let (below, above) = (|ns: u64| ns - ns / 64, |ns: u64| ns.saturating_add(ns / 64));
            let slow = below(at(9_900)).min(times.max().unwrap_or(0));
            self.bounds = [below(at(4_500)), above(at(5_500)), slow];
        }
        self.pass(view, filter);
    }

    fn pass(&mut self, view: &TraceView<'_>, filter: &Filter) {
        let mut functions = std::mem::take(&mut self.functions);
        let mut notes = Notes::default();
        walk(view, filter, None, &mut functions, &mut notes, self);
        self.functions = functions;
        if !self.is_second {
            self.notes.add(&notes);
        }
    }

    fn place_of(&self, call: &EndedCall) -> CallPlace {
        let (pid, tid) = self.thread;
        CallPlace { pid, tid, depth: call.depth, start_ns: call.start_ns }
    }

    /// The functions that occurred.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Whether any of the functions in focus occurred.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.focus.has_any()
    }

    /// The shortest duration of the calls that count as slow.
    #[must_use]
    pub fn slow_from_ns(&self) -> u64 {
        self.bounds[2]
    }
}

impl Visitor for Explanation<'_> {
    fn thread(&mut self, thread: &Thread) {
        self.stack.clear();
        self.outermost = None;
        self.thread = (thread.pid, thread.tid);
    }

    fn needs_all_callees(&self) -> bool {
        true
    }

    fn begin(&mut self, function: FunctionNumber, _: Option<FunctionNumber>, functions: &Functions) {
        let is_meant = self.focus.has(function, functions);
        if is_meant && self.outermost.is_none() {
            self.outermost = Some(self.stack.len());
            self.called.clear();
        }
        self.stack.push(is_meant);
    }

    fn end(&mut self, call: &EndedCall) {
        self.stack.pop();
        let Some(outermost) = self.outermost else { return };
        if self.stack.len() == outermost + 1 && self.is_second {
            let sum = self.called.entry(call.function).or_default();
            *sum = (sum.0.saturating_add(call.duration_ns()), sum.1 + u64::from(call.counts));
        }
        if self.stack.len() > outermost {
            return;
        }
        self.outermost = None;
        if !call.is_shown || !call.is_timed() {
            return;
        }
        if !self.is_second {
            self.times.record(call.duration_ns());
            return;
        }
        let [from, until, slow] = self.bounds;
        let is_slow = match &self.only {
            None => call.duration_ns() >= slow,
            Some(only) => *only == self.place_of(call),
        };
        if is_slow {
            self.slow.add(call, &self.called);
        }
        if (from..=until).contains(&call.duration_ns()) {
            self.median.add(call, &self.called);
        }
    }
}
