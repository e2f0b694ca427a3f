//! Calls that end in a tail call and continue until its target ends.

use std::collections::VecDeque;

use everycall_calls::{End, EndKind, TailCall, ThreadStates};

use crate::visitor::{EndedCall, Visitor, WithTail};

/// Largest number of calls that wait for one. In a longer chain of jumps, the ends of the first
/// ones are unknown.
pub(super) const WAITING_MAX: usize = 1_000;

/// A call that ended in a tail call and continues until its target ends.
struct Waiting {
    token: u32,
    start_ns: u64,
    end_ns: u64,
    start_cut: bool,
    is_shown: bool,
    is_at_most: bool,
}

/// The calls of a thread that continue in others.
pub(super) struct Tails<'s> {
    states: Option<&'s ThreadStates>,
    /// The calls that end in the next tail call.
    jumped: VecDeque<Waiting>,
    /// For the open calls that were jumped to, outermost first: their depth, and the chain of calls
    /// that waits for their end.
    targets: Vec<(usize, VecDeque<Waiting>)>,
}

impl<'s> Tails<'s> {
    pub(super) fn new(states: Option<&'s ThreadStates>) -> Tails<'s> {
        Tails { states, jumped: VecDeque::new(), targets: Vec::new() }
    }

    /// Whether calls wait for the next event.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.jumped.is_empty()
    }

    /// A call ended in a tail call.
    pub(super) fn jump(&mut self, call: &EndedCall, visitor: &mut impl Visitor) {
        self.jumped.push_back(Waiting {
            token: visitor.token(),
            start_ns: call.start_ns.saturating_sub(call.of.thunk_ns),
            end_ns: call.end_ns,
            start_cut: call.start_cut,
            is_shown: call.is_shown,
            is_at_most: false,
        });
        if self.jumped.len() > WAITING_MAX
            && let Some(first) = self.jumped.pop_front()
        {
            self.tell(&first, first.end_ns, true, visitor);
        }
    }

    /// A call begins behind a tail call, in so many others: the calls that jumped wait for it, if
    /// it is the target.
    #[cold]
    pub(super) fn begin(&mut self, depth: usize, tail_call: TailCall, visitor: &mut impl Visitor) {
        if tail_call == TailCall::No {
            self.end_all(None, false, visitor);
        }
        let mut waiting = std::mem::take(&mut self.jumped);
        if !waiting.is_empty() {
            waiting.iter_mut().for_each(|call| call.is_at_most |= tail_call == TailCall::Perhaps);
            self.targets.push((depth, waiting));
        }
    }

    /// A call with so many around it has ended.
    #[inline]
    pub(super) fn end(&mut self, depth: usize, end: &End, visitor: &mut impl Visitor) {
        if let Some((_, waiting)) = self.targets.pop_if(|(target, _)| *target == depth) {
            self.end_target(waiting, end, visitor);
        }
    }

    #[cold]
    fn end_target(&mut self, waiting: VecDeque<Waiting>, end: &End, visitor: &mut impl Visitor) {
        self.jumped = waiting;
        let is_truncated = match end.how {
            EndKind::Jumped => return,
            EndKind::Returned | EndKind::Unwound => false,
            _ => true,
        };
        self.end_all(Some(end.end_ns), is_truncated, visitor);
    }

    /// The target isn't traced, and had ended then.
    pub(super) fn end_untraced(&mut self, until_ns: u64, visitor: &mut impl Visitor) {
        self.jumped.iter_mut().for_each(|call| call.is_at_most = true);
        self.end_all(Some(until_ns), false, visitor);
    }

    /// Ends the calls that wait for a tail call's target: at `end_ns`, or where they jumped if the
    /// end is unknown.
    pub(super) fn end_all(&mut self, end_ns: Option<u64>, is_truncated: bool, visitor: &mut impl Visitor) {
        while let Some(call) = self.jumped.pop_front() {
            self.tell(&call, end_ns.unwrap_or(call.end_ns), is_truncated, visitor);
        }
    }

    fn tell(&self, call: &Waiting, end_ns: u64, is_truncated: bool, visitor: &mut impl Visitor) {
        visitor.tail_ended(
            call.token,
            &WithTail {
                duration_ns: end_ns.saturating_sub(call.start_ns),
                is_at_most: call.is_at_most,
                is_truncated: is_truncated || call.start_cut,
                is_shown: call.is_shown,
                states: self.states.map(|states| states.times(call.start_ns, end_ns)),
            },
        );
    }
}
