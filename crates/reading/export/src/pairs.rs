//! Calls added up by function and by pair of caller and callee: what call graphs are written from.
//!
//! Memory holds functions and pairs.

use rustc_hash::FxHashMap;

use crate::driver::CallSums;
use crate::filtered::Event;
use crate::frames::Frame;
use crate::source::Process;
use everycall_calls::Thread;

/// Calls of one function by another.
pub(crate) struct Pair {
    /// Position of the one that is called in [`Pairs::functions`].
    pub(crate) callee: usize,
    pub(crate) calls: u64,
    /// Time of these calls. Those of a function that was open already have none of their own.
    pub(crate) inclusive_ns: u64,
}

/// A function.
pub(crate) struct Costs {
    pub(crate) frame: Frame,
    pub(crate) calls: u64,
    /// Recursion counts once.
    pub(crate) total_ns: u64,
    pub(crate) own_ns: u64,
    /// Open calls of it in the thread.
    open: u64,
    /// In the order in which they were called first.
    pub(crate) callees: Vec<Pair>,
    /// Where the function that was called last stands in it: often the next one, too.
    last: usize,
}

struct Open {
    /// Position of the function.
    position: usize,
    inner_ns: u64,
}

/// All functions of an output that were called, and which called which.
#[derive(Default)]
pub(crate) struct Pairs {
    costs: Vec<Costs>,
    /// By function: its position, once it has one.
    functions: Vec<Option<usize>>,
    /// The positions of other frames.
    others: FxHashMap<Frame, usize>,
    /// By positions of caller and callee: the position in the caller's callees.
    pairs: FxHashMap<(usize, usize), usize>,
    open: Vec<Open>,
    /// Time of all calls.
    pub(crate) total_ns: u64,
}

impl Pairs {
    /// The functions, in the order in which they were called first.
    pub(crate) fn functions(&self) -> &[Costs] {
        &self.costs
    }

    #[inline]
    fn position(&mut self, frame: Frame) -> usize {
        if let Frame::Function(function) = frame
            && let Some(&Some(position)) = self.functions.get(function.index())
        {
            return position;
        }
        self.find_or_add(frame)
    }

    #[cold]
    fn find_or_add(&mut self, frame: Frame) -> usize {
        let next = self.costs.len();
        let position = match frame {
            Frame::Function(function) => {
                if self.functions.len() <= function.index() {
                    self.functions.resize(function.index() + 1, None);
                }
                *self.functions[function.index()].get_or_insert(next)
            }
            frame => *self.others.entry(frame).or_insert(next),
        };
        if position == next {
            self.costs.push(Costs {
                frame,
                calls: 0,
                total_ns: 0,
                own_ns: 0,
                open: 0,
                callees: Vec::new(),
                last: 0,
            });
        }
        position
    }

    #[inline]
    fn enter(&mut self, frame: Frame) {
        let position = self.position(frame);
        self.costs[position].open += 1;
        self.open.push(Open { position, inner_ns: 0 });
    }

    #[inline]
    fn leave(&mut self, ns: u64) {
        let Some(Open { position, inner_ns }) = self.open.pop() else { return };
        let own_ns = ns.saturating_sub(inner_ns);
        self.total_ns = self.total_ns.saturating_add(own_ns);
        let costs = &mut self.costs[position];
        costs.own_ns = costs.own_ns.saturating_add(own_ns);
        costs.calls += 1;
        costs.open = costs.open.saturating_sub(1);
        let is_outermost = costs.open == 0;
        if is_outermost {
            costs.total_ns = costs.total_ns.saturating_add(ns);
        }
        let Some(caller) = self.open.last_mut() else { return };
        caller.inner_ns = caller.inner_ns.saturating_add(ns);
        let caller = caller.position;
        let pair = self.pair(caller, position);
        pair.calls += 1;
        if is_outermost {
            pair.inclusive_ns = pair.inclusive_ns.saturating_add(ns);
        }
    }

    #[inline]
    fn pair(&mut self, caller: usize, callee: usize) -> &mut Pair {
        let costs = &mut self.costs[caller];
        if costs.callees.get(costs.last).is_none_or(|pair| pair.callee != callee) {
            costs.last = *self.pairs.entry((caller, callee)).or_insert_with(|| {
                costs.callees.push(Pair { callee, calls: 0, inclusive_ns: 0 });
                costs.callees.len() - 1
            });
        }
        &mut costs.callees[costs.last]
    }

    /// Something without callees, within the innermost call.
    fn leaf(&mut self, frame: Frame, ns: u64) {
        if !self.open.is_empty() {
            self.enter(frame);
            self.leave(ns);
        }
    }
}

impl CallSums for Pairs {
    fn thread(&mut self, _: &Thread, _: &[Process]) {
        self.open.clear();
        for costs in &mut self.costs {
            costs.open = 0;
        }
    }

    #[inline]
    fn event(&mut self, event: &Event) {
        match *event {
            Event::Begin { function, .. } => self.enter(Frame::Function(function)),
            Event::End { start_ns, end_ns, .. } => self.leave(end_ns.saturating_sub(start_ns)),
            Event::Gap(gap) | Event::ShortSuspension(gap) => {
                self.leaf(Frame::of_gap(gap.why), gap.until_ns.saturating_sub(gap.at_ns));
            }
            Event::Untraced(slice) => {
                let ns = slice.until_ns.saturating_sub(slice.at_ns);
                self.leaf(Frame::Function(slice.function), ns);
            }
            Event::Point(_) | Event::Mark(_) | Event::OffCpu(_) => {}
        }
    }
}
