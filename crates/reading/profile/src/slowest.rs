//! The slowest calls of some functions, with their places in the trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use everycall_calls::{Bars, CallValues, EndKind, Thread};
use rustc_hash::FxHashMap;

use crate::bounds::CallBounds;
use crate::focus::Focus;
use crate::functions::{FunctionNumber, Functions};
use crate::notes::Notes;
use crate::source::CallSource;
use crate::value_of::ValueText;
use crate::visitor::{EndedCall, Visitor, WithTail};
use crate::walk::walk;

/// A call, where it is and how it ended. Sorted by the longest duration that is possible; of equal
/// durations, later calls come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// Its function.
    pub function: FunctionNumber,
    /// Number of the trace, from 0 in the order in which they were added.
    pub trace: usize,
    /// The kernel's number of the process.
    pub pid: u32,
    /// The kernel's number of the thread; of fibers see [`everycall_calls::FIBERS_FROM`].
    pub tid: u32,
    /// The thread's name.
    pub thread: String,
    /// Number of enclosing calls.
    pub depth: u32,
    /// In nanoseconds since the trace's origin.
    pub start_ns: u64,
    /// In nanoseconds since the trace's origin.
    pub end_ns: u64,
    /// Nanoseconds in it without its callees.
    pub own_ns: u64,
    /// Its duration, if that isn't known exactly.
    pub bars: Option<Bars>,
    /// How it ended.
    pub how: EndKind,
    /// Whether it began before the recorded range.
    pub start_cut: bool,
    /// Whether its duration is a bound, or it may be several calls, because its entry or exit isn't
    /// known.
    pub is_uncertain: bool,
    /// Whether its duration includes its tail calls.
    pub has_tail: bool,
    /// Whether its duration is an upper bound, because what it jumped to isn't traced.
    pub is_at_most: bool,
    /// Its arguments and its result, as far as they were recorded.
    values: CallValues,
    /// Its arguments, once all calls of its trace are known.
    pub arguments: Option<ValueText>,
    /// Its result, once all calls of its trace are known.
    pub result: Option<ValueText>,
}

impl SlowCall {
    /// Its duration, as far as it was recorded.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// How long it took at most: what the slowest are chosen by.
    fn longest_ns(&self) -> u64 {
        self.bars.map_or(self.duration_ns(), |bars| bars.high)
    }

    fn order(&self) -> (u64, Reverse<usize>, Reverse<u64>, Reverse<u32>, Reverse<u32>) {
        let place = (Reverse(self.trace), Reverse(self.start_ns), Reverse(self.tid), Reverse(self.depth));
        (self.longest_ns(), place.0, place.1, place.2, place.3)
    }
}

impl PartialOrd for SlowCall {
    fn partial_cmp(&self, other: &SlowCall) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SlowCall {
    fn cmp(&self, other: &SlowCall) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

/// The slowest calls of some functions.
pub struct Slowest<'f> {
    focus: Focus<'f>,
    limit: usize,
    functions: Functions,
    /// Losses that make the numbers incomplete.
    pub notes: Notes,
    traces: usize,
    thread: Option<Thread>,
    /// The duration of the call that ends next, if that isn't known exactly.
    bars: Option<Bars>,
    kept: BinaryHeap<Reverse<SlowCall>>,
    follows_tails: bool,
    /// Calls whose tail calls haven't ended, by their tokens.
    jumped: FxHashMap<u32, SlowCall>,
    /// Number of calls that ended.
    ended: u32,
}

impl<'f> Slowest<'f> {
    /// Keeps at most `limit` calls of the functions in focus.
    #[must_use]
    pub fn new(focus: Focus<'f>, limit: usize) -> Slowest<'f> {
        Slowest {
            focus,
            limit,
            functions: Functions::default(),
            notes: Notes::default(),
            traces: 0,
            thread: None,
            bars: None,
            kept: BinaryHeap::new(),
            follows_tails: false,
            jumped: FxHashMap::default(),
            ended: 0,
        }
    }

    /// With tail calls: the duration of a call that ends by a jump lasts until the jump's target
    /// ends.
    #[must_use]
    pub fn with_tails(self, follows_tails: bool) -> Slowest<'f> {
        Slowest { follows_tails, ..self }
    }

    /// Adds the calls of a trace that pass a filter.
    pub fn add_trace<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        let mut functions = std::mem::take(&mut self.functions);
        let mut notes = std::mem::take(&mut self.notes);
        walk(source, filter, None, &mut functions, &mut notes, self);
        (self.functions, self.notes) = (functions, notes);
        self.read_values(source);
        self.traces += 1;
    }

    /// Makes texts of the values of this trace's calls.
    fn read_values(&mut self, source: &impl CallSource) {
        let kept = std::mem::take(&mut self.kept).into_iter();
        self.kept = kept
            .map(|Reverse(mut call)| {
                if call.trace == self.traces {
                    let CallValues { arguments, result } = call.values;
                    call.arguments = arguments.and_then(|number| source.value_text(number, false));
                    call.result = result.and_then(|number| source.value_text(number, true));
                }
                Reverse(call)
            })
            .collect();
    }

    /// Keeps a call if it is one of the slowest so far.
    fn keep(&mut self, call: SlowCall) {
        let shortest = self.kept.peek().map(|kept| kept.0.longest_ns());
        if self.kept.len() >= self.limit && shortest.is_some_and(|shortest| call.longest_ns() < shortest) {
            return;
        }
        self.kept.push(Reverse(call));
        if self.kept.len() > self.limit {
            self.kept.pop();
        }
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

    /// The calls, slowest first.
    #[must_use]
    pub fn calls(&self) -> Vec<&SlowCall> {
        let mut calls: Vec<_> = self.kept.iter().map(|kept| &kept.0).collect();
        calls.sort_by(|one, other| other.cmp(one));
        calls
    }
}

impl Visitor for Slowest<'_> {
    fn thread(&mut self, thread: &Thread) {
        self.thread = Some(thread.clone());
    }

    fn begin(&mut self, function: FunctionNumber, _: Option<FunctionNumber>, functions: &Functions) {
        self.focus.has(function, functions);
    }

    fn bounds(&mut self, bounds: &CallBounds, _: &EndedCall) {
        self.bars = Some(bounds.total).filter(|bars| !bars.is_exact());
    }

    fn follows_tails(&self) -> bool {
        self.follows_tails
    }

    fn token(&self) -> u32 {
        self.ended
    }

    fn tail_ended(&mut self, token: u32, tail: &WithTail) {
        let Some(call) = self.jumped.remove(&token) else { return };
        // Only its part before the jump has bounds of its own.
        let bars = call.bars.map(|bars| {
            let behind = tail.duration_ns.saturating_sub(bars.value);
            let [low, value, high] = [bars.low, bars.value, bars.high].map(|ns| ns.saturating_add(behind));
            Bars { low, value, high }
        });
        self.keep(SlowCall {
            end_ns: call.start_ns.saturating_add(tail.duration_ns),
            bars,
            is_uncertain: tail.is_truncated,
            has_tail: true,
            is_at_most: tail.is_at_most,
            ..call
        });
    }

    fn end(&mut self, call: &EndedCall) {
        self.ended = self.ended.wrapping_add(1);
        let bars = self.bars.take();
        // The call has begun, so its function was looked up.
        if !call.is_shown || !call.of.counts || !self.focus.has(call.of.function(), &Functions::default()) {
            return;
        }
        let Some(thread) = &self.thread else { return };
        let shortest = self.kept.peek().map(|kept| kept.0.longest_ns());
        let longest = bars.map_or(call.duration_ns(), |bars| bars.high);
        // Before a thread's name is copied, which most calls don't need.
        let is_short = self.kept.len() >= self.limit && shortest.is_some_and(|shortest| longest < shortest);
        if is_short && !call.of.goes_on {
            return;
        }
        let slow = SlowCall {
            function: call.of.function(),
            trace: self.traces,
            pid: thread.pid,
            tid: thread.tid,
            thread: thread.name.clone(),
            depth: call.depth,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            own_ns: call.own_ns,
            bars,
            how: call.how,
            start_cut: call.start_cut,
            is_uncertain: !call.is_timed(),
            has_tail: false,
            is_at_most: false,
            values: call.values,
            arguments: None,
            result: None,
        };
        match call.of.goes_on {
            true => _ = self.jumped.insert(self.ended, slow),
            false => self.keep(slow),
        }
    }
}
