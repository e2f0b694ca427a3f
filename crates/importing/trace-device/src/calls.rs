//! Open calls of a thread, from events: which calls an event shows to have ended.

use crate::event::{Event, Place};

/// The effect of an event on the open calls, after those that it shows to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A call began.
    Begin(Place),
    /// The innermost call returned.
    Return(Place),
    /// The innermost call jumped to another function.
    Jump(Place),
    /// An exit of a call whose entry isn't there.
    Orphan,
    /// Neither.
    None,
}

/// The open calls of one thread.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls {
    open: Vec<(u64, Place)>,
}

impl OpenCalls {
    /// How many calls ended without an exit before this event, and what it does itself.
    pub fn apply(&mut self, event: &Event) -> (usize, Change) {
        match *event {
            Event::Enter { place, stack } => {
                let left = self.drop_while(|open| match place {
                    Place::Code(_) => open <= stack,
                    Place::Id(_) => open < stack,
                });
                self.open.push((stack, place));
                (left, Change::Begin(place))
            }
            Event::Leave { stack } => self.leave(stack, false, Change::Return),
            Event::LeaveByJump { stack } => self.leave(stack, false, Change::Jump),
            Event::LeaveId { stack } => self.leave(stack, true, Change::Return),
            Event::Word { .. } => (0, Change::None),
            Event::Lost { .. } => {
                self.open.clear();
                (0, Change::None)
            }
        }
    }

    /// Calls that are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    fn drop_while(&mut self, is_dead: impl Fn(u64) -> bool) -> usize {
        let before = self.open.len();
        while self.open.last().is_some_and(|(stack, _)| is_dead(*stack)) {
            self.open.pop();
        }
        before - self.open.len()
    }

    fn leave(&mut self, stack: u64, is_id: bool, change: fn(Place) -> Change) -> (usize, Change) {
        let left = self.drop_while(|open| open < stack);
        match self.open.last() {
            Some((open, place)) if *open == stack && matches!(place, Place::Id(_)) == is_id => {
                let change = change(*place);
                self.open.pop();
                (left, change)
            }
            _ => (left, Change::Orphan),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_an_exception_left_end_with_the_next_event() {
        let mut calls = OpenCalls::default();
        let enter = |code, stack| Event::Enter { place: Place::Code(code), stack };
        for (event, expected) in [
            (enter(1, 1000), (0, Change::Begin(Place::Code(1)))),
            (enter(2, 900), (0, Change::Begin(Place::Code(2)))),
            (enter(3, 800), (0, Change::Begin(Place::Code(3)))),
            // The function at 1000 has caught it, and calls another one.
            (enter(4, 910), (2, Change::Begin(Place::Code(4)))),
            (Event::LeaveByJump { stack: 910 }, (0, Change::Jump(Place::Code(4)))),
            (enter(5, 910), (0, Change::Begin(Place::Code(5)))),
            (Event::Enter { place: Place::Id(7), stack: 902 }, (0, Change::Begin(Place::Id(7)))),
            (Event::Enter { place: Place::Id(8), stack: 902 }, (0, Change::Begin(Place::Id(8)))),
            (Event::LeaveId { stack: 902 }, (0, Change::Return(Place::Id(8)))),
            (Event::Leave { stack: 1000 }, (2, Change::Return(Place::Code(1)))),
            (Event::Leave { stack: 2000 }, (0, Change::Orphan)),
        ] {
            assert_eq!(calls.apply(&event), expected, "{event:?}");
        }
        assert_eq!(calls.depth(), 0);
    }
}
