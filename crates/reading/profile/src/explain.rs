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

use everycall_calls::Thread;
use rustc_hash::FxHashMap;

use crate::focus::Focus;
use crate::functions::{FunctionNumber, Functions};
use crate::notes::Notes;
use crate::sketch::Sketch;
use crate::source::CallSource;
use crate::visitor::{EndedCall, Visitor, WithTail};
use crate::walk::walk;

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
    /// The time after their tail calls, in code that isn't traced, and perhaps in their callers
    /// after that.
    pub tails_ns: u64,
    /// How many of them have a duration that is an upper bound for that reason.
    pub at_most: u64,
    /// Time in nanoseconds and number of calls, by called function. Functions that they jumped to
    /// count as called.
    pub called: FxHashMap<FunctionNumber, (u64, u64)>,
}

impl Doings {
    fn add(&mut self, call: &EndedCall, tail: &Tail, called: &FxHashMap<FunctionNumber, (u64, u64)>) {
        self.calls += 1;
        let duration_ns = call.duration_ns().saturating_add(tail.behind_ns);
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
        self.own_ns = self.own_ns.saturating_add(call.own_ns);
        self.suspended_ns = self.suspended_ns.saturating_add(call.suspended_ns);
        self.tails_ns = self.tails_ns.saturating_add(tail.untraced_ns);
        self.at_most += u64::from(tail.is_at_most);
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

/// A call's time after its tail call.
#[derive(Clone, Copy, Default)]
struct Tail {
    behind_ns: u64,
    /// The part of it in code that isn't traced.
    untraced_ns: u64,
    is_at_most: bool,
}

/// A call of a function in focus that ended in a tail call and goes on in the jump's target.
struct Jumped {
    token: u32,
    call: EndedCall,
    depth: usize,
    /// The function that the last jump led to, until it ends.
    target: Option<FunctionNumber>,
    /// Time in the functions that were jumped to and have jumped on.
    attributed_ns: u64,
}

/// One call of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlace {
    /// Process id of its thread.
    pub pid: u32,
    /// Its thread; of fibers see [`everycall_calls::FIBERS_FROM`].
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
    /// Losses that make the numbers incomplete.
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
    p50_ns: u64,
    /// The call that is to be explained in the place of the slow ones.
    only: Option<CallPlace>,
    /// Process and thread of the calls that follow.
    thread: (u32, u32),
    follows_tails: bool,
    jumped: Option<Jumped>,
    /// Number of calls that ended.
    ended: u32,
    /// Of the calls of the second pass, the one nearest to the median: how far it is from that,
    /// where it is, and when it ended.
    nearest: Option<(u64, CallPlace, u64)>,
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
            p50_ns: 0,
            only: None,
            thread: (0, 0),
            follows_tails: false,
            jumped: None,
            ended: 0,
            nearest: None,
        }
    }

    /// With tail calls: a call that ends by a jump lasts until the jump's target ends.
    #[must_use]
    pub fn with_tails(self, follows_tails: bool) -> Explanation<'f> {
        Explanation { follows_tails, ..self }
    }

    /// Explains one call in place of the slow ones: [`Explanation::slow`] is that call, unless it
    /// is within another call of its function, or its duration isn't known.
    #[must_use]
    pub fn of_call(self, call: CallPlace) -> Explanation<'f> {
        Explanation { only: Some(call), ..self }
    }

    /// The first pass over a trace. The first passes over all traces come before
    /// [`Explanation::second`].
    pub fn first<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        self.pass(source, filter);
    }

    /// The second pass, over the same traces.
    pub fn second<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        if !self.is_second {
            self.begin_second();
        }
        self.pass(source, filter);
    }

    /// All durations are known: decides which calls are slow, and which are around the median.
    pub(crate) fn begin_second(&mut self) {
        self.is_second = true;
        let times = &self.times;
        let at = |of| times.percentile(of).unwrap_or(0);
        // The middle of a bucket may exceed the values in it by this much.
        let (below, above) = (|ns: u64| ns - ns / 64, |ns: u64| ns.saturating_add(ns / 64));
        let slow = below(at(9_900)).min(times.max().unwrap_or(0));
        self.bounds = [below(at(4_500)), above(at(5_500)), slow];
        self.p50_ns = at(5_000);
    }

    fn pass<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        let mut functions = std::mem::take(&mut self.functions);
        let mut notes = Notes::default();
        walk(source, filter, None, &mut functions, &mut notes, self);
        self.functions = functions;
        if !self.is_second {
            self.notes.add(&notes);
        }
    }

    /// Counts an outermost call.
    fn count(&mut self, call: &EndedCall, tail: Tail) {
        let duration_ns = call.duration_ns().saturating_add(tail.behind_ns);
        if !self.is_second {
            self.times.record(duration_ns);
            return;
        }
        let [from, until, slow] = self.bounds;
        let is_slow = match &self.only {
            None => duration_ns >= slow,
            Some(only) => *only == self.place_of(call),
        };
        if is_slow {
            self.slow.add(call, &tail, &self.called);
        }
        if (from..=until).contains(&duration_ns) {
            self.median.add(call, &tail, &self.called);
            let off = duration_ns.abs_diff(self.p50_ns);
            if self.nearest.is_none_or(|(best, ..)| off < best) {
                let end_ns = call.start_ns.saturating_add(duration_ns);
                self.nearest = Some((off, self.place_of(call), end_ns));
            }
        }
    }

    fn add_called(&mut self, function: FunctionNumber, ns: u64, calls: u64) {
        let sum = self.called.entry(function).or_default();
        *sum = (sum.0.saturating_add(ns), sum.1 + calls);
    }

    fn place_of(&self, call: &EndedCall) -> CallPlace {
        let (pid, tid) = self.thread;
        CallPlace { pid, tid, depth: call.depth, start_ns: call.start_ns }
    }

    /// After the second pass: the call whose duration is nearest to the median, and when it ended.
    #[must_use]
    pub fn median_call(&self) -> Option<(CallPlace, u64)> {
        self.nearest.map(|(_, place, end_ns)| (place, end_ns))
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
        self.jumped = None;
        self.thread = (thread.pid, thread.tid);
    }

    fn needs_all_callees(&self) -> bool {
        true
    }

    fn follows_tails(&self) -> bool {
        self.follows_tails
    }

    fn token(&self) -> u32 {
        self.ended
    }

    fn tail_ended(&mut self, token: u32, with: &WithTail) {
        let Some(jumped) = self.jumped.take_if(|jumped| jumped.token == token) else { return };
        let Jumped { call, target, attributed_ns, .. } = jumped;
        let behind_ns = with.duration_ns.saturating_sub(call.duration_ns());
        let rest_ns = behind_ns.saturating_sub(attributed_ns);
        if let Some(target) = target {
            self.add_called(target, rest_ns, 1);
        }
        let untraced_ns = if target.is_none() { rest_ns } else { 0 };
        if !with.is_truncated {
            self.count(&call, Tail { behind_ns, untraced_ns, is_at_most: with.is_at_most });
        }
    }

    fn begin(&mut self, function: FunctionNumber, _: Option<FunctionNumber>, functions: &Functions) {
        let is_meant = self.focus.has(function, functions);
        if let Some(jumped) = &mut self.jumped {
            // Within a call that goes on.
            if self.stack.len() == jumped.depth {
                jumped.target = Some(function);
            }
            self.stack.push(false);
            return;
        }
        if is_meant && self.outermost.is_none() {
            self.outermost = Some(self.stack.len());
            self.called.clear();
        }
        self.stack.push(is_meant);
    }

    fn end(&mut self, call: &EndedCall) {
        self.ended = self.ended.wrapping_add(1);
        self.stack.pop();
        if let Some(jumped) = &mut self.jumped {
            if jumped.depth == self.stack.len() {
                // It has jumped on.
                jumped.target = None;
                jumped.attributed_ns = jumped.attributed_ns.saturating_add(call.duration_ns());
                self.add_called(call.of.function(), call.duration_ns(), u64::from(call.of.counts));
            }
            return;
        }
        let Some(outermost) = self.outermost else { return };
        if self.stack.len() == outermost + 1 && self.is_second {
            self.add_called(call.of.function(), call.duration_ns(), u64::from(call.of.counts));
        }
        if self.stack.len() > outermost {
            return;
        }
        self.outermost = None;
        if !call.is_shown || !call.is_timed() {
            return;
        }
        match call.of.goes_on {
            true => {
                let (token, depth) = (self.ended, self.stack.len());
                self.jumped = Some(Jumped { token, call: *call, depth, target: None, attributed_ns: 0 });
            }
            false => self.count(call, Tail::default()),
        }
    }
}
