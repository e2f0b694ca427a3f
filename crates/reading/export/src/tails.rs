//! Tail calls among the drawn slices.
//!
//! Calls that follow each other by jumps form a chain, whose links are drawn as arrows. The number
//! of a chain is unique in the whole output.

use everycall_timeline::EndKind;

use crate::filtered::Tail;

/// The jumps before and after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jumps {
    /// The call whose jump made it.
    pub(crate) tail: Option<Tail>,
    /// The chain whose arrow points to it.
    pub(crate) arrives_by: Option<u64>,
    /// The chain whose arrow begins at it, if it ended by a jump.
    pub(crate) leaves_by: Option<u64>,
}

impl Jumps {
    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.tail.is_some() || self.leaves_by.is_some()
    }
}

/// The open calls of one thread that jumps made. Calls are identified by their level.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    /// For the calls that have any, outermost first.
    open: Vec<(usize, Jumps)>,
    /// The chain of the call that ended last by a jump, until the next event.
    jumped: Option<u64>,
    /// Number of the next chain.
    next_chain: u64,
}

impl Tails {
    /// `first_chain` is the number of the first chain here.
    pub(crate) fn new(first_chain: u64) -> Tails {
        Tails { next_chain: first_chain, ..Tails::default() }
    }

    /// Number of the next chain.
    pub(crate) fn next_chain(&self) -> u64 {
        self.next_chain
    }

    /// A call begins, as the innermost of `level`. Returns its jumps.
    #[inline]
    pub(crate) fn begin(&mut self, level: usize, tail: Option<Tail>) -> Jumps {
        let chain = self.jumped.take();
        if tail.is_none() {
            return Jumps::default();
        }
        let arrives_by = chain.filter(|_| tail.is_some_and(|tail| tail.is_sure));
        let jumps = Jumps { tail, arrives_by, leaves_by: None };
        self.open.push((level, jumps));
        jumps
    }

    /// The innermost of `level` calls ends. Returns its jumps.
    #[inline]
    pub(crate) fn end(&mut self, level: usize, how: EndKind) -> Jumps {
        self.jumped = None;
        let mut jumps = match self.open.last() {
            Some((of, jumps)) if *of == level => {
                let jumps = *jumps;
                self.open.pop();
                jumps
            }
            _ => Jumps::default(),
        };
        if how == EndKind::Jumped {
            let chain = jumps.arrives_by.unwrap_or_else(|| {
                self.next_chain += 1;
                self.next_chain - 1
            });
            self.jumped = Some(chain);
            jumps.leaves_by = self.jumped;
        }
        jumps
    }

    /// Another event happened.
    #[inline]
    pub(crate) fn interrupt(&mut self) {
        self.jumped = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Calls;
    use everycall_timeline::TailCall;

    #[test]
    fn chains_go_on_while_it_is_sure() {
        let mut calls = Calls::default();
        calls.begin(0, 0);
        calls.end_how(1, EndKind::Jumped);
        calls.begin_tail(1, 1, TailCall::Yes);
        calls.end_how(2, EndKind::Jumped);
        calls.begin_tail(2, 2, TailCall::Yes);
        calls.end_how(3, EndKind::Jumped);
        calls.begin_tail(3, 3, TailCall::Perhaps);
        calls.end_how(4, EndKind::Jumped);
        calls.begin(4, 5);
        calls.end(6);
        let mut tails = Tails::new(70);
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for event in calls.filtered() {
            match event {
                crate::filtered::Event::Begin { start, .. } => {
                    begun.push(tails.begin(1, start.tail).arrives_by)
                }
                crate::filtered::Event::End { how, .. } => ended.push(tails.end(1, how).leaves_by),
                _ => {}
            }
        }
        assert_eq!(begun, [None, Some(70), Some(70), None, None]);
        assert_eq!(ended, [Some(70), Some(70), Some(70), Some(71), None]);
        assert!(tails.open.is_empty());
    }

    #[test]
    fn jumps_in_a_row_take_no_memory() {
        let mut calls = Calls::default();
        calls.begin(0, 0);
        let Some(crate::filtered::Event::Begin { function: of, .. }) = calls.filtered().pop() else {
            panic!()
        };
        let mut tails = Tails::new(0);
        let tail = Some(crate::filtered::Tail { of, is_sure: true });
        for _ in 0..1_000_000 {
            tails.begin(1, tail);
            tails.end(1, EndKind::Jumped);
        }
        assert!(tails.open.capacity() < 10);
    }
}
