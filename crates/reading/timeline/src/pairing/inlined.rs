//! Exceptions through a physical frame shared by inlined calls. The code at which the frame
//! continues shows which of these calls were unwound.

use super::{Closing, Frame, How, Pairing};
use crate::code::{Around, Caller};
use everycall_calls::EndKind;
use everycall_calls::Location;

/// Calls that may share a frame; damaged files may claim any number.
const SHARING_MAX: usize = 1024;

impl Pairing<'_> {
    /// An exception is unwinding the innermost `count` calls, not counting those that the runtime
    /// doesn't count.
    pub(super) fn begin_leaving(&mut self, count: u64) {
        let before = self.innermost_left(count).map(|frame| frame.left).max().unwrap_or(0);
        let left = match self.state.stack.last() {
            Some(innermost) if innermost.left > 0 => innermost.left,
            _ => before.saturating_add(1),
        };
        self.innermost_left(count).filter(|frame| frame.left == 0).for_each(|frame| frame.left = left);
    }

    /// The exception that was unwinding them is handled; exceptions that unwind the calls around
    /// them are not.
    pub(super) fn end_leaving(&mut self, count: u64) {
        let ended = self.state.stack.last().map_or(0, |innermost| innermost.left);
        self.innermost_left(count).filter(|frame| frame.left == ended).for_each(|frame| frame.left = 0);
    }

    /// Nothing was heard for a time: whether exceptions that were on their way still are isn't
    /// known.
    pub(super) fn forget_leaving(&mut self) {
        self.state.stack.iter_mut().rev().take(SHARING_MAX).for_each(|frame| frame.left = 0);
    }

    /// The innermost `count` calls, and those that the runtime doesn't count, innermost first.
    fn innermost_left(&mut self, count: u64) -> impl Iterator<Item = &mut Frame> {
        let mut counted = 0;
        self.state.stack.iter_mut().rev().take(SHARING_MAX).take_while(move |frame| {
            counted += u64::from(!frame.uncounted);
            counted <= count
        })
    }

    /// An exception reached the innermost frame, which handles it, or cleans up and makes the next
    /// call. Of the innermost `count` calls, which were inlined into that frame's function, those
    /// that don't enclose that code were unwound. The runtime counts none of them any more.
    pub(super) fn end_inlined(&mut self, count: u32, cleans_up: bool) {
        let caller = self.state.caller.take().unwrap_or_default();
        let (mut sharing, mut known) = (0, 0);
        for frame in self.innermost_left(count.into()) {
            sharing += 1;
            known += usize::from(frame.unnamed == 0 && !frame.uncounted);
        }
        if self.state.too_deep > 0 || known < count as usize {
            // The entries of some have been overwritten.
            return self.unwind(count, How::Is(EndKind::Unwound));
        }
        let first = self.state.stack.len() - sharing;
        let around = first.checked_sub(1).map(|place| self.state.stack[place].location);
        let (mut until, mut is_sure) = (first, true);
        for frame in &mut self.state.stack[first..] {
            let goes_on = match self.code.is_around(caller, frame.location, around) {
                Around::Unknown => {
                    is_sure = false;
                    cleans_up
                }
                Around::Is => true,
                Around::Isnt => false,
            };
            if !goes_on {
                break;
            }
            frame.uncounted = true;
            until += 1;
        }
        if !is_sure {
            // Nor is it known whose the next call is.
            self.state.caller = Some(Caller::default());
        }
        self.closing = Some(Closing { until, how: How::Is(EndKind::Unwound) });
    }

    /// The runtime has taken the exit of a call that it doesn't count for that of one around it, of
    /// the same function, as where one was inlined into itself. Now it doesn't count that one.
    #[cold]
    pub(super) fn count_less(&mut self, exit: Location) {
        let frames = self.state.stack.iter_mut().rev().take(SHARING_MAX);
        let mut counted = frames.filter(|frame| !frame.uncounted && frame.unnamed == 0);
        if let Some(frame) = counted.next().filter(|frame| self.code.is_same_function(frame.location, exit)) {
            frame.uncounted = true;
        }
    }

    /// Which of the innermost calls that the runtime doesn't count an exit belongs to: how many are
    /// inside it.
    pub(super) fn find_uncounted(&mut self, exit: Location) -> Option<usize> {
        let uncounted = self.state.stack.iter().rev().take(SHARING_MAX).take_while(|frame| frame.uncounted);
        let mut entries = uncounted.map(|frame| frame.location);
        entries.position(|entry| self.code.is_same_function(entry, exit))
    }
}
